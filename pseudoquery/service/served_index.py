"""An index that many ask and change at the same time: questions together, changes in order.

    one thread searches     what waits is encoded and ranked together
    one thread writes       what waits is encoded and committed together
    one thread explains     a document is encoded again; it may be long
    one thread compares     every document is looked at, each as one vector
    a few threads read      documents by id, facts

Readers see one committed state of the store, so they never wait for the writer. All may run the
encoder at the same time, and the system shares the processor between them: taking turns was
measured, and made a question wait for a whole pass of documents.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar, cast

from pseudoquery.errors import IndexLockedError
from pseudoquery.index import Index
from pseudoquery.records import Added, Answer, Document, Explanation
from pseudoquery.search.explain import explain
from pseudoquery.search.settings import Mode, SearchSettings
from pseudoquery.service.batcher import Batcher
from pseudoquery.service.document_map import DocumentMap, map_document
from pseudoquery.service.metrics import Metrics
from pseudoquery.service.one_vector import search_one_vector
from pseudoquery.storage.incoming import BATCH_DOCUMENTS
from pseudoquery.storage.schema import document_checksum

Value = TypeVar("Value")
Job = TypeVar("Job")
BATCH_QUERIES = 64
"""Queries that are encoded together, unless one request alone has more."""
READERS = 4
LOCK_PATIENCE = 5.0
"""Seconds to wait for another process that writes to the index."""


@dataclass(frozen=True, slots=True)
class SearchJob:
    """Questions of one request, and how to answer them."""

    queries: tuple[str, ...]
    top: int
    where: Mapping[str, Any]
    exact: bool
    mode: Mode
    settings: SearchSettings

    @property
    def how(self) -> str:
        """What must be equal in searches that are carried out together.

        It is text because Python holds True, 1 and 1.0 for equal, and a filter does not.
        """
        how = [self.top, self.where, self.exact, self.mode, asdict(self.settings)]
        return json.dumps(how, sort_keys=True)


@dataclass(frozen=True, slots=True)
class PutJob:
    """Documents to add, or to replace those of the same id."""

    documents: tuple[Document, ...]


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """The id of a document to delete."""

    id: str


class ServedIndex:
    """An index and the threads that work for a service."""

    def __init__(self, index: Index, metrics: Metrics) -> None:
        self.index = index
        self._metrics = metrics
        self._searches: Batcher[SearchJob, list[Answer]] = Batcher(
            "pseudoquery-search", self._search_together, lambda job: len(job.queries), BATCH_QUERIES
        )
        # How many documents were cut is known only of all that are added together.
        together = BATCH_DOCUMENTS if index.settings.long == "windows" else 1
        self._writes: Batcher[PutJob | DeleteJob, Added | bool] = Batcher(
            "pseudoquery-write", self._write_together, _documents_in, together
        )
        self._explainer = ThreadPoolExecutor(1, "pseudoquery-explain")
        self._comparer = ThreadPoolExecutor(1, "pseudoquery-compare")
        self._readers = ThreadPoolExecutor(READERS, "pseudoquery-read")
        metrics.watch_queue("search", lambda: self._searches.waiting)
        metrics.watch_queue("write", lambda: self._writes.waiting)

    def warm_up(self) -> None:
        """Load the model and the vectors, so that the first question need not wait for them."""
        run_in_thread(lambda: self.index.search("ready", 1))

    def close(self) -> None:
        """Finish everything that was taken, and stop."""
        self._searches.close()
        self._writes.close()
        self._explainer.shutdown()
        self._comparer.shutdown()
        self._readers.shutdown()

    def search(self, search: SearchJob) -> Future[list[Answer]]:
        """Answer questions, together with others that wait."""
        return self._searches.submit(search)

    def put(self, documents: Iterable[Document]) -> Future[Added]:
        """Add documents, or replace them; when it is done they are on disk."""
        return cast(Future[Added], self._writes.submit(PutJob(tuple(documents))))

    def delete(self, id: str) -> Future[bool]:  # noqa: A002
        """Delete a document; says whether it was there."""
        return cast(Future[bool], self._writes.submit(DeleteJob(id)))

    def explain(self, query: str, id: str) -> Future[Explanation | None]:  # noqa: A002
        """Explain why a document matches a question; nothing if there is no such document."""
        return self._explainer.submit(self._explain, query, id)

    def map(self, id: str, query: str | None) -> Future[DocumentMap | None]:  # noqa: A002
        """Lay a document's pseudo queries out on a plane; nothing if there is no such document."""
        return self._explainer.submit(self._map, id, query)

    def search_one_vector(self, query: str, top: int) -> Future[Answer]:
        """Answer a question as if each document had one vector."""
        return self._comparer.submit(search_one_vector, self.index, query, top)

    def get(self, id: str) -> Future[Document | None]:  # noqa: A002
        """Read a document."""
        return self._readers.submit(self.index.get, id)

    def count(self) -> Future[int]:
        """Count the documents; fails if the index can't be read."""
        return self._readers.submit(self.index.__len__)

    def facts(self) -> Future[dict[str, Any]]:
        """Return facts about the index, but not where it and its model are."""
        return self._readers.submit(self._facts)

    def _facts(self) -> dict[str, Any]:
        where = ("folder", "address")
        facts = {name: one for name, one in self.index.info().items() if name not in where}
        model = facts["model"]
        return facts | {"model": Path(model).name if Path(model).is_absolute() else model}

    def _explain(self, query: str, id: str) -> Explanation | None:  # noqa: A002
        document = self.index.get(id)
        if document is None:
            return None
        return explain(self.index.model, query, document, self.index.settings.long)

    def _map(self, id: str, query: str | None) -> DocumentMap | None:  # noqa: A002
        document = self.index.get(id)
        if document is None:
            return None
        return map_document(self.index.model, document, query, self.index.settings.long)

    def _search_together(self, searches: list[SearchJob]) -> Sequence[list[Answer] | Exception]:
        alike: dict[str, list[int]] = defaultdict(list)
        for place, search in enumerate(searches):
            alike[search.how].append(place)
        outcomes: dict[int, list[Answer] | Exception] = {}
        for places in alike.values():
            group = [searches[place] for place in places]
            outcomes |= zip(places, run_batch(group, self._search_alike), strict=True)
        return [outcomes[place] for place in range(len(searches))]

    def _search_alike(self, searches: Sequence[SearchJob]) -> list[list[Answer]]:
        queries = [query for search in searches for query in search.queries]
        one = searches[0]
        self._metrics.batches.observe(len(queries))
        answers = iter(
            self.index.search_many(
                queries,
                one.top,
                where=one.where,
                exact=one.exact,
                mode=one.mode,
                settings=one.settings,
            )
        )
        return [[next(answers) for _ in search.queries] for search in searches]

    def _write_together(
        self, writes: list[PutJob | DeleteJob]
    ) -> Sequence[Added | bool | Exception]:
        """Carry changes out in their order, neighbours of one kind together."""
        outcomes: list[Added | bool | Exception] = []
        for kind, group in groupby(writes, key=type):
            if kind is PutJob:
                outcomes += run_batch(cast(list[PutJob], list(group)), self._put)
            else:
                outcomes += run_batch(cast(list[DeleteJob], list(group)), self._delete)
        return outcomes

    def _put(self, puts: Sequence[PutJob]) -> list[Added]:
        documents = [document for put in puts for document in put.documents]
        known = self._checksums(documents)
        counts = [_counted(put, known) for put in puts]
        cut = retry_while_locked(lambda: self.index.add(documents)).cut
        done = [Added(*count, cut) for count in counts]  # only one, if any can be cut
        for outcome in ("added", "updated", "unchanged"):
            number = sum(getattr(one, outcome) for one in done)
            self._metrics.written.labels(outcome).inc(number)
        return done

    def _delete(self, deletes: Sequence[DeleteJob]) -> list[bool]:
        left = retry_while_locked(lambda: self.index.delete([delete.id for delete in deletes]))
        self._metrics.written.labels("deleted").inc(len(left))
        outcomes = []
        for delete in deletes:
            outcomes.append(delete.id in left)
            if delete.id in left:
                left.remove(delete.id)  # of two that delete the same document, the first did
        return outcomes

    def _checksums(self, documents: Iterable[Document]) -> dict[str, bytes]:
        """Look up what is stored, to say of each document whether it was new."""
        with self.index.store.bare_snapshot() as snapshot:
            stored = {document.id: snapshot.get(document.id) for document in documents}
        return {id_: one.checksum for id_, one in stored.items() if one}


