"""Split the judgements of a test collection by document, where it has no dev split of its own.

A document that answers questions of one part answers none of the other. So a model is judged on
documents that it has not learnt to find.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from pseudoquery.corpus.datasets import load_dataset
from pseudoquery.errors import CorpusError
from pseudoquery.files import write_atomically
from pseudoquery.records import Qrel

HEADER = "query-id\tcorpus-id\tscore"


class Parts(NamedTuple):
    """The judgements of both parts."""

    rest: list[Qrel]
    dev: list[Qrel]


def split_qrels(qrels: Sequence[Qrel], share: float) -> Parts:
    """Split judgements so that no document is in both parts; about a share of documents in dev.

    Documents that answer the same query stay together. The ids of the documents alone decide: not
    their order, and no random numbers.
    """
    groups = _group_documents(qrels)
    parts = Parts([], [])
    for qrel in qrels:
        group = groups[qrel.document_id]
        digest = hashlib.sha256(group.encode()).digest()
        in_dev = int.from_bytes(digest[:8], "big") < share * 2**64
        (parts.dev if in_dev else parts.rest).append(qrel)
    return parts


def _group_documents(qrels: Iterable[Qrel]) -> dict[str, str]:
    """Name the group of each document: the smallest id of those that share queries with it."""
    parents: dict[str, str] = {}

    def find(id_: str) -> str:
        while parents.setdefault(id_, id_) != id_:
            parents[id_] = parents[parents[id_]]
            id_ = parents[id_]
        return id_

    first: dict[str, str] = {}
    for qrel in qrels:
        earlier = find(first.setdefault(qrel.query_id, qrel.document_id))
        later = find(qrel.document_id)
        parents[max(earlier, later)] = min(earlier, later)
    return {id_: find(id_) for id_ in list(parents)}


def split_collection(folder: Path, split: str, share: float, rest: str, dev: str) -> Parts:
    """Write the two parts of a split as qrels/REST.tsv and qrels/DEV.tsv."""
    if not (folder / "qrels" / f"{split}.tsv").is_file():
        raise CorpusError(
            f"{folder / 'qrels' / split}.tsv is not there; only a collection in BEIR's format can "
            "be split, by the name of one of its splits."
        )
    if rest == dev or split in (rest, dev):
        raise CorpusError(
            f"the splits {split}, {rest} and {dev} need different names; choose others."
        )
    parts = split_qrels(load_dataset(str(folder), split).qrels, share)
    contents = {}
    for name, qrels in zip((rest, dev), parts, strict=True):
        if not qrels:
            raise CorpusError(
                f"{folder}: nothing is left for the split {name}; choose another share."
            )
        lines = [f"{qrel.query_id}\t{qrel.document_id}\t{qrel.relevance}" for qrel in qrels]
        contents[folder / "qrels" / f"{name}.tsv"] = "\n".join([HEADER, *lines, ""]).encode()
    for path, content in contents.items():
        if path.exists() and path.read_bytes() != content:
            raise CorpusError(f"{path} has other judgements; remove it, or choose another name.")
    for path, content in contents.items():
        write_atomically(path, content)
    return parts
