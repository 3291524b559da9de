"""Documents as rows of a Milvus collection, and back.

    document    the id
    version     a number that grows: which writing of this document the row belongs to; the time,
                or, where a cluster has built the index, the document's position in the corpus
    place       the row's position among the rows of that version
    rows        how many rows that version has
    is_vector   whether `vector` is one of the document's, or only fills the field
    length      of the vector; the longest one bounds the rounding of any dot product
    facets      the metadata, in the form that filters compare
    content     a piece of the document as JSON; the rows' pieces, in order, are the whole
    vector      a pseudo query embedding, in single precision

Milvus has no transactions over rows. So a document is what its newest *complete* version says: a
new version is inserted whole before the old one is deleted, and whatever a writer that died has
left behind is not seen, and goes with the next change of that document. One row without an id, at
position -1, holds the settings; rows at lower positions are notes of a build that is not finished.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from pseudoquery.errors import CorpusError, IndexFolderError
from pseudoquery.method.encoded import DocumentVectors
from pseudoquery.milvus.connection import (
    TIMEOUT,
    connect,
    milvus_errors,
    not_our_collection,
    pymilvus,
    split_address,
)
from pseudoquery.milvus.filters import facets, narrowing, satisfying
from pseudoquery.milvus.rows import (
    DOCUMENT_FIELDS,
    NOTE_ROW,
    SETTINGS_ROW,
    EncodedDocument,
    both_expressions,
    documents_expression,
    in_groups,
    note_expression,
    split_content,
)
from pseudoquery.records import Document
from pseudoquery.storage.filters import Where
from pseudoquery.storage.protocols import KnownDocument, StoredDocument
from pseudoquery.storage.schema import FORMAT, Settings, document_checksum
from pseudoquery.storage.segment_builder import make_segment
from pseudoquery.storage.segments import VECTOR_TYPES

MilvusIndexType = Literal["FLAT", "HNSW", "IVF_FLAT"]
MILVUS_INDEX_TYPES: tuple[str, ...] = get_args(MilvusIndexType)
LARGEST_SEARCH = 16_384
"""Milvus returns at most so many vectors for a query."""
ROWS_AT_ONCE, FEW_ROWS, QUERIES_AT_ONCE = 1024, 8192, 64
IDS_AT_ONCE = 500
"""Documents in one request; with 16 vectors each, their rows are still few."""
ID_BYTES, FACET_BYTES = 1024, 60_000
_BUILD: dict[str, dict[str, int]] = {
    "FLAT": {},
    "HNSW": {"M": 32, "efConstruction": 200},
    "IVF_FLAT": {"nlist": 1024},
}


class NearestRows(NamedTuple):
    """The nearest rows to one query vector: their dots, falling, and their documents' ids."""

    ids: list[str]
    dots: list[float]


