"""Documents as rows of a Milvus collection, and back.

    document    the id
    version     a number that grows: which writing of this document the row belongs to; the time,
                or, where a cluster has built the index, the document's place in the corpus
    place, rows which of how many rows of that version it is
    is_vector   whether `vector` is one of the document's, or only fills the place
    length      of the vector; the longest one bounds the rounding of any dot product
    facets      the metadata, in the form that filters are asked of
    content     a piece of the document as JSON; the rows' pieces, in order, are the whole
    vector      a pseudo query embedding, in single precision

Milvus has no transactions over rows. So a document is what its newest *complete* version says: a
new version is inserted whole before the old one is deleted, and whatever a writer that died has
left behind is not seen, and goes with the next change of that document. One row without an id, at
place -1, holds the settings; rows at lower places are notes of a build that is not finished.

This is the only module that imports pymilvus.
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

from pseudoquery.errors import CorpusError, IndexFolderError, QueryError
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
    StoredDocument,
    both_expressions,
    documents_expression,
    in_groups,
    note_expression,
    split_content,
)
from pseudoquery.records import Document
from pseudoquery.storage.filters import Where
from pseudoquery.storage.schema import FORMAT, Settings, document_checksum
from pseudoquery.storage.segment_builder import make_segment
from pseudoquery.storage.segments import VECTOR_TYPES
from pseudoquery.storage.snapshot import Stored
from pseudoquery.storage.vector_view import VectorView

MilvusIndexType = Literal["FLAT", "HNSW", "IVF_FLAT"]
MILVUS_INDEX_TYPES: tuple[str, ...] = get_args(MilvusIndexType)
LARGEST_SEARCH = 16_384
"""More vectors than this Milvus does not return for a query."""
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
    """What the engine found for one query vector: dots in falling order, and whose they are."""

    ids: list[str]
    dots: list[float]


class Collection:
    """A collection in Milvus that holds an index; every method that returns has been committed."""

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
        """Make a new, empty collection; notes are remembered from the start."""
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
            made = cls(client, address, settings, first_step)
            made.insert_rows([*map(made._note_row, (notes or {}).items()), made._settings_row()])
        return made

    @classmethod
    def is_there(cls, address: str, token: str = "") -> bool:
        """Say whether there is such a collection."""
        server, name = split_address(address)
        with milvus_errors(address):
            return bool(connect(server, token).has_collection(name, timeout=TIMEOUT))

    @classmethod
    def open(cls, address: str, token: str = "") -> Collection:
        """Open a collection that is there."""
        server, name = split_address(address)
        with milvus_errors(address):
            client = connect(server, token)
            if not client.has_collection(name, timeout=TIMEOUT):
                raise IndexFolderError(
                    f"{server} has no collection {name!r}; make it with `pseudoquery index` or "
                    "MilvusIndex.create."
                )
            schema = client.describe_collection(name, timeout=TIMEOUT)
            types = {one["name"]: one["params"] for one in schema["fields"]}
            if not {*DOCUMENT_FIELDS, "length", "facets", "vector"} <= types.keys():
                raise not_our_collection(address)
            index = client.describe_index(name, "vector", timeout=TIMEOUT) or {}
            client.load_collection(name, timeout=TIMEOUT)
            found = cls(client, address, Settings("", "", 0, {}), str(index.get("index_type")))
            found.settings = found._read_settings()
        dimension = int(types["vector"]["dim"])
        if (found.settings.dimension, index.get("metric_type")) != (dimension, "IP"):
            raise IndexFolderError(
                f"the vectors of {address} have {dimension} dimensions and are compared by "
                f"{index.get('metric_type')}; they should have {found.settings.dimension}, and be "
                "compared by IP; build the index again under another name."
            )
        return found

    @property
    def folder(self) -> str:
        """Where the index is; the name is the one that a store on disk uses."""
        return self.address

    @property
    def exhaustive(self) -> bool:
        """Whether the engine compares with every vector, so that what it leaves out is smaller."""
        return self.first_step == "FLAT"

    @contextmanager
    def snapshot(self) -> Iterator[Collection]:
        """Read what has been acknowledged so far; Milvus keeps no older state to go back to."""
        with milvus_errors(self.address):
            yield self

    bare_snapshot = snapshot  # there are no vectors that a reader of documents could do without

    @contextmanager
    def writer(self) -> Iterator[Collection]:
        """Change documents. There may be many writers: the newest version of a document counts."""
        with milvus_errors(self.address):
            yield self

    @property
    def view(self) -> VectorView:
        """Refuse: all vectors at once are what a folder has, and the engine does not give."""
        raise QueryError("an index in Milvus has no such comparison.")

    def count(self) -> int:
        """Count documents, by their first rows; one that is being replaced may count twice."""
        return self._count("place == 0")

    def count_vectors(self, expression: str = "") -> int:
        """Count vectors."""
        return self._count(both_expressions("is_vector == true", expression))

    def get(self, id: str) -> Stored | None:  # noqa: A002
        """Find a document by its id."""
        found = self.read([id], vectors=False).get(id)
        return found.stored if found else None

    def documents(self, where: Where | None = None) -> Iterator[Stored]:
        """Read all documents that satisfy a filter, in the order in which they were added."""
        for block in self.blocks(where, vectors=False):
            yield from (kept.stored for kept in block)

    def blocks(
        self, where: Where | None = None, *, vectors: bool = True
    ) -> Iterator[list[StoredDocument]]:
        """Read the documents that satisfy a filter, some at a time, in order."""
        first_rows = self.rows(
            both_expressions("place == 0", narrowing(where)), ["document", "version"]
        )
        newest: dict[str, int] = {}
        for row in first_rows:
            newest[row["document"]] = max(row["version"], newest.get(row["document"], 0))
        in_order = sorted(newest, key=lambda id_: (newest[id_], id_))
        for ids in in_groups(in_order, IDS_AT_ONCE):
            found = self.read(ids, vectors=vectors)
            allowed = satisfying(where, [kept.stored.document for kept in found.values()])
            yield sorted((found[id_] for id_ in allowed), key=lambda kept: kept.order)

    def read(self, ids: Iterable[str], *, vectors: bool = True) -> dict[str, StoredDocument]:
        """Read the documents with these ids, those that are there."""
        wanted = [*DOCUMENT_FIELDS, "vector"] if vectors else DOCUMENT_FIELDS
        return {kept.stored.document.id: kept for kept in self._complete(ids, wanted)}

    def versions(self, ids: Iterable[str]) -> Iterator[Stored]:
        """Read all versions of the documents with these ids; the newest of each is the last."""
        return (kept.stored for kept in self._complete(ids, DOCUMENT_FIELDS))

    def search(
        self, queries: NDArray[np.float32], number: int, expression: str = ""
    ) -> list[NearestRows]:
        """Find the `number` largest dot products for each query vector."""
        depth = {"HNSW": {"ef": max(2 * number, 128)}, "IVF_FLAT": {"nprobe": 128}}
        found = []
        for some in in_groups(queries.tolist(), QUERIES_AT_ONCE):
            answers = self._client.search(
                self._name,
                data=list(some),
                anns_field="vector",
                filter=both_expressions("is_vector == true", expression),
                limit=number,
                output_fields=["document"],
                search_params={"metric_type": "IP", "params": depth.get(self.first_step, {})},
                consistency_level="Strong",
                timeout=TIMEOUT,
            )
            found += [
                NearestRows(
                    [hit["entity"]["document"] for hit in hits], [hit["distance"] for hit in hits]
                )
                for hits in answers
            ]
        return found

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

    def known(self, ids: Iterable[str]) -> dict[str, tuple[bytes, str]]:
        """Look up the checksum and place of those documents that are already there."""
        found = self.read(ids, vectors=False)
        return {
            id_: (kept.stored.checksum, kept.stored.document.origin) for id_, kept in found.items()
        }

    def add(self, documents: Sequence[Document], vectors: Sequence[NDArray[np.float32]]) -> None:
        """Add documents (with distinct ids) and their vectors; one with a known id is replaced."""
        for batch in in_groups(zip(documents, vectors, strict=True), IDS_AT_ONCE):
            ids = [document.id for document, _ in batch]
            known = list(self.rows(documents_expression(ids), ["version"]))
            # A clock may have been set back: a new version must be newer than any that is there.
            first = max([time.time_ns(), *(row["version"] + 1 for row in known)])
            rows: list[dict[str, Any]] = []
            for number, (document, own) in enumerate(batch):
                rows += self.rows_of(document, own, first + number)
            self.insert_rows(rows)
            if known:
                self.delete_rows(both_expressions(documents_expression(ids), f"version < {first}"))

    def delete(self, ids: Iterable[str]) -> list[str]:
        """Delete documents; returns the ids that were there."""
        ids = list(dict.fromkeys(ids))
        there = self.read(ids, vectors=False)
        for some in in_groups(ids, IDS_AT_ONCE):
            self.delete_rows(documents_expression(some))
        return [id_ for id_ in ids if id_ in there]

    def remembered(self, name: str) -> str | None:
        """Return the note of this name."""
        row = next(self.rows(note_expression(name), ["content"]), None)
        return None if row is None else str(row["content"])

    def forget(self, name: str) -> None:
        """Forget the note of this name."""
        self.delete_rows(note_expression(name))

    def compact(self) -> None:
        """Let the engine give the space of deleted rows back."""
        self._client.compact(self._name, timeout=TIMEOUT)

    def rows(self, expression: str, output: list[str]) -> Iterator[dict[str, Any]]:
        """Read rows, however many there are."""
        asked: dict[str, Any] = {
            "collection_name": self._name,
            "filter": expression,
            "output_fields": output,
            "consistency_level": "Strong",
            "timeout": TIMEOUT,
        }
        # Few come at once; an iterator asks several times, and each time waits for the engine.
        few = self._client.query(limit=FEW_ROWS, **asked)
        if len(few) < FEW_ROWS:
            yield from few
            return
        pages = self._client.query_iterator(batch_size=ROWS_AT_ONCE, **asked)
        try:
            while page := pages.next():
                yield from page
        finally:
            pages.close()

    def insert_rows(self, rows: Sequence[dict[str, Any]]) -> None:
        """Write rows, some in each request."""
        for some in in_groups(rows, ROWS_AT_ONCE):
            self._client.insert(self._name, list(some), timeout=TIMEOUT)

    def delete_rows(self, expression: str) -> None:
        """Delete the rows that an expression describes."""
        self._client.delete(self._name, filter=expression, timeout=TIMEOUT)

    def rows_of(
        self, document: Document, vectors: NDArray[np.float32], version: int
    ) -> list[dict[str, Any]]:
        """Write a document as rows."""
        self._check(document)
        own = self._rounded(vectors)
        pieces = split_content(document)
        count = max(len(own), len(pieces))
        filled = np.zeros((count, self.settings.dimension), dtype=np.float32)
        filled[: len(own)] = own
        lengths = np.linalg.norm(filled.astype(np.float64), axis=1)
        return [
            {
                "document": document.id,
                "version": version,
                "place": place,
                "rows": count,
                "is_vector": place < len(own),
                "length": float(lengths[place]),
                "facets": facets(document.metadata),
                "content": pieces[place] if place < len(pieces) else "",
                "vector": filled[place].tolist(),
            }
            for place in range(count)
        ]

    def bare_row(
        self, place: int, name: str = "", *, version: int = 0, content: str = ""
    ) -> dict[str, Any]:
        """Write something that is no document as a row."""
        return {
            "document": name,
            "version": version,
            "place": place,
            "rows": 1,
            "is_vector": False,
            "length": 0.0,
            "facets": {},
            "content": content,
            "vector": [0.0] * self.settings.dimension,
        }

    def _settings_row(self) -> dict[str, Any]:
        return self.bare_row(SETTINGS_ROW, content=json.dumps(asdict(self.settings)))

    def _note_row(self, note: tuple[str, str]) -> dict[str, Any]:
        name, content = note
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
        return Settings(**{field.name: saved[field.name] for field in fields(Settings)})

    def _check(self, document: Document) -> None:
        where = document.origin or f"document {document.id!r}"
        if (size := len(document.id.encode())) > ID_BYTES:
            raise CorpusError(f"{where}: the id has {size} bytes; Milvus gets at most {ID_BYTES}.")
        if (size := len(json.dumps(facets(document.metadata)))) > FACET_BYTES:
            raise CorpusError(
                f"{where}: the metadata takes {size} bytes in filters; "
                f"Milvus gets at most {FACET_BYTES}."
            )

    def _rounded(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Round vectors as an index folder of the same settings does, so that scores are equal."""
        nothing = np.zeros(0, dtype=np.int64)
        dtype = VECTOR_TYPES[self.settings.vector_type]
        shaped = vectors.reshape(-1, self.settings.dimension)
        return make_segment(shaped, nothing, nothing, dtype).decoded()

    def _complete(self, ids: Iterable[str], output: list[str]) -> Iterator[StoredDocument]:
        """Put documents together from their rows: all versions that are complete, older first."""
        for some in in_groups(ids, IDS_AT_ONCE):
            versions: dict[tuple[int, str], dict[int, Mapping[str, Any]]] = defaultdict(dict)
            for row in self.rows(documents_expression(some), output):
                # A request that was sent twice, because its answer was lost, leaves rows twice.
                versions[row["version"], row["document"]][row["place"]] = row
            for (version, id_), own in sorted(versions.items()):
                if len(own) == own[min(own)]["rows"]:
                    yield self._kept(version, id_, [own[place] for place in sorted(own)])

    def _kept(self, version: int, id_: str, rows: Sequence[Mapping[str, Any]]) -> StoredDocument:
        title, text, metadata, place = json.loads("".join(row["content"] for row in rows))
        document = Document(id_, text, title, metadata, place)
        vectors = [row["vector"] for row in rows if row["is_vector"] and "vector" in row]
        return StoredDocument(
            Stored(version, document, document_checksum(document)),
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
    kind = pymilvus().DataType
    schema = client.create_schema(auto_id=True, enable_dynamic_field=False)
    schema.add_field("row", kind.INT64, is_primary=True)
    schema.add_field("document", kind.VARCHAR, max_length=ID_BYTES)
    for field in ("version", "place", "rows"):
        schema.add_field(field, kind.INT64)
    schema.add_field("is_vector", kind.BOOL)
    schema.add_field("length", kind.DOUBLE)
    schema.add_field("facets", kind.JSON)
    schema.add_field("content", kind.VARCHAR, max_length=65_535)
    schema.add_field("vector", kind.FLOAT_VECTOR, dim=dimension)
    index = client.prepare_index_params()
    index.add_index("vector", index_type=first_step, metric_type="IP", params=_BUILD[first_step])
    client.create_collection(
        name,
        schema=schema,
        index_params=index,
        consistency_level="Strong",
        timeout=TIMEOUT,
    )
