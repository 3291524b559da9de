"""The one class that users meet: an index folder and the model that goes with it.

index = Index.create("my-index")
index.add([Document("a", "Paris is the capital of France.")])
index.search("What is France's capital?").hits[0].id
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from pseudoquery.corpus import OnBad, check_document
from pseudoquery.errors import CorpusError, ModelError, QueryError
from pseudoquery.filters import Where
from pseudoquery.hybrid import FUSIONS, Fusion, fuse, match_expression
from pseudoquery.records import Answer, Document, Explanation, Hit
from pseudoquery.representation import Representation
from pseudoquery.store import Settings, Snapshot, Store
from pseudoquery.writer import Writer, document_checksum

if TYPE_CHECKING:
    from sentence_transformers import MultiVectorEncoder

    from pseudoquery.candidates import Structures

Mode = Literal["dense", "bm25", "hybrid"]
MODES: tuple[str, ...] = get_args(Mode)

BATCH_DOCUMENTS, BATCH_CHARACTERS = 64, 250_000
"""Documents are encoded and committed in batches of at most this size."""


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How a search is carried out; the defaults suit most users."""

    structure: str = "auto"
    """The first step: flat, flat8, hnsw, hnsw8, ivf, ivf8, or chosen by size."""
    recall: int = 200
    """How many documents the first step recalls, at least (R of the paper)."""
    recall_vectors: int | None = None
    """Recall a number of vectors instead, such as the paper's 1000*k."""
    fusion: Fusion = "rrf"
    weight: float = 0.5
    """The dense ranking's part in a weighted fusion."""
    fusion_depth: int = 100
    """How many documents of each ranking are fused."""