class Collection:
    """A collection in Milvus that holds an index: its store, its snapshot and its writer.

    What a method has done when it returns is committed.
    """

    engine = "Milvus"

    def __init__(self, client: Any, address: str, settings: Settings, first_step: str) -> None:
        self._client = client
        self._name = address.rpartition("/")[2]
        self.address = address
        self.settings = settings
        self.first_step = first_step
        self._norm = 1.0

    @classmethod
    def create(
        cls,
        address: str,
        settings: Settings,
        first_step: str = "FLAT",
        *,
        token: str = "",
        notes: Mapping[str, str] | None = None,
    ) -> Collection:
        """Make a new, empty collection; notes are short texts that are stored with it."""
        if first_step not in MILVUS_INDEX_TYPES:
            raise IndexFolderError(
                f"there is no first step {first_step!r}; "
                f"choose one of {', '.join(MILVUS_INDEX_TYPES)}."
            )
        if settings.vector_type not in VECTOR_TYPES:
            raise IndexFolderError(
                f"vector_type is {settings.vector_type!r}; choose one of {', '.join(VECTOR_TYPES)}."
            )
        server, name = split_address(address)
        with milvus_errors(address):
            client = connect(server, token)
            if client.has_collection(name, timeout=TIMEOUT):
                raise IndexFolderError(
                    f"{server} already has a collection {name!r}; open it, or choose another name."
                )
            _create(client, name, settings.dimension, first_step)
            collection = cls(client, address, settings, first_step)
            note_rows = [collection._note_row(*note) for note in (notes or {}).items()]
            collection.insert_rows([*note_rows, collection._settings_row()])
        return collection

    @classmethod
    def exists(cls, address: str, token: str = "") -> bool:
        """Say whether there is such a collection."""
        server, name = split_address(address)
        with milvus_errors(address):
            return bool(connect(server, token).has_collection(name, timeout=TIMEOUT))

    @classmethod
    def open(cls, address: str, token: str = "") -> Collection:
        """Open an existing collection."""
        server, name = split_address(address)
        with milvus_errors(address):
            client = connect(server, token)
            if not client.has_collection(name, timeout=TIMEOUT):
                raise IndexFolderError(
                    f"{server} has no collection {name!r}; make it with `pseudoquery index` or "
                    "MilvusIndex.create."
                )
            schema = client.describe_collection(name, timeout=TIMEOUT)
            types = {field["name"]: field["params"] for field in schema["fields"]}
            if not {*DOCUMENT_FIELDS, "length", "facets", "vector"} <= types.keys():
                raise not_our_collection(address)
            index = client.describe_index(name, "vector", timeout=TIMEOUT) or {}
            client.load_collection(name, timeout=TIMEOUT)
            unread = Settings("", "", 0, {})
            collection = cls(client, address, unread, str(index.get("index_type")))
            collection.settings = settings = collection._read_settings()
        dimension = int(types["vector"]["dim"])
        if (settings.dimension, index.get("metric_type")) != (dimension, "IP"):
            raise IndexFolderError(
                f"the vectors of {address} have {dimension} dimensions and are compared by "
                f"{index.get('metric_type')}; they should have {settings.dimension}, and be "
                "compared by IP; build the index again under another name."
            )
        return collection

    @property
    def location(self) -> str:
        """The address of the collection."""
        return self.address

    def facts(self) -> dict[str, Any]:
        """Count documents and vectors, and say how Milvus looks vectors up."""
        with self.snapshot():
            return {
                "address": self.address,
                "documents": self.count(),
                "vectors": self.count_vectors(),
                "first_step": self.first_step,
                "answers_can_be_proven": self.exhaustive,
            }

    @property
    def exhaustive(self) -> bool:
        """Whether the engine compares with every vector, so that what it leaves out is smaller."""
        return self.first_step == "FLAT"

    @contextmanager
    def snapshot(self) -> Iterator[Collection]:
        """Read what has been acknowledged so far; Milvus has no older state to go back to."""
        with milvus_errors(self.address):
            yield self

    bare_snapshot = snapshot  # there are no vectors that a reader of documents could do without

    @contextmanager
    def writer(self) -> Iterator[Collection]:
        """Change documents. There may be many writers: the newest version of a document counts."""
        with milvus_errors(self.address):
            yield self

    def count(self) -> int:
        """Count documents, by their first rows; one that is being replaced may count twice."""
        return self._count("place == 0")

    def count_vectors(self, expression: str = "") -> int:
        """Count vectors."""
        return self._count(both_expressions("is_vector == true", expression))

    def get(self, id: str) -> StoredDocument | None:  # noqa: A002
        """Find a document by its id."""
        encoded = self.read([id], vectors=False).get(id)
        return encoded.stored if encoded else None

    def encoded(self, stored: StoredDocument) -> None:
        """Return None: a collection stores no tokens."""

    def documents(self, where: Where | None = None) -> Iterator[StoredDocument]:
        """Read all documents that satisfy a filter, in the order in which they were added."""
        for block in self.blocks(where, vectors=False):
            yield from (encoded.stored for encoded in block)

    def blocks(
        self, where: Where | None = None, *, vectors: bool = True
    ) -> Iterator[list[EncodedDocument]]:
        """Read the documents that satisfy a filter, some at a time, in order."""
        first_rows = self.rows(
            both_expressions("place == 0", narrowing(where)), ["document", "version"]
        )
        newest: dict[str, int] = {}
        for row in first_rows:
            newest[row["document"]] = max(row["version"], newest.get(row["document"], 0))
        in_order = sorted(newest, key=lambda id_: (newest[id_], id_))
        for ids in in_groups(in_order, IDS_AT_ONCE):
            encoded = self.read(ids, vectors=vectors)
            documents = [document.stored.document for document in encoded.values()]
            allowed = satisfying(where, documents)
            yield sorted((encoded[id_] for id_ in allowed), key=lambda document: document.order)

    def read(self, ids: Iterable[str], *, vectors: bool = True) -> dict[str, EncodedDocument]:
        """Read those documents with these ids that the collection has."""
        output = [*DOCUMENT_FIELDS, "vector"] if vectors else DOCUMENT_FIELDS
        return {encoded.stored.document.id: encoded for encoded in self._complete(ids, output)}

    def versions(self, ids: Iterable[str]) -> Iterator[StoredDocument]:
        """Read all versions of the documents with these ids; the newest of each is the last."""
        return (encoded.stored for encoded in self._complete(ids, DOCUMENT_FIELDS))

    def search(
        self, queries: NDArray[np.float32], limit: int, expression: str = ""
    ) -> list[NearestRows]:
        """Find the `limit` largest dot products for each query vector."""
        depth = {"HNSW": {"ef": max(2 * limit, 128)}, "IVF_FLAT": {"nprobe": 128}}
        nearest = []
        for group in in_groups(queries.tolist(), QUERIES_AT_ONCE):
            answers = self._client.search(
                self._name,
                data=list(group),
                anns_field="vector",
                filter=both_expressions("is_vector == true", expression),
                limit=limit,
                output_fields=["document"],
                search_params={"metric_type": "IP", "params": depth.get(self.first_step, {})},
                consistency_level="Strong",
                timeout=TIMEOUT,
            )
            nearest += [
                NearestRows(
                    [hit["entity"]["document"] for hit in hits], [hit["distance"] for hit in hits]
                )
                for hits in answers
            ]
        return nearest

    def norm(self) -> float:
        """Return a length that no vector exceeds."""
        # Milvus has no maximum, but can say whether anything is longer; mostly nothing is.
        longer = True
        while longer:
            longer = self._client.query(
                self._name,
                filter=f"length > {self._norm!r}",
                output_fields=["length"],
                limit=ROWS_AT_ONCE,
                consistency_level="Strong",
                timeout=TIMEOUT,
            )
            self._norm = max([self._norm, *(row["length"] for row in longer)])
        return self._norm

    def known(self, ids: Iterable[str]) -> dict[str, KnownDocument]:
        """Look up which of these documents are stored."""
        return {
            id_: KnownDocument(encoded.stored.checksum, encoded.stored.document.origin)
            for id_, encoded in self.read(ids, vectors=False).items()
        }

    def add(self, documents: Sequence[Document], vectors: Sequence[DocumentVectors]) -> None:
        """Add documents with distinct ids, and their vectors; a known id is replaced."""
        for batch in in_groups(zip(documents, vectors, strict=True), IDS_AT_ONCE):
            ids = [document.id for document, _ in batch]
            old_rows = list(self.rows(documents_expression(ids), ["version"]))
            # A clock may have been set back: a new version must be newer than any that is stored.
            first = max([time.time_ns(), *(row["version"] + 1 for row in old_rows)])
            rows: list[dict[str, Any]] = []
            for version, (document, encoded) in enumerate(batch, first):
                rows += self.rows_of(document, encoded.vectors, version)
            self.insert_rows(rows)
            if old_rows:
                self.delete_rows(both_expressions(documents_expression(ids), f"version < {first}"))

    def delete(self, ids: Iterable[str]) -> list[str]:
        """Delete documents; returns the ids that were stored."""
        ids = list(dict.fromkeys(ids))
        stored = self.read(ids, vectors=False)
        for group in in_groups(ids, IDS_AT_ONCE):
            self.delete_rows(documents_expression(group))
        return [id_ for id_ in ids if id_ in stored]

    def note(self, name: str) -> str | None:
        """Return the note of this name, such as the source of an unfinished build."""
        row = next(self.rows(note_expression(name), ["content"]), None)
        return None if row is None else str(row["content"])

    def forget(self, name: str) -> None:
        """Remove the note of this name."""
        self.delete_rows(note_expression(name))

    def compact(self) -> None:
        """Let the engine give the space of deleted rows back."""
        self._client.compact(self._name, timeout=TIMEOUT)

    def rows(self, expression: str, output: list[str]) -> Iterator[dict[str, Any]]:
        """Read rows, however many there are."""
        request: dict[str, Any] = {
            "collection_name": self._name,
            "filter": expression,
            "output_fields": output,
            "consistency_level": "Strong",
            "timeout": TIMEOUT,
        }
        # Few come at once; an iterator asks several times, and each time waits for the engine.
        few = self._client.query(limit=FEW_ROWS, **request)
        if len(few) < FEW_ROWS:
            yield from few
            return
        pages = self._client.query_iterator(batch_size=ROWS_AT_ONCE, **request)
        try:
            while page := pages.next():
                yield from page
        finally:
            pages.close()

    def insert_rows(self, rows: Sequence[dict[str, Any]]) -> None:
        """Write rows, some in each request."""
        for group in in_groups(rows, ROWS_AT_ONCE):
            self._client.insert(self._name, list(group), timeout=TIMEOUT)

    def delete_rows(self, expression: str) -> None:
        """Delete the rows that an expression describes."""
        self._client.delete(self._name, filter=expression, timeout=TIMEOUT)

    def rows_of(
        self, document: Document, vectors: NDArray[np.float32], version: int
    ) -> list[dict[str, Any]]:
        """Write a document as rows."""
        self._check(document)
        rounded = self._round(vectors)
        pieces = split_content(document)
        count = max(len(rounded), len(pieces))
        filled = np.zeros((count, self.settings.dimension), dtype=np.float32)
        filled[: len(rounded)] = rounded
        lengths = np.linalg.norm(filled.astype(np.float64), axis=1)
        return [
            {
                "document": document.id,
                "version": version,
                "place": position,
                "rows": count,
                "is_vector": position < len(rounded),
                "length": float(lengths[position]),
                "facets": facets(document.metadata),
                "content": pieces[position] if position < len(pieces) else "",
                "vector": filled[position].tolist(),
            }
            for position in range(count)
        ]

    def bare_row(
        self, position: int, name: str = "", *, version: int = 0, content: str = ""
    ) -> dict[str, Any]:
        """Write something that is no document as a row; its position says what it is."""
        return {
            "document": name,
            "version": version,
            "place": position,
            "rows": 1,
            "is_vector": False,
            "length": 0.0,
            "facets": {},
            "content": content,
            "vector": [0.0] * self.settings.dimension,
        }

    def _settings_row(self) -> dict[str, Any]:
        return self.bare_row(SETTINGS_ROW, content=json.dumps(asdict(self.settings)))

    def _note_row(self, name: str, content: str) -> dict[str, Any]:
        return self.bare_row(NOTE_ROW, name, content=content)

    def _read_settings(self) -> Settings:
        row = next(self.rows(f"place == {SETTINGS_ROW}", ["content"]), None)
        if row is None:
            raise not_our_collection(self.address)
        saved = json.loads(row["content"])
        if saved["format"] > FORMAT:
            raise IndexFolderError(
                f"{self.address} has format {saved['format']}, and this version reads up to "
                f"{FORMAT}; upgrade with: pip install -U pseudoquery"
            )
        known = [field.name for field in fields(Settings)]
        return Settings(**{name: saved[name] for name in known if name in saved})

    def _check(self, document: Document) -> None:
        origin = document.origin or f"document {document.id!r}"
        if (size := len(document.id.encode())) > ID_BYTES:
            raise CorpusError(
                f"{origin}: the id has {size} bytes; Milvus takes at most {ID_BYTES}."
            )
        if (size := len(json.dumps(facets(document.metadata)))) > FACET_BYTES:
            raise CorpusError(
                f"{origin}: the metadata takes {size} bytes in filters; "
                f"Milvus takes at most {FACET_BYTES}."
            )

    def _round(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Round vectors as an index folder of the same settings does, so that scores are equal."""
        nothing = np.zeros(0, dtype=np.int64)
        dtype = VECTOR_TYPES[self.settings.vector_type]
        shaped = vectors.reshape(-1, self.settings.dimension)
        return make_segment(shaped, nothing, nothing, dtype).decoded()

    def _complete(self, ids: Iterable[str], output: list[str]) -> Iterator[EncodedDocument]:
        """Put documents together from their rows: all versions that are complete, older first."""
        for group in in_groups(ids, IDS_AT_ONCE):
            versions: dict[tuple[int, str], dict[int, Mapping[str, Any]]] = defaultdict(dict)
            for row in self.rows(documents_expression(group), output):
                # A request that was sent twice, because its answer was lost, leaves rows twice.
                versions[row["version"], row["document"]][row["place"]] = row
            for (version, id_), rows in sorted(versions.items()):
                if len(rows) == rows[min(rows)]["rows"]:
                    in_order = [rows[position] for position in sorted(rows)]
                    yield self._join_rows(version, id_, in_order)

    def _join_rows(
        self, version: int, id_: str, rows: Sequence[Mapping[str, Any]]
    ) -> EncodedDocument:
        title, text, metadata, origin = json.loads("".join(row["content"] for row in rows))
        document = Document(id_, text, title, metadata, origin)
        vectors = [row["vector"] for row in rows if row["is_vector"] and "vector" in row]
        return EncodedDocument(
            StoredDocument(version, document, document_checksum(document)),
            np.array(vectors, dtype=np.float32).reshape(-1, self.settings.dimension),
        )

    def _count(self, expression: str) -> int:
        rows = self._client.query(
            self._name,
            filter=expression,
            output_fields=["count(*)"],
            consistency_level="Strong",
            timeout=TIMEOUT,
        )
        return int(rows[0]["count(*)"])


def _create(client: Any, name: str, dimension: int, first_step: str) -> None:
    types = pymilvus().DataType
    schema = client.create_schema(auto_id=True, enable_dynamic_field=False)
    schema.add_field("row", types.INT64, is_primary=True)
    schema.add_field("document", types.VARCHAR, max_length=ID_BYTES)
    for field in ("version", "place", "rows"):
        schema.add_field(field, types.INT64)
    schema.add_field("is_vector", types.BOOL)
    schema.add_field("length", types.DOUBLE)
    schema.add_field("facets", types.JSON)
    schema.add_field("content", types.VARCHAR, max_length=65_535)
    schema.add_field("vector", types.FLOAT_VECTOR, dim=dimension)
    index = client.prepare_index_params()
    index.add_index("vector", index_type=first_step, metric_type="IP", params=_BUILD[first_step])
    client.create_collection(
        name,
        schema=schema,
        index_params=index,
        consistency_level="Strong",
        timeout=TIMEOUT,
    )
