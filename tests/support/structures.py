"""Structures built over a view, without a folder to keep them in."""

from __future__ import annotations

from pseudoquery.search.faiss_index import FaissIndex, build_faiss
from pseudoquery.search.int8_scan import Int8Scan, make_scan
from pseudoquery.storage.vector_view import VectorView


def build(kind: str, view: VectorView) -> FaissIndex | Int8Scan:
    """Build a structure over all vectors of a view."""
    return make_scan(view) if kind == "flat8" else build_faiss(kind, view)
