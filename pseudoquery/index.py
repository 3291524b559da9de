"""The one class that users meet: an index folder and the model that goes with it.

index = Index.create("my-index")
index.add([Document("a", "Paris is the capital of France.")])
index.search("What is France's capital?").hits[0].id
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pseudoquery.corpus.validation import check_document
from pseudoquery.errors import CorpusError, ModelError, OnBad, QueryError
from pseudoquery.method.representation import Representation
from pseudoquery.records import Added, Answer, Document, Explanation, Hit
from pseudoquery.search.rank import RankedOrdinals, RankRequest, rank_bm25, rank_dense, rank_hybrid
from pseudoquery.search.settings import Mode, SearchSettings, check_query, check_search
from pseudoquery.storage.filters import Where
from pseudoquery.storage.incoming import batch_documents, drop_duplicates
from pseudoquery.storage.schema import Settings, document_checksum
from pseudoquery.storage.segments import VECTOR_TYPES
from pseudoquery.storage.snapshot import Snapshot
from pseudoquery.storage.store import Store
from pseudoquery.storage.writer import Writer

if TYPE_CHECKING:
    from sentence_transformers import MultiVectorEncoder

    from pseudoquery.encoding.precision import Precision
    from pseudoquery.search.structures import Structures


class Index:
    """A folder of documents that can be searched by the questions they answer.

    Make one with `Index.create`, or open one with `Index.open`. Any number of processes can search
    an index at the same time, and one can change it.

    Examples:
        >>> index = Index.create("animals")
        >>> index.add([Document("bees", "Bees tremble in a ball to keep warm.")]).added
        1
        >>> answer = Index.open("animals").search("How do insects survive the cold?")
        >>> answer.hits[0].id, answer.certified
        ('bees', True)
    """

    def __init__(self, store: Store, model: str | MultiVectorEncoder | None = None) -> None:
        self.store = store
        self._given = model
        self._ids: tuple[int, Mapping[int, str]] = (-1, {})

    @classmethod
    def create(
        cls,
        folder: str | Path,
        *,
        model: str | MultiVectorEncoder = "default",
        representation: Representation | None = None,
        long: Literal["windows", "truncate"] = "windows",
        vector_type: Literal["float16", "float32", "int8"] = "float16",
        precision: Precision = "float32",
        notes: Mapping[str, str] | None = None,
    ) -> Index:
        """Make a new, empty index in a folder that does not exist yet.

        Args:
            folder: Where to make it.
            model: "default" for the bundled model, "minilm" for all-MiniLM-L6-v2 as published, a
                model's folder, an id on the Hugging Face Hub, or a model from `load_model`.
            representation: How texts become vectors; by default the model's own. See `preset`.
            long: "windows" reads long documents whole, "truncate" only their beginning.
            vector_type: How vectors are stored. "int8" takes half the space of "float16".
            precision: What the encoder computes in, now and whenever the index is searched.
            notes: Short texts to store with the index.

        Raises:
            IndexFolderError: The folder is there already, or can't be written.
            ModelError: The model can't be loaded.
        """
        loaded, settings = new_settings(model, representation, long, vector_type, precision)
        return cls(Store.create(Path(folder), settings, notes), loaded)

    @classmethod
    def open(cls, folder: str | Path, *, model: str | MultiVectorEncoder | None = None) -> Index:
        """Open an index. Its model is loaded when it is first needed.

        Args:
            folder: Where the index is.
            model: Only if the index was made with a model in memory, or if its model has moved.

        Raises:
            IndexFolderError: There is no index, or it is damaged or of a newer format.
        """
        return cls(Store.open(Path(folder)), model)

    @property
    def folder(self) -> Path:
        """The folder of the index."""
        return self.store.folder

    @property
    def settings(self) -> Settings:
        """What the index was made with: model, representation, vector type and the like."""
        return self.store.settings

    @cached_property
    def representation(self) -> Representation:
        """How texts become vectors in this index."""
        return Representation(**self.settings.representation)

    @cached_property
    def model(self) -> MultiVectorEncoder:
        """The encoder. It is loaded on first use, and has to be the one that the index was made
        with.
        """
        from pseudoquery.encoding.model import fingerprint
        from pseudoquery.encoding.precision import in_precision

        name = self._given if self._given is not None else self.settings.model
        if not name:
            raise ModelError(
                f"{self.folder} was made with a model that was in memory; "
                "give it to Index.open(folder, model=...)."
            )
        representation = self.representation if isinstance(name, str) else None
        loaded = _loaded(name, representation, self.settings.precision)
        if fingerprint(loaded) != self.settings.fingerprint:
            given = repr(name) if isinstance(name, str) else "the one that was given"
            raise ModelError(
                f"{self.folder} was made with another model than {given} is now; "
                "use the original one, or build the index again."
            )
        return in_precision(loaded, self.settings.precision)

    def __len__(self) -> int:
        with self.store.snapshot() as snapshot:
            return snapshot.count()

    def add(self, documents: Iterable[Document]) -> Added:
        """Add documents; one whose id is known replaces the old one.

        The documents can be any iterable: they are encoded and committed in batches, in constant
        memory. When `add` returns, all of them are on disk. If it is interrupted, the batches
        committed so far stay.

        Examples:
            >>> index = Index.create("plants")
            >>> index.add([Document("fern", "It likes shade."), Document("cactus", "It is dry.")])
            Added(added=2, updated=0, unchanged=0, cut=0)
            >>> index.add([Document("fern", "It likes shade and damp soil.")]).updated
            1

        Raises:
            CorpusError: A document can't be stored; the message says why.
            IndexLockedError: Another process is writing to the index.
        """
        total = Added()
        for batch in self.add_in_batches(documents):
            total = _sum(total, batch)
        return total

    def add_in_batches(
        self, documents: Iterable[Document], *, on_duplicate: OnBad | None = None
    ) -> Iterator[Added]:
        """Add documents as `add` does, and yield the counts of each batch once it is committed.

        Args:
            documents: What to add.
            on_duplicate: Called with an error for each document whose id is taken, which is then
                left out; raise the error to stop. Without it, the document replaces the old one.
        """
        with self.store.writer() as writer:
            for batch in batch_documents(documents):
                if on_duplicate is not None:
                    batch = drop_duplicates(batch, writer, on_duplicate)
                yield self._add_batch(writer, batch)

    def add_vectors(
        self, documents: Sequence[Document], vectors: Sequence[NDArray[np.float32]]
    ) -> None:
        """Add documents with vectors that were made elsewhere, by the same model.

        Args:
            documents: What to add; their ids must be distinct.
            vectors: For each document, its vectors as an array of shape (vectors, dimension).
        """
        for document in documents:
            check_document(document)
        if len({document.id for document in documents}) != len(documents):
            raise CorpusError("two of the documents have the same id; ids must be distinct.")
        if len(vectors) != len(documents):
            raise ModelError(f"there are vectors of {len(vectors)} for {len(documents)} documents.")
        for document, own in zip(documents, vectors, strict=True):
            if own.ndim != 2 or own.shape[1] != self.settings.dimension:
                raise ModelError(
                    f"the vectors of document {document.id!r} have the shape {own.shape}; "
                    f"it should be (vectors, {self.settings.dimension})."
                )
        with self.store.writer() as writer:
            writer.add(documents, vectors)

    def delete(self, ids: Iterable[str]) -> list[str]:
        """Delete documents by their ids; returns the ids that were there.

        Deleted documents are gone from every search at once. `compact` gives their space back.
        """
        if isinstance(ids, str):
            ids = [ids]
        with self.store.writer() as writer:
            return writer.delete(ids)

    def compact(self) -> None:
        """Rewrite the vectors without those of deleted documents, to give their space back."""
        with self.store.writer() as writer:
            writer.compact()

    def get(self, id: str) -> Document | None:  # noqa: A002
        """Return the document with this id, or None."""
        with self.store.snapshot() as snapshot:
            stored = snapshot.get(id)
        return stored.document if stored else None

    def documents(self, where: Where | None = None) -> Iterator[Document]:
        """Go through the documents, or through those that a filter keeps.

        They come in the order of their last change, from one committed state.

        Examples:
            >>> index = Index.create("years")
            >>> index.add([Document("old", "...", metadata={"year": 1990})]).added
            1
            >>> [document.id for document in index.documents({"year": {"<": 2000}})]
            ['old']
        """
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
        """Find the best documents for one question.

        Args:
            query: The question.
            top: How many documents to return.
            where: Conditions on the metadata, all of which must hold: a value, a list of values, or
                comparisons such as {"year": {">=": 1990}}.
            exact: Search until the answer is proven exact. With the default settings it is proven
                anyway below two million vectors.
            mode: "dense" ranks by meaning, "bm25" by words, "hybrid" by both.
            settings: How the search is carried out.

        Examples:
            >>> index = Index.create("capitals")
            >>> index.add(
            ...     [
            ...         Document("paris", "The capital of France.", metadata={"part": "Europe"}),
            ...         Document("nairobi", "The capital of Kenya.", metadata={"part": "Africa"}),
            ...     ]
            ... ).added
            2
            >>> index.search("Which city governs Kenya?", top=1).hits[0].id
            'nairobi'
            >>> index.search("capital", where={"part": ["Europe", "Asia"]}).hits[0].id
            'paris'

        Raises:
            QueryError: The question, the filter or a setting can't be used.
        """
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
        """Find the best documents for each of several questions.

        The questions are encoded and compared together, which is faster than one by one. The
        arguments are those of `search`; the answers come in the order of the questions.
        """
        with self._ranked(queries, top, where=where, exact=exact, mode=mode, settings=settings) as (
            asked,
            vectors,
            ranked,
        ):
            return [
                Answer(
                    query,
                    tuple(self._hits(asked.snapshot, one, vectors[place] if vectors else None)),
                    one.certified,
                    one.candidates,
                )
                for place, (query, one) in enumerate(zip(asked.queries, ranked, strict=True))
            ]

    def rank_many(
        self,
        queries: Sequence[str],
        top: int = 1000,
        *,
        where: Where | None = None,
        exact: bool = False,
        mode: Mode = "dense",
        settings: SearchSettings | None = None,
    ) -> list[list[tuple[str, float]]]:
        """Rank documents for several questions, and return only ids and scores, best first.

        For evaluation, where rankings are long and texts are not needed. The arguments are those of
        `search`.
        """
        with self._ranked(queries, top, where=where, exact=exact, mode=mode, settings=settings) as (
            asked,
            _,
            ranked,
        ):
            ids = self._ids_of(asked.snapshot)
            return [
                [
                    (ids[number], score)
                    for number, score in zip(one.numbers, one.scores, strict=True)
                ]
                for one in ranked
            ]

    def explain(self, query: str, id: str) -> Explanation:  # noqa: A002
        """Show which passages made a document's pseudo queries, and how each matches a question.

        Examples:
            >>> index = Index.create("hives")
            >>> text = "A hive has one queen. In winter the bees tremble to keep warm."
            >>> index.add([Document("bees", text)]).added
            1
            >>> why = index.explain("How do insects survive the cold?", "bees")
            >>> why.document.text[why.passage.start : why.passage.end]
            'In winter the bees tremble to keep warm.'

        Raises:
            QueryError: There is no document with this id.
        """
        from pseudoquery.search.explain import explain

        check_query(query)
        with self.store.snapshot() as snapshot:
            stored = snapshot.get(id)
        if stored is None:
            raise QueryError(f"{self.folder} has no document with the id {id!r}.")
        return explain(self.model, query, stored.document, self.settings.long)

    def info(self) -> dict[str, Any]:
        """Return facts about the index: counts, bytes and the settings it was made with."""
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
                vectors * vector_bytes(self.settings) / max(documents, 1)
            ),
            "bytes": sum(map(_size, self.folder.rglob("*"))),
            **asdict(self.settings),
        }

    def verify(self) -> list[str]:
        """Check every document, setting and vector file against its checksum.

        Returns one sentence for each problem; an empty list if all is well.
        """
        from pseudoquery.storage.verify import problems

        return problems(self.store)

    def repair(self) -> int:
        """Encode the documents of damaged or missing vector files again, and rebuild the full text.

        Returns how many documents were encoded. Damaged documents can't be repaired; restore them
        from a backup.
        """
        from pseudoquery.storage.verify import repair

        return repair(self.store, self.encode)

    def encode(self, documents: Sequence[Document]) -> tuple[list[NDArray[np.float32]], int]:
        """Make the vectors of documents as this index does, without storing anything.

        Returns an array of shape (vectors, dimension) for each document, and how many were cut.
        """
        from pseudoquery.encoding.encode import encode_documents

        long: Any = self.settings.long
        return encode_documents(self.model, documents, long)

    @cached_property
    def _structures(self) -> Structures:
        from pseudoquery.search.structures import Structures

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

    @contextmanager
    def _ranked(
        self,
        queries: Sequence[str],
        top: int,
        *,
        where: Where | None,
        exact: bool,
        mode: Mode,
        settings: SearchSettings | None,
    ) -> Iterator[tuple[RankRequest, list[NDArray[np.float32]], list[RankedOrdinals]]]:
        """Rank documents for queries; the snapshot stays open, to read the documents from."""
        if isinstance(queries, str):
            queries = [queries]
        settings = settings or SearchSettings()
        check_search(queries, top, mode, settings)
        vectors = self._encode_queries(queries) if queries and mode != "bm25" else []
        with self.store.snapshot() as snapshot:
            asked = RankRequest(snapshot, queries, top, where, exact, settings)
            asked, ranked = self._rank(asked, vectors, mode)
            yield asked, vectors, ranked

    def _rank(
        self, asked: RankRequest, vectors: Sequence[NDArray[np.float32]], mode: Mode
    ) -> tuple[RankRequest, list[RankedOrdinals]]:
        """Rank documents; what was asked comes back with the snapshot to read them from."""
        if mode == "bm25" or not asked.queries:
            return asked, rank_bm25(asked)
        rank = rank_hybrid if mode == "hybrid" else rank_dense
        return asked, rank(asked, vectors, self._structures, self.representation)

    def _ids_of(self, snapshot: Snapshot) -> Mapping[int, str]:
        """Map numbers to ids, read once for each committed state: who ranks, ranks in batches."""
        generation, ids = self._ids
        if generation != snapshot.view.generation:
            generation, ids = self._ids = (snapshot.view.generation, snapshot.ids())
        return ids

    def _encode_queries(self, queries: Sequence[str]) -> list[NDArray[np.float32]]:
        from pseudoquery.encoding.encode import encode_queries

        return encode_queries(self.model, queries)

    def _hits(
        self, snapshot: Snapshot, ranked: RankedOrdinals, query: NDArray[np.float32] | None
    ) -> Iterator[Hit]:
        """Read the documents; if there is a query vector, say what each of theirs weighs for it."""
        weights: list[list[float]] = [[]] * len(ranked.numbers)
        if query is not None:
            from pseudoquery.search.exact_scores import pseudo_query_weights

            places = np.searchsorted(snapshot.view.ordinals, np.array(ranked.numbers, np.int64))
            weights = pseudo_query_weights(snapshot.view, query, places, self.representation)
        for number, score, weight in zip(ranked.numbers, ranked.scores, weights, strict=True):
            found = snapshot.by_ordinal(number).document
            yield Hit(found.id, score, found.title, found.text, found.metadata, tuple(weight))


def new_settings(
    model: str | MultiVectorEncoder,
    representation: Representation | None,
    long: str,
    vector_type: str,
    precision: str,
) -> tuple[MultiVectorEncoder, Settings]:
    """Load the model of a new index, and say what the index is made with."""
    from pseudoquery.encoding.model import fingerprint, representation_of
    from pseudoquery.encoding.precision import in_precision

    if representation is not None and not isinstance(model, str):
        raise ModelError(
            "a model that is in memory has its representation already; "
            "give it to load_model(name, representation) instead."
        )
    if isinstance(model, str) and Path(model).is_dir():
        model = str(Path(model).resolve())
    loaded = in_precision(_loaded(model, representation, precision), precision)
    settings = Settings(
        model=model if isinstance(model, str) else "",
        fingerprint=fingerprint(loaded),
        dimension=_dimension(loaded),
        representation=representation_of(loaded).settings(),
        long=long,
        vector_type=vector_type,
        precision=precision,
    )
    return loaded, settings


def vector_bytes(settings: Settings) -> int:
    """Say how many bytes a vector takes."""
    each = VECTOR_TYPES[settings.vector_type].itemsize
    # One in 8 bits has the length of its steps beside it.
    return settings.dimension * each + (4 if each == 1 else 0)


def _size(path: Path) -> int:
    """Return the size of a file; a writer may have removed it since it was listed."""
    try:
        facts = path.stat()
    except FileNotFoundError:
        return 0
    return facts.st_size if stat.S_ISREG(facts.st_mode) else 0


def _loaded(
    model: str | MultiVectorEncoder, representation: Representation | None, precision: str
) -> MultiVectorEncoder:
    if not isinstance(model, str):
        return model
    from pseudoquery.encoding.model import load_model
    from pseudoquery.encoding.precision import by_openvino

    return load_model(model, representation, "cpu" if by_openvino(precision) else None)


def _dimension(model: MultiVectorEncoder) -> int:
    from pseudoquery.encoding.encode import encode_queries

    return int(encode_queries(model, ["dimension"])[0].shape[1])


def _sum(left: Added, right: Added) -> Added:
    return Added(
        *(
            mine + yours
            for mine, yours in zip(asdict(left).values(), asdict(right).values(), strict=True)
        )
    )