@dataclass(frozen=True, slots=True)
class Added:
    """What an `add` did, document by document."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    cut: int = 0
    """Documents of which only the beginning was encoded, because truncation was asked for."""

    @property
    def total(self) -> int:
        """How many documents were given."""
        return self.added + self.updated + self.unchanged


class Index:
    """Documents that can be searched by the questions they answer."""

    def __init__(self, store: Store, model: str | MultiVectorEncoder | None = None) -> None:
        self.store = store
        self._given = model

    @classmethod
    def create(
        cls,
        folder: str | Path,
        *,
        model: str | MultiVectorEncoder = "default",
        representation: Representation | None = None,
        long: Literal["windows", "truncate"] = "windows",
        vector_type: Literal["float16", "float32"] = "float16",
        notes: Mapping[str, str] | None = None,
    ) -> Index:
        """Make a new, empty index; notes are for the store to remember."""
        from pseudoquery.model import fingerprint, representation_of

        if representation is not None and not isinstance(model, str):
            raise ModelError(
                "a model that is in memory has its representation already; "
                "give it to load_model(name, representation) instead."
            )
        if isinstance(model, str) and Path(model).is_dir():
            model = str(Path(model).resolve())
        loaded = _loaded(model, representation)
        settings = Settings(
            model=model if isinstance(model, str) else "",
            fingerprint=fingerprint(loaded),
            dimension=_dimension(loaded),
            representation=representation_of(loaded).settings(),
            long=long,
            vector_type=vector_type,
        )
        return cls(Store.create(Path(folder), settings, notes), loaded)

    @classmethod
    def open(cls, folder: str | Path, *, model: str | MultiVectorEncoder | None = None) -> Index:
        """Open an index; its model is loaded when it is first needed."""
        return cls(Store.open(Path(folder)), model)

    @property
    def folder(self) -> Path:
        """Where the index is."""
        return self.store.folder

    @property
    def settings(self) -> Settings:
        """What the index was made with."""
        return self.store.settings

    @cached_property
    def representation(self) -> Representation:
        """How documents and queries become vectors here."""
        return Representation(**self.settings.representation)

    @cached_property
    def model(self) -> MultiVectorEncoder:
        """The encoder; it must be the one that the index was made with."""
        from pseudoquery.model import fingerprint

        name = self._given if self._given is not None else self.settings.model
        if not name:
            raise ModelError(
                f"{self.folder} was made with a model that was in memory; "
                "give it to Index.open(folder, model=...)."
            )
        loaded = _loaded(name, self.representation if isinstance(name, str) else None)
        if fingerprint(loaded) != self.settings.fingerprint:
            given = repr(name) if isinstance(name, str) else "the one that was given"
            raise ModelError(
                f"{self.folder} was made with another model than {given} is now; "
                "use the original one, or build the index again."
            )
        return loaded

    def __len__(self) -> int:
        with self.store.snapshot() as snapshot:
            return snapshot.count()

    def add(self, documents: Iterable[Document]) -> Added:
        """Add documents, replacing those whose id is known; what has returned is safely on disk."""
        total = Added()
        for batch in self.add_in_batches(documents):
            total = _sum(total, batch)
        return total

    def add_in_batches(
        self, documents: Iterable[Document], *, on_duplicate: OnBad | None = None
    ) -> Iterator[Added]:
        """Add documents as they come, yielding after each batch that has been committed.

        With `on_duplicate`, an id that another document already has is not an update: the callback
        gets an error, which it may raise; if it does not, the document is left out.
        """
        with self.store.writer() as writer:
            for batch in batches(documents):
                if on_duplicate is not None:
                    batch = _distinct(batch, writer, on_duplicate)
                yield self._add_batch(writer, batch)

    def add_vectors(
        self, documents: Sequence[Document], vectors: Sequence[NDArray[np.float32]]
    ) -> None:
        """Add documents whose vectors (k, dim) were made elsewhere, by the same model."""
        for document in documents:
            check_document(document)
        with self.store.writer() as writer:
            writer.add(documents, vectors)

    def delete(self, ids: Iterable[str]) -> list[str]:
        """Delete documents; returns the ids that were there."""
        if isinstance(ids, str):
            ids = [ids]
        with self.store.writer() as writer:
            return writer.delete(ids)

    def compact(self) -> None:
        """Give the space of deleted documents back."""
        with self.store.writer() as writer:
            writer.compact()

    def get(self, id: str) -> Document | None:  # noqa: A002
        """Return the document with this id."""
        with self.store.snapshot() as snapshot:
            stored = snapshot.get(id)
        return stored.document if stored else None

    def documents(self, where: Where | None = None) -> Iterator[Document]:
        """Go through the documents that satisfy a filter, in the order they were added."""
        with self.store.snapshot() as snapshot:
            for stored in snapshot.documents(where):
                yield stored.document

    def search(
        self,
        query: str,
        top: int = 10,
        *,
        where: Where | None = None,
        exact: bool = False,
        mode: Mode = "dense",
        settings: SearchSettings | None = None,
    ) -> Answer:
        """Find the best documents for one question."""
        return self.search_many(
            [query], top, where=where, exact=exact, mode=mode, settings=settings
        )[0]

    def search_many(
        self,
        queries: Sequence[str],
        top: int = 10,
        *,
        where: Where | None = None,
        exact: bool = False,
        mode: Mode = "dense",
        settings: SearchSettings | None = None,
    ) -> list[Answer]:
        """Find the best documents for each question, all encoded and compared together."""
        if isinstance(queries, str):
            queries = [queries]
        settings = settings or SearchSettings()
        _check_search(queries, top, mode, settings)
        if not queries:
            return []
        if mode == "bm25":
            with self.store.snapshot() as snapshot:
                return [_by_words(snapshot, query, top, where) for query in queries]
        from pseudoquery.encoding import encode_queries

        vectors = encode_queries(self.model, queries)
        with self.store.snapshot() as snapshot:
            depth = max(settings.fusion_depth, top) if mode == "hybrid" else top
            answers = self._by_vectors(
                snapshot, queries, vectors, depth, where=where, exact=exact, settings=settings
            )
            if mode == "dense":
                return answers
            return [
                _fused(answer, _by_words(snapshot, answer.query, depth, where), top, settings)
                for answer in answers
            ]

    def explain(self, query: str, id: str) -> Explanation:  # noqa: A002
        """Show which passages of a document make its pseudo queries, and how each one matches."""
        from pseudoquery.explain import explain

        _check_query(query)
        with self.store.snapshot() as snapshot:
            stored = snapshot.get(id)
        if stored is None:
            raise QueryError(f"{self.folder} has no document with the id {id!r}.")
        return explain(self.model, query, stored.document, self.settings.long)

    def info(self) -> dict[str, Any]:
        """Return facts about the index."""
        with self.store.snapshot() as snapshot:
            view = snapshot.view
            counts = np.diff(view.offsets)[view.live]
            vectors = int(counts.sum())
            documents = snapshot.count()
            segments = snapshot.segment_facts()
        return {
            "folder": str(self.folder),
            "documents": documents,
            "vectors": vectors,
            "without_vectors": int((counts == 0).sum()),
            "deleted_awaiting_compaction": int((~view.live).sum()),
            "segments": len(segments),
            "vector_bytes": sum(one.bytes for one in segments),
            "vector_bytes_per_document": round(
                vectors
                * self.settings.dimension
                * (2 if "16" in self.settings.vector_type else 4)
                / max(documents, 1)
            ),
            "bytes": sum(map(_size, self.folder.rglob("*"))),
            **asdict(self.settings),
        }

    def verify(self) -> list[str]:
        """Check everything that is on disk; returns one sentence for each thing that is wrong."""
        from pseudoquery.verify import problems

        return problems(self.store)

    def repair(self) -> int:
        """Make damaged or missing vectors anew from the documents; returns how many documents."""
        from pseudoquery.verify import repair

        return repair(self.store, self.encode)

    def encode(self, documents: Sequence[Document]) -> tuple[list[NDArray[np.float32]], int]:
        """Make the vectors of documents as this index does; also count those that were cut."""
        from pseudoquery.encoding import document_text, encode_texts

        texts = [document_text(document)[0] for document in documents]
        long: Any = self.settings.long
        encoded = encode_texts(self.model, texts, "document", long)
        return [one.vectors for one in encoded], sum(one.cut for one in encoded)

    @cached_property
    def _structures(self) -> Structures:
        from pseudoquery.candidates import Structures

        return Structures(self.folder)

    def _add_batch(self, writer: Writer, batch: list[Document]) -> Added:
        for document in batch:
            check_document(document)
        known = writer.known(document.id for document in batch)
        checksums = {id_: checksum for id_, (checksum, _) in known.items()}
        changed: dict[str, Document] = {}
        updated = unchanged = 0
        for document in batch:
            checksum = document_checksum(document)
            if checksums.get(document.id) == checksum:
                unchanged += 1
                continue
            updated += document.id in checksums
            checksums[document.id] = checksum
            changed[document.id] = document
        vectors, cut = self.encode(list(changed.values())) if changed else ([], 0)
        writer.add(list(changed.values()), vectors)
        return Added(len(batch) - updated - unchanged, updated, unchanged, cut)

    def _by_vectors(
        self,
        snapshot: Snapshot,
        queries: Sequence[str],
        vectors: list[NDArray[np.float32]],
        top: int,
        *,
        where: Where | None,
        exact: bool,
        settings: SearchSettings,
    ) -> list[Answer]:
        from pseudoquery.search import Depth, search

        view = snapshot.view
        if not view.vector_count:
            return [Answer(query, (), certified=True, candidates=0) for query in queries]
        allowed = None
        if where:
            allowed = np.zeros(len(view.ordinals), dtype=bool)
            allowed[np.searchsorted(view.ordinals, snapshot.matching(where))] = True
        rankings = search(
            view,
            self._structures.get(settings.structure, view),
            vectors,
            self.representation,
            top,
            depth=Depth(settings.recall, settings.recall_vectors),
            allowed=allowed,
            exact=exact,
        )
        return [
            Answer(
                query,
                tuple(self._hits(snapshot, asked, ranking.documents, ranking.scores)),
                ranking.certified,
                ranking.candidates,
            )
            for query, asked, ranking in zip(queries, vectors, rankings, strict=True)
        ]

    def _hits(
        self,
        snapshot: Snapshot,
        query: NDArray[np.float32],
        documents: NDArray[np.int64],
        scores: NDArray[np.float64],
    ) -> Iterator[Hit]:
        from pseudoquery.search import weights_of

        weights = weights_of(snapshot.view, query, documents, self.representation)
        for document, score, weight in zip(documents, scores, weights, strict=True):
            stored = snapshot.by_ordinal(int(snapshot.view.ordinals[document]))
            yield _hit(stored.document, float(score), weight)


def batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Group documents so that a batch fits into memory, whatever their lengths."""
    batch: list[Document] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += len(document.text) if isinstance(document.text, str) else 0
        if len(batch) == BATCH_DOCUMENTS or size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _size(path: Path) -> int:
    """Return the size of a file; a writer may have removed it since it was listed."""
    try:
        facts = path.stat()
    except FileNotFoundError:
        return 0
    return facts.st_size if stat.S_ISREG(facts.st_mode) else 0


