"""The content of index.sqlite: tables, settings and checksums."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pseudoquery.errors import IndexFolderError
from pseudoquery.method.token_codes import TokenType
from pseudoquery.records import Document
from pseudoquery.storage.segments import SegmentFacts
from pseudoquery.storage.sqlite_errors import no_index_sentence

FORMAT = 2
FORMAT_WITH_TOKENS = 2
"""Since this format, segments have their documents' tokens, and filters the table `fields`; older
folders stay as they are."""
CHECKSUM_BYTES = 16
LATER_SETTINGS = ("precision", "tokens")
"""Settings that the first folders did not have."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What an index was made with; it never changes."""

    model: str
    """The model's name or folder; empty if the model was given in memory."""
    fingerprint: str
    """A hash of the model, by which the index recognises it."""
    dimension: int
    """How many numbers a vector has."""
    representation: Mapping[str, Any]
    """How texts become vectors: the fields of `Representation`."""
    long: str = "windows"
    """"windows" if long documents were read whole, "truncate" if only their beginning."""
    vector_type: str = "float16"
    """How vectors are stored: "float16", "float32" or "int8"."""
    format: int = FORMAT
    """The version of the folder's format."""
    precision: str = "float32"
    """What the encoder computes in, for documents and queries alike."""
    tokens: TokenType = "none"
    """How the vectors of tokens are stored: "signs", "int8", "float16", or "none"."""


def parse_settings(folder: Path, saved: Mapping[str, str]) -> Settings:
    """Read the settings of an index as they are stored, or say what is wrong with them."""
    try:
        version = json.loads(saved["format"])
        if version > FORMAT:
            raise IndexFolderError(
                f"{folder} was made by a newer version of pseudoquery (its format is {version}, "
                f"this version reads up to {FORMAT}); upgrade with: pip install -U pseudoquery"
            )
        if saved["checksum"] != settings_checksum(saved):
            raise ValueError("the settings are not what was written")
        values = {name: json.loads(saved[name]) for name in _settings_in(saved)}
    except (KeyError, ValueError, TypeError) as error:
        raise IndexFolderError(no_index_sentence(folder)) from error
    return Settings(**values)


def settings_checksum(saved: Mapping[str, str]) -> str:
    """Hash the settings as they are stored."""
    content = json.dumps([saved[name] for name in _settings_in(saved)])
    return hashlib.sha256(content.encode()).hexdigest()


def _settings_in(saved: Mapping[str, str]) -> list[str]:
    """Name the settings that are stored; an older index does not store all of them."""
    names = [field.name for field in fields(Settings)]
    return [name for name in names if name not in LATER_SETTINGS or name in saved]


def document_checksum(document: Document) -> bytes:
    """Hash a document's content, to notice changes and damage."""
    content = [document.id, document.title, document.text, document.metadata]
    text = json.dumps(content, sort_keys=True).encode()
    return hashlib.blake2b(text, digest_size=CHECKSUM_BYTES).digest()


def stored_checksum(document: Document, format_: int) -> bytes:
    """Return what is stored beside a document: the checksum of its content, then of its origin.

    They are apart, because a document that comes from elsewhere has not changed. In format 1, its
    origin has no checksum.
    """
    origin = _origin_checksum(document) if format_ >= FORMAT_WITH_TOKENS else b""
    return document_checksum(document) + origin


def content_checksum(stored: bytes) -> bytes:
    """Return the checksum of a document's content, given what is stored beside the document."""
    return stored[:CHECKSUM_BYTES]


def is_checksum_of(document: Document, stored: bytes) -> bool:
    """Compare a document with what is stored beside it."""
    origin = stored[CHECKSUM_BYTES:]
    is_same_origin = not origin or origin == _origin_checksum(document)
    return is_same_origin and content_checksum(stored) == document_checksum(document)


def _origin_checksum(document: Document) -> bytes:
    return zlib.crc32(document.origin.encode("utf-8", "surrogateescape")).to_bytes(4, "little")


def read_facts(connection: sqlite3.Connection) -> list[SegmentFacts]:
    """Read what is known of each segment, in order of their documents."""
    names = ", ".join(field.name for field in fields(SegmentFacts))
    rows = connection.execute(f"SELECT {names} FROM segments ORDER BY first")  # noqa: S608
    return [SegmentFacts(*row) for row in rows]
