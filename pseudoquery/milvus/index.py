"""An index in Milvus: the same methods and the same answers, with the engine as its store.

index = MilvusIndex.create("http://localhost:19530/papers")
index.add([Document("a", "Paris is the capital of France.")])
index.search("What is France's capital?").hits[0].id

The method stays here: pseudo queries, exact scores, the proof. Placement, replication and recovery
are the engine's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from pseudoquery.errors import ModelError, QueryError
from pseudoquery.files import new_folder
from pseudoquery.index import Index
from pseudoquery.method.encoded import DocumentVectors
from pseudoquery.method.representation import Representation
from pseudoquery.milvus.collection import IDS_AT_ONCE, Collection, MilvusIndexType
from pseudoquery.milvus.rows import in_groups
from pseudoquery.milvus.searcher import MilvusSearcher
from pseudoquery.storage.schema import Settings
from pseudoquery.storage.store import FolderStore, folder_store

if TYPE_CHECKING:
    from sentence_transformers import MultiVectorEncoder

    from pseudoquery.encoding.precision import Precision
    from pseudoquery.method.token_codes import TokenType


class MilvusIndex(Index):
    """An index in a collection of Milvus, with the methods of `Index`.

    Milvus looks up vectors, and documents are scored by the same function as in a folder, so scores
    agree to the last bit. Documents are searched by mode "dense" only, and `verify` and `repair`
    raise a `QueryError`, because the files are Milvus's.

    Examples:
        >>> index = MilvusIndex.open("http://localhost:19530/papers")  # doctest: +SKIP
    """

    def __init__(
        self, collection: Collection, model: str | MultiVectorEncoder | None = None
    ) -> None:
        super().__init__(collection, MilvusSearcher(collection), model)
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
        tokens: TokenType | None = None,
        precision: Precision = "float32",
        notes: Mapping[str, str] | None = None,
        first_step: MilvusIndexType = "FLAT",
        token: str = "",
    ) -> MilvusIndex:
        """Make a new, empty collection.

        Args:
            address: http://HOST:PORT/NAME, or http://HOST:PORT/DATABASE/NAME.
            model: The model's name or a model in memory, as for `Index.create`.
            representation: How texts become vectors; by default as the model says.
            long: "windows" reads long documents whole, "truncate" only their beginning.
            vector_type: How vectors are rounded before they are stored.
            tokens: "none" or left out: a collection stores no codes of tokens.
            precision: What the encoder computes in.
            notes: Short texts to store with the index.
            first_step: Milvus's index: with "FLAT" answers can be proven; "HNSW" and "IVF_FLAT" are
                approximate.
            token: USER:PASSWORD or a key; by default the environment variable MILVUS_TOKEN.

        Raises:
            IndexFolderError: The collection exists already.
            ServiceError: Milvus does not answer, or refuses.
            ModelError: The model can't be loaded.
        """
        from pseudoquery.encoding.index_model import load_new_model

        if tokens not in (None, "none"):
            raise QueryError(
                f"Milvus stores no codes of tokens, and tokens is {tokens!r}; leave it out."
            )
        loaded, decided = load_new_model(model, representation, precision)
        settings = Settings(**decided, long=long, vector_type=vector_type)
        collection = Collection.create(str(address), settings, first_step, token=token, notes=notes)
        return cls(collection, loaded)

    @classmethod
    def open(
        cls,
        address: str | Path,
        *,
        model: str | MultiVectorEncoder | None = None,
        token: str = "",
    ) -> MilvusIndex:
        """Open a collection. Its model is loaded when it is first needed.

        Args:
            address: http://HOST:PORT/NAME, or http://HOST:PORT/DATABASE/NAME.
            model: Only needed if the index was made with a model in memory, or if its model has
                moved.
            token: USER:PASSWORD or a key; by default the environment variable MILVUS_TOKEN.

        Raises:
            IndexFolderError: There is no such collection, or pseudoquery has not made it.
            ServiceError: Milvus does not answer, or refuses.
        """
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
        """Make a collection with the settings, documents and vectors of an index folder.

        Args:
            address: The new collection's address, http://HOST:PORT/NAME.
            folder: The folder of the index.
            model: As for `open`.
            first_step: As for `create`.
            token: As for `create`.
        """
        source = Index.open(folder, model=model)
        settings = replace(source.settings, tokens="none")  # Milvus keeps no codes of tokens
        collection = Collection.create(address, settings, first_step, token=token)
        index = cls(collection, model)
        index.import_from(source)
        return index

    def import_from(self, index: Index) -> int:
        """Add the documents of an index folder, with their vectors as they are.

        Documents that the collection has already are left alone, so an import that was interrupted
        goes on where it stopped.

        Args:
            index: An index in a folder, made with the same model.

        Returns:
            How many documents were added.

        Raises:
            ModelError: The two indexes were made with different models.
        """
        if index.settings.fingerprint != self.settings.fingerprint:
            # Vectors of one model mean nothing to another.
            raise ModelError(
                f"{index.location} and {self.location} were made with different models; "
                "add the documents themselves instead."
            )
        added = 0
        source = folder_store(index.store)
        with source.snapshot() as snapshot, self.collection.writer() as writer:
            view = snapshot.view
            for batch in in_groups(snapshot.documents(), IDS_AT_ONCE):
                known = writer.known(stored.document.id for stored in batch)
                checksums = {id_: document.checksum for id_, document in known.items()}
                new = [
                    stored
                    for stored in batch
                    if checksums.get(stored.document.id) != stored.checksum
                ]
                positions = np.searchsorted(view.ordinals, [stored.ordinal for stored in new])
                vectors = [
                    DocumentVectors(view.vectors_of(positions[[row]])) for row in range(len(new))
                ]
                writer.add([stored.document for stored in new], vectors)
                added += len(new)
        return added

    def to_folder(self, folder: str | Path) -> Index:
        """Make an index folder of this collection, with its vectors as they are.

        Args:
            folder: A folder that does not exist yet. It appears when all of it is on disk.

        Returns:
            The new index.
        """
        with (
            new_folder(Path(folder)) as unfinished,
            self.collection.snapshot() as snapshot,
            FolderStore.create(unfinished, self.settings).writer() as writer,
        ):
            for block in snapshot.blocks():
                writer.add(
                    [encoded.stored.document for encoded in block],
                    [DocumentVectors(encoded.vectors) for encoded in block],
                )
        return Index.open(folder, model=self._given_model)