def run_batch(jobs: Sequence[Job], work: Callable[[Sequence[Job]], list[Value]]) -> list[Any]:
    """Do jobs together; if that fails, each alone, so that one can't spoil the others'."""
    try:
        return list(work(jobs))
    except IndexLockedError as error:
        return [error] * len(jobs)  # it would be the same for each, after as long a wait
    except Exception as error:
        if len(jobs) == 1:
            return [error]
        return [outcome for job in jobs for outcome in run_batch([job], work)]


def run_in_thread(work: Callable[[], Value]) -> Value:
    """Do something in a thread that ends with it.

    Each thread that has computed keeps workers of its own. With more of these than cores, OpenMP
    has all of them wait for each other less eagerly, and searching gets slower.
    """
    with ThreadPoolExecutor(1) as soon_gone:
        return soon_gone.submit(work).result()


def retry_while_locked(change: Callable[[], Value]) -> Value:
    """Make a change, trying again for a while if another process is writing."""
    end = time.monotonic() + LOCK_PATIENCE
    while True:
        try:
            return change()
        except IndexLockedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


def _documents_in(write: PutJob | DeleteJob) -> int:
    return len(write.documents) if isinstance(write, PutJob) else 1


def _counted(put: PutJob, known: dict[str, bytes]) -> tuple[int, int, int]:
    """Count a request's new, changed and unchanged documents, and note them as known."""
    added = updated = unchanged = 0
    for document in put.documents:
        checksum = document_checksum(document)
        before = known.get(document.id)
        added += before is None
        updated += before not in (None, checksum)
        unchanged += before == checksum
        known[document.id] = checksum
    return added, updated, unchanged