def _loaded(
    model: str | MultiVectorEncoder, representation: Representation | None
) -> MultiVectorEncoder:
    if not isinstance(model, str):
        return model
    from pseudoquery.model import load_model

    return load_model(model, representation)


def _dimension(model: MultiVectorEncoder) -> int:
    from pseudoquery.encoding import encode_queries

    return int(encode_queries(model, ["dimension"])[0].shape[1])


def _sum(left: Added, right: Added) -> Added:
    return Added(
        *(
            mine + yours
            for mine, yours in zip(asdict(left).values(), asdict(right).values(), strict=True)
        )
    )


def _distinct(batch: list[Document], writer: Writer, on_duplicate: OnBad) -> list[Document]:
    """Leave out documents whose id is another's; the same one from an earlier run is no other.

    An earlier run may have named the file by another path: only its name and the line count.
    """
    places = {id_: place for id_, (_, place) in writer.known(one.id for one in batch).items()}
    kept = []
    for document in batch:
        place = places.setdefault(document.id, document.place)
        if document.place and Path(place).name == Path(document.place).name:
            kept.append(document)
        else:
            on_duplicate(
                CorpusError(
                    f"{document.place}: the id {document.id!r} was already used in {place}; "
                    "every document needs an id of its own."
                )
            )
    return kept


