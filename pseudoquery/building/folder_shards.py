"""Shards in an index folder: files, until the index adopts each in one transaction."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from pseudoquery.building.shard import decode_shard, documents_in, is_whole_shard
from pseudoquery.errors import IndexFolderError, OnBad
from pseudoquery.files import write_atomically
from pseudoquery.records import Added, Document
from pseudoquery.storage.incoming import drop_duplicates
from pseudoquery.storage.schema import document_checksum
from pseudoquery.storage.segment_builder import drop_documents
from pseudoquery.storage.store import FolderStore
from pseudoquery.storage.writer import FolderWriter


class FolderShards:
    """The shards that an index folder has not adopted yet; those that it has are empty files."""

    def __init__(self, store: FolderStore) -> None:
        self._store = store
        self._folder = store.folder / "shards"

    def names(self) -> Iterator[str]:
        """Name the shards that an interrupted build has left."""
        return (path.stem for path in self._folder.glob("*.shard"))

    def keep(self, name: str, content: bytes) -> None:
        """Store a shard; when this returns, it is on disk."""
        write_atomically(self.path(name), content)

    def adopt(self, names: Sequence[str], on_bad: OnBad) -> Iterator[Added]:
        """Take shards into the index, yielding after each one."""
        with self._store.writer() as writer:
            for name in names:
                yield self._adopt(name, writer, on_bad)

    def clear(self) -> None:
        """Forget the shards of an index that is finished."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def path(self, name: str) -> Path:
        """Name the file of a shard."""
        return self._folder / f"{name}.shard"

    def _adopt(self, name: str, writer: FolderWriter, on_bad: OnBad) -> Added:
        """Take a shard into the index, without the documents that the index has already."""
        path = self.path(name)
        content = path.read_bytes()
        if not content:  # it was adopted before
            return Added(unchanged=documents_in(name))
        if not is_whole_shard(content):
            raise IndexFolderError(
                f"{path} is damaged; remove it and run this again, which encodes its documents "
                "anew."
            )
        shard = decode_shard(content)
        distinct = drop_duplicates(list(shard.documents), writer, on_bad)
        first_of_id = {document.id: document for document in distinct}
        known = writer.known(first_of_id)
        updated = unchanged = 0
        dropped: list[int] = []
        new: list[Document] = []
        for position, document in enumerate(shard.documents):
            checksum = known[document.id].checksum if document.id in known else None
            if first_of_id.get(document.id) is not document:
                dropped.append(position)
            elif checksum == document_checksum(document):
                dropped.append(position)
                unchanged += 1
            else:
                updated += checksum is not None
                new.append(document)
        if new:
            writer.adopt(new, drop_documents(shard.segment, np.array(dropped, dtype=np.int64)))
        os.truncate(path, 0)
        return Added(len(new) - updated, updated, unchanged, shard.cut)
