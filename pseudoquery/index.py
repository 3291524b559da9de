"""`Index`, the class that users meet: documents that can be searched, and their model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pseudoquery.corpus.validation import check_document
from pseudoquery.errors import OnBad, QueryError
from pseudoquery.method.encoded import DocumentVectors, QuestionVectors
from pseudoquery.method.representation import Representation
from pseudoquery.method.token_codes import default_token_type
from pseudoquery.once import once_property
from pseudoquery.records import Added, Answer, Document, Explanation
from pseudoquery.search.rank import RankedOrdinals
from pseudoquery.search.request import RankRequest, check_request
from pseudoquery.search.searcher import DocumentReader, FolderSearcher, Searcher, read_hits
from pseudoquery.search.settings import Mode, SearchSettings, check_query
from pseudoquery.storage.filters import Where
from pseudoquery.storage.incoming import (
    batch_documents,
    check_vectors,
    drop_duplicates,
    find_changes,
)
from pseudoquery.storage.protocols import Store, Writer
from pseudoquery.storage.schema import Settings
from pseudoquery.storage.store import FolderStore, folder_store

if TYPE_CHECKING:
    from sentence_transformers import MultiVectorEncoder

    from pseudoquery.encoding.precision import Precision
    from pseudoquery.method.token_codes import TokenType
    from pseudoquery.search.explain import EncodedDocument

QueryVectors: TypeAlias = NDArray[np.float32] | None
"""The vectors of a query, (vectors, dimension); None if it is searched by words alone."""


class Index:
    """Documents that can be searched by the questions they answer.

    Make an index in a folder with `Index.create`, or open one with `Index.open`. Any number of
    processes can search an index at the same time, and one process can change it. `MilvusIndex` has
    the same methods, and keeps documents and vectors in Milvus.

    Examples:
        >>> index = Index.create("animals")
        >>> index.add([Document("bees", "Bees tremble in a ball to keep warm.")]).added
        1
        >>> answer = Index.open("animals").search("How do insects survive the cold?")
        >>> answer.hits[0].id, answer.certified
        ('bees', True)
    """

    def __init__(
        self, store: Store, searcher: Searcher, model: str | MultiVectorEncoder | None = None
    ) -> None:
        self.store = store
        self._searcher = searcher
        self._given_model = model

    @classmethod
    def create(
        cls,
        folder: str | Path,
        *,
        model: str | MultiVectorEncoder = "default",
        representation: Representation | None = None,
        long: Literal["windows", "truncate"] = "windows",
        vector_type: Literal["float16", "float32", "int8"] = "float16",
        tokens: TokenType | None = None,
        precision: Precision = "float32",
        notes: Mapping[str, str] | None = None,
    ) -> Index:
        """Make a new, empty index in a folder that does not exist yet, or is empty.

        Args:
            folder: The folder to make the index in.
            model: "default" for the bundled model, "minilm" for all-MiniLM-L6-v2 as published, a
                model's folder, an id on the Hugging Face Hub, or a model from `load_model`.
            representation: How texts become vectors; by default as the model says. See `preset`.
            long: "windows" reads long documents whole, "truncate" only their beginning.
            vector_type: How vectors are stored. "int8" takes half the space of "float16".
            tokens: How the vectors of tokens are stored, by which the best documents are ranked:
                "signs" (one bit a number), "int8", "float16", or "none". By default "signs" if
                documents are represented by pseudo queries, otherwise "none".
            precision: What the encoder computes in, now and whenever the index is searched.
            notes: Short texts to store with the index.

        Raises:
            IndexFolderError: The folder already holds an index or other files, or can't be written.
            ModelError: The model can't be loaded.
        """
        from pseudoquery.encoding.index_model import load_new_model

        loaded, decided = load_new_model(model, representation, precision)
        if tokens is None:
            tokens = default_token_type(decided["representation"]["documents"])
        settings = Settings(**decided, long=long, vector_type=vector_type, tokens=tokens)
        store = FolderStore.create(Path(folder), settings, notes)
        return cls(store, FolderSearcher(store), loaded)

    @classmethod
    def open(cls, folder: str | Path, *, model: str | MultiVectorEncoder | None = None) -> Index:
        """Open an existing index. Its model is loaded when it is first needed.

        Args:
            folder: The folder of the index.
            model: Only needed if the index was made with a model in memory, or if its model has
                moved.

        Raises:
            IndexFolderError: The folder holds no index, or one that is damaged or of a newer
                format.
        """
        store = FolderStore.open(Path(folder))
        return cls(store, FolderSearcher(store), model)

    @property
    def location(self) -> Path | str:
        """Where the index is: its folder, or the address of its collection in Milvus."""
        return self.store.location

    @property
    def folder(self) -> Path:
        """The folder of the index. An index in Milvus has none, but it has a `location`."""
        return folder_store(self.store, "and has no folder").folder

    @property
    def settings(self) -> Settings:
        """What the index was made with: model, representation, vector type and so on."""
        return self.store.settings

    @cached_property
    def representation(self) -> Representation:
        """How texts become vectors in this index."""
        return Representation(**self.settings.representation)

    @once_property
    def model(self) -> MultiVectorEncoder:
        """The encoder, loaded on first use.

        Raises:
            ModelError: The model can't be loaded, or is not the one that the index was made with.
        """
        from pseudoquery.encoding.index_model import load_same_model

        settings = self.settings
        return load_same_model(
            settings.model if self._given_model is None else self._given_model,
            self.representation,
            settings.precision,
            settings.fingerprint,
            self.location,
        )

    def __len__(self) -> int:
        """Count the documents."""
        with self.store.snapshot() as snapshot:
            return snapshot.count()

    def add(self, documents: Iterable[Document]) -> Added:
        """Add documents; a document with a known id replaces the old one.

        The documents are encoded and committed in batches, in constant memory. When `add` returns,
        all of them are on disk. If `add` is interrupted, the batches that are committed stay.

        Args:
            documents: Any iterable of documents, a generator too.

        Returns:
            How many documents were added, updated and left alone.

        Raises:
            CorpusError: A document can't be stored; the message says why.
            IndexLockedError: Another process is writing to the index.

        Examples:
            >>> index = Index.create("plants")
            >>> index.add([Document("fern", "It likes shade."), Document("cactus", "It is dry.")])
            Added(added=2, updated=0, unchanged=0, cut=0)
            >>> index.add([Document("fern", "It likes shade and damp soil.")]).updated
            1
        """
        return sum(self.add_in_batches(documents), Added())

    def add_in_batches(
        self, documents: Iterable[Document], *, on_duplicate: OnBad | None = None
    ) -> Iterator[Added]:
        """Add documents as `add` does, and yield the counts of each batch once it is committed.

        Args:
            documents: Any iterable of documents.
            on_duplicate: Called with an error for each document whose id belongs to another
                document, which is then left out; raise the error to stop. Without `on_duplicate`,
                the document replaces the old one.

        Yields:
            How many documents of the batch were added, updated and left alone.
        """
        with self.store.writer() as writer:
            for batch in batch_documents(documents):
                if on_duplicate is not None:
                    batch = drop_duplicates(batch, writer, on_duplicate)
                yield self._add_batch(writer, batch)

    def add_vectors(
        self,
        documents: Sequence[Document],
        vectors: Sequence[DocumentVectors] | Sequence[NDArray[np.float32]],
    ) -> None:
        """Add documents with vectors that the same model has made elsewhere, by `encode`.

        Args:
            documents: Documents with distinct ids.
            vectors: For each document what `encode` returns. If the index stores no tokens, an
                array of shape (vectors, dimension) will do.

        Raises:
            CorpusError: A document can't be stored, or two have the same id.
            ModelError: The vectors do not fit the documents or the index.
        """
        for document in documents:
            check_document(document)
        encoded = check_vectors(documents, vectors, self.settings)
        with self.store.writer() as writer:
            writer.add(documents, encoded)

    def delete(self, ids: Iterable[str]) -> list[str]:
        """Delete documents. Searches no longer find them, and `compact` gives their space back.

        Args:
            ids: The ids of the documents.

        Returns:
            The ids that were in the index.
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
        """Read one document.

        Args:
            id: The document's id.

        Returns:
            The document, or None if the index has no document with this id.
        """
        with self.store.snapshot() as snapshot:
            stored = snapshot.get(id)
        return stored.document if stored else None

    def documents(self, where: Where | None = None) -> Iterator[Document]:
        """Read the documents one by one, in the order of their last change.

        All of them come from one committed state, even if the index changes meanwhile.

        Args:
            where: Conditions on the metadata, as in `search`; by default there are none.

        Yields:
            Each document that satisfies the conditions.

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

        Returns:
            The documents, best first, and whether they are proven to be the best.

        Raises:
            QueryError: The question, the filter or a setting can't be used.

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
        """Find the best documents for each of several questions, faster than one by one.

        Args:
            queries: The questions, which are encoded and compared together.
            top: How many documents to return for each question.
            where: Conditions on the metadata, as in `search`.
            exact: Search until the answers are proven exact.
            mode: "dense", "bm25" or "hybrid".
            settings: How the search is carried out.

        Returns:
            An answer for each question, in the order of the questions.
        """
        request = check_request(queries, top, where, exact, mode, settings)
        with self._rank(request) as (documents, vectors, rankings):
            return [
                Answer(
                    query,
                    tuple(read_hits(documents, ranking, query_vectors, self.representation)),
                    ranking.certified,
                    ranking.candidates,
                    ranking.ranked_by,
                    ranking.candidates_proven,
                )
                for query, query_vectors, ranking in zip(
                    request.queries, vectors, rankings, strict=True
                )
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
        """Rank documents for several questions, without reading their texts.

        This is for evaluation, where rankings are long.

        Args:
            queries: The questions.
            top: How many documents to rank for each question.
            where: Conditions on the metadata, as in `search`.
            exact: Search until the rankings are proven exact.
            mode: "dense", "bm25" or "hybrid".
            settings: How the search is carried out.

        Returns:
            For each question, the ids and scores of its documents, best first.
        """
        request = check_request(queries, top, where, exact, mode, settings)
        with self._rank(request) as (documents, _, rankings):
            ids = documents.ids()
            return [
                [
                    (ids[ordinal], score)
                    for ordinal, score in zip(ranking.ordinals, ranking.scores, strict=True)
                ]
                for ranking in rankings
            ]

    def explain(self, query: str, id: str) -> Explanation:  # noqa: A002
        """Show how a document matches a question: its pseudo queries, its words, its passage.

        Args:
            query: The question.
            id: The document's id.

        Returns:
            The document's score, its pseudo queries, the words that match, and the sentence that
            matches best.

        Raises:
            QueryError: The index has no document with this id.

        Examples:
            >>> index = Index.create("hives")
            >>> text = "A hive has one queen. In winter the bees tremble to keep warm."
            >>> index.add([Document("bees", text)]).added
            1
            >>> why = index.explain("How do insects survive the cold?", "bees")
            >>> why.document.text[why.passage.start : why.passage.end]
            'In winter the bees tremble to keep warm.'
        """
        from pseudoquery.encoding.encode import encode_questions
        from pseudoquery.search.explain import explain

        check_query(query)
        encoded = self.encoded(id)
        if encoded is None:
            raise QueryError(f"{self.location} has no document with the id {id!r}.")
        question = encode_questions(self.model, [query])[0]
        return explain(query, question, encoded, self.representation)

    def encoded(self, id: str) -> EncodedDocument | None:  # noqa: A002
        """Read a document, with what the encoder has made of it when it was added.

        A document whose tokens are not stored, as in Milvus, is encoded again.

        Args:
            id: The document's id.

        Returns:
            The document with its vectors and tokens, or None if the index has no such document.
        """
        from pseudoquery.encoding.encode import document_text, encode_documents
        from pseudoquery.search.explain import EncodedDocument

        with self.store.snapshot() as snapshot:
            stored = snapshot.get(id)
            encoded = snapshot.encoded(stored) if stored else None
        if stored is None:
            return None
        token_type = self.settings.tokens
        long: Any = self.settings.long
        if encoded is None:
            token_type = "signs"
            encoded = encode_documents(self.model, [stored.document], long, token_type)[0]
        _, start = document_text(stored.document)
        return EncodedDocument(stored.document, encoded, token_type, start)

    def info(self) -> dict[str, Any]:
        """Describe the index.

        Returns:
            How many documents, vectors and bytes the index has, and the settings it was made with.
        """
        return {**self.store.facts(), **asdict(self.settings)}

    def verify(self) -> list[str]:
        """Check every document, setting and vector file against its checksum.

        Returns:
            One sentence for each problem; an empty list if all is well.

        Raises:
            IndexLockedError: Another process is writing to the index.
            QueryError: The index is in Milvus, which checks its files itself.
        """
        from pseudoquery.storage.verify import problems

        return problems(folder_store(self.store, "which checks its files itself"))

    def repair(self) -> int:
        """Encode the documents of damaged or missing vector files again, and rebuild the full text.

        Damaged documents can't be repaired; restore the index from a backup. If acknowledged
        changes are missing, because the log of the database was damaged, `repair` goes on without
        them, and sets aside what is left of them in the folder `lost`.

        Returns:
            How many documents were encoded.

        Raises:
            IndexLockedError: Another process is writing to the index.
            QueryError: The index is in Milvus, which repairs its files itself.
        """
        from pseudoquery.storage.verify import repair

        return repair(folder_store(self.store, "which repairs its files itself"), self.encode)

    def encode(self, documents: Sequence[Document]) -> list[DocumentVectors]:
        """Make the vectors of documents as this index does, without storing anything.

        Args:
            documents: The documents.

        Returns:
            For each document its vectors, the codes of its tokens, and whether it was cut.
        """
        from pseudoquery.encoding.encode import encode_documents

        long: Any = self.settings.long
        return encode_documents(self.model, documents, long, self.settings.tokens)

    def _add_batch(self, writer: Writer, batch: list[Document]) -> Added:
        for document in batch:
            check_document(document)
        changes = find_changes(batch, writer)
        encoded = self.encode(changes.documents) if changes.documents else []
        writer.add(changes.documents, encoded)
        return replace(changes.counts, cut=sum(document.cut for document in encoded))

    @contextmanager
    def _rank(
        self, request: RankRequest
    ) -> Iterator[tuple[DocumentReader, Sequence[QueryVectors], list[RankedOrdinals]]]:
        """Rank documents for queries; gives the documents, the queries' vectors, the rankings."""
        questions: Sequence[QuestionVectors] = []
        if request.queries and request.mode != "bm25":
            from pseudoquery.encoding.encode import encode_questions

            questions = encode_questions(self.model, request.queries)
        with self._searcher.rank(request, questions, self.representation) as (documents, rankings):
            vectors = [question.vectors for question in questions]
            yield documents, vectors or [None] * len(rankings), rankings