def _check_search(queries: Sequence[str], top: int, mode: str, settings: SearchSettings) -> None:
    for query in queries:
        _check_query(query)
    if not isinstance(top, int) or top < 1:
        raise QueryError(f"top is {top!r}; it must be an integer of at least 1.")
    if mode not in MODES:
        raise QueryError(f"there is no mode {mode!r}; choose one of {', '.join(MODES)}.")
    if settings.fusion not in FUSIONS:
        raise QueryError(
            f"there is no fusion {settings.fusion!r}; choose one of {', '.join(FUSIONS)}."
        )
    if not 0 <= settings.weight <= 1:
        raise QueryError(f"weight is {settings.weight!r}; it must be between 0 and 1.")
    for name in ("recall", "recall_vectors", "fusion_depth"):
        value = getattr(settings, name)
        if value is not None and value < 1:
            raise QueryError(f"{name} is {value!r}; it must be at least 1.")


def _check_query(query: str) -> None:
    if not isinstance(query, str):
        raise QueryError(f"a query must be text, not {type(query).__name__}.")
    if not query.strip().strip("\0"):
        raise QueryError("the query is empty; ask at least one word.")
    try:
        query.encode()
    except UnicodeEncodeError:
        raise QueryError("the query is not valid Unicode (it has a lone surrogate).") from None


def _by_words(snapshot: Snapshot, query: str, top: int, where: Where | None) -> Answer:
    match = match_expression(query)
    found = snapshot.fulltext(match, where, top) if match else []
    hits = [_hit(snapshot.by_ordinal(number).document, score) for number, score in found]
    return Answer(query, tuple(hits), certified=True, candidates=len(hits))


def _hit(document: Document, score: float, weights: Sequence[float] = ()) -> Hit:
    return Hit(document.id, score, document.title, document.text, document.metadata, tuple(weights))


def _fused(dense: Answer, words: Answer, top: int, settings: SearchSettings) -> Answer:
    """Fuse two answers; the dense hits come first among equals, and keep their weights."""
    hits: dict[str, Hit] = {hit.id: hit for hit in dense.hits}
    hits.update((hit.id, hit) for hit in words.hits if hit.id not in hits)
    numbers = {id_: number for number, id_ in enumerate(hits)}
    rankings: list[list[tuple[int, float]]] = [
        [(numbers[hit.id], hit.score) for hit in answer.hits] for answer in (dense, words)
    ]
    fused = fuse(rankings[0], rankings[1], settings.fusion, settings.weight)[:top]
    listed = list(hits.values())
    return Answer(
        dense.query,
        tuple(replace(listed[number], score=score) for number, score in fused),
        dense.certified,
        dense.candidates,
    )
