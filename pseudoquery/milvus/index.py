"""An index in Milvus: the same class and the same answers, with the engine as its store.

index = MilvusIndex.create("http://localhost:19530/papers")
index.add([Document("a", "Paris is the capital of France.")])
index.search("What is France's capital?").hits[0].id

The method stays here: pseudo queries, exact scores, the proof. Placement, replication and recovery
are the engine's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from pseudoquery.errors import ModelError, QueryError
from pseudoquery.files import new_folder
from pseudoquery.index import Index, new_settings
from pseudoquery.method.representation import Representation
from pseudoquery.milvus.collection import IDS_AT_ONCE, Collection, MilvusIndexType
from pseudoquery.search.rank import RankedOrdinals, RankRequest
from pseudoquery.search.settings import Mode
from pseudoquery.storage.snapshot import Snapshot
from pseudoquery.storage.store import Store

if TYPE_CHECKING:
    from sentence_transformers import MultiVectorEncoder

    from pseudoquery.encoding.precision import Precision


class MilvusIndex(Index):
    """An index in a collection of Milvus, with the methods of `Index`.

    Milvus looks up vectors, and documents are scored by the same function as in a folder, so scores
    agree to the last bit. There is no BM25, and no `verify`: the files are Milvus's.

    Examples:
        >>> index = MilvusIndex.open("http://localhost:19530/papers")  # doctest: +SKIP
    """

    def __init__(
        self, collection: Collection, model: str | MultiVectorEncoder | None = None
    ) -> None:
        # A collection has all that an index asks of its store, but for what is overridden below.
        super().__init__(cast(Store, collection), model)
        self.collection = collection

    @classmethod
    def create(
        cls,
        address: str | Path,
        *,
        model: str | MultiVectorEncoder = "default",
        representation: Representation | None = None,
        long: Literal["windows", "truncate"] = "windows",
        vector_type: Literal["float16", "float32", "int8"] = "float16",
        precision: Precision = "float32",
        notes: Mapping[str, str] | None = None,
        first_step: MilvusIndexType = "FLAT",
        token: str = "",
    ) -> MilvusIndex:
        """Make a new, empty collection.

        Args:
            address: http://HOST:PORT/NAME, or http://HOST:PORT/DATABASE/NAME.
            model: See `Index.create`, as for the next five.
            representation: How texts become vectors.
            long: Whether long documents are read whole.
            vector_type: How vectors are rounded before they are stored.
            precision: What the encoder computes in.
            notes: Short texts to store with the index.
            first_step: Milvus's index: with "FLAT" answers can be proven; "HNSW" and "IVF_FLAT" are
                approximate.
            token: USER:PASSWORD or a key; by default the environment variable MILVUS_TOKEN.
        """
        loaded, settings = new_settings(model, representation, long, vector_type, precision)
        made = Collection.create(str(address), settings, first_step, token=token, notes=notes)
        return cls(made, loaded)

    @classmethod
    def open(
        cls,
        address: str | Path,
        *,
        model: str | MultiVectorEncoder | None = None,
        token: str = "",
    ) -> MilvusIndex:
        """Open a collection. Its model is loaded when it is first needed."""
        return cls(Collection.open(str(address), token), model)

    @classmethod
    def from_folder(
        cls,
        address: str,
        folder: str | Path,
        *,
        model: str | MultiVectorEncoder | None = None,
        first_step: MilvusIndexType = "FLAT",
        token: str = "",
    ) -> MilvusIndex:
        """Make a collection with the settings, documents and vectors of an index folder."""
        index = Index.open(folder, model=model)
        made = cls(Collection.create(address, index.settings, first_step, token=token), model)
        made.import_from(index)
        return made

    def import_from(self, index: Index) -> int:
        """Add the documents of an index folder, with their vectors as they are.

        Documents that are there already are left alone, so an import that was interrupted
        continues. Returns how many were added.
        """
        _check_same_model(index, self)
        added = 0
        with index.store.snapshot() as snapshot, self.collection.writer() as writer:
            view = snapshot.view
            stored = snapshot.documents()
            while batch := [one for _, one in zip(range(IDS_AT_ONCE), stored, strict=False)]:
                known = writer.known(one.document.id for one in batch)
                new = [
                    one for one in batch if known.get(one.document.id, (b"",))[0] != one.checksum
                ]
                places = np.searchsorted(view.ordinals, [one.ordinal for one in new])
                vectors = [view.vectors_of(places[[row]]) for row in range(len(new))]
                writer.add([one.document for one in new], vectors)
                added += len(new)
        return added

    def to_folder(self, folder: str | Path) -> Index:
        """Make an index folder of this collection. The folder appears when all of it is on disk."""
        with new_folder(Path(folder)) as fresh, self.collection.snapshot() as snapshot:
            made = Index(Store.create(fresh, self.settings))
            for block in snapshot.blocks():
                made.add_vectors(
                    [kept.stored.document for kept in block], [kept.vectors for kept in block]
                )
        return Index.open(folder, model=self._given)

    def info(self) -> dict[str, Any]:
        """Return facts about the index."""
        with self.collection.snapshot() as snapshot:
            return {
                "address": snapshot.address,
                "documents": snapshot.count(),
                "vectors": snapshot.count_vectors(),
                "first_step": snapshot.first_step,
                "answers_can_be_proven": snapshot.exhaustive,
                **asdict(self.settings),
            }

    def verify(self) -> list[str]:
        """Refuse: the files are not ours to check."""
        raise QueryError(f"{self.folder} is kept by Milvus, which checks its files itself.")

    def repair(self) -> int:
        """Refuse: the files are not ours to repair."""
        raise QueryError(f"{self.folder} is kept by Milvus, which repairs its files itself.")

    def _rank(
        self, asked: RankRequest, vectors: Sequence[NDArray[np.float32]], mode: Mode
    ) -> tuple[RankRequest, list[RankedOrdinals]]:
        """Rank documents; those of the answers come with them."""
        from pseudoquery.milvus.search import MilvusSearch, RecalledDocuments
        from pseudoquery.search.two_step import RecallDepth

        if mode != "dense":
            raise QueryError(f"in Milvus documents are found by mode 'dense' only, not {mode!r}.")
        if asked.settings.structure != "auto":
            raise QueryError(
                f"the structure {asked.settings.structure!r} can't be chosen for a search in "
                "Milvus; choose the collection's `first_step` when it is made."
            )
        depth = RecallDepth(asked.settings.recall, asked.settings.recall_vectors)
        asking = MilvusSearch(
            self.collection, self.representation, asked.top, depth, asked.where, asked.exact
        )
        bests = asking.best(vectors)
        recalled = RecalledDocuments(bests, self.settings.dimension)
        ranked = [recalled.ranked(best) for best in bests]
        return replace(asked, snapshot=cast(Snapshot, recalled)), ranked

    def _ids_of(self, snapshot: Snapshot) -> Mapping[int, str]:
        return snapshot.ids()


def _check_same_model(index: Index, other: Index) -> None:
    """Vectors of one model mean nothing to another."""
    if index.settings.fingerprint != other.settings.fingerprint:
        raise ModelError(
            f"{index.folder} and {other.folder} were made with different models; "
            "add the documents themselves instead."
        )
