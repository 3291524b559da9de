"""An index that many clients use at once: searches run together, changes in order.

    one thread searches     it encodes and ranks all waiting questions together
    one thread writes       it encodes and commits all waiting changes together
    one thread explains     a document whose tokens are not stored is encoded again
    one thread compares     it scores every document, each as one vector
    a few threads read      documents by id, and facts

A reader sees one committed state of the store, so it never waits for the writer. All threads may
run the encoder at the same time, and the system shares the processor between them. When they took
turns, a question had to wait until a whole batch of documents was encoded.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import groupby, islice
from pathlib import Path
from typing import Any, TypeVar, cast

from pseudoquery.encoding.encode import encode_queries
from pseudoquery.errors import IndexLockedError
from pseudoquery.index import Index
from pseudoquery.records import Added, Answer, Document, Explanation
from pseudoquery.search.settings import Mode, SearchSettings
from pseudoquery.service.batcher import Batcher
from pseudoquery.service.document_map import DocumentMap, map_document
from pseudoquery.service.errors import SMALLER_SEARCH, Refused, too_large_answer
from pseudoquery.service.metrics import Metrics
from pseudoquery.service.one_vector import search_one_vector
from pseudoquery.storage.incoming import BATCH_DOCUMENTS
from pseudoquery.storage.schema import document_checksum

Value = TypeVar("Value")
Job = TypeVar("Job")
BATCH_QUERIES = 64
"""How many questions are encoded together, unless one request alone has more."""
READERS = 4
"""How many threads read documents and facts."""
LOCK_PATIENCE = 5.0
"""How many seconds to wait while another process writes to the index."""


@dataclass(frozen=True, slots=True)
class SearchJob:
    """The questions of one request, and how to search for their answers."""

    queries: tuple[str, ...]
    top: int
    where: Mapping[str, Any]
    exact: bool
    mode: Mode
    settings: SearchSettings
    include_text: bool = True

    @property
    def key(self) -> str:
        """Everything but the questions; searches with equal keys can run together.

        It is text because True, 1 and 1.0 are equal in Python, but not in a filter.
        """
        settings = [self.top, self.where, self.exact, self.mode, asdict(self.settings)]
        return json.dumps(settings, sort_keys=True)


@dataclass(frozen=True, slots=True)
class PutJob:
    """Documents to add. They replace documents with the same ids."""

    documents: tuple[Document, ...]


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """The id of a document to delete."""

    id: str


class ServedIndex:
    """An index, and the threads that use it for the service."""

    def __init__(self, index: Index, metrics: Metrics, response_bytes: int = 64 << 20) -> None:
        self.index = index
        self._response_bytes = response_bytes
        self._metrics = metrics
        self._searches: Batcher[SearchJob, list[Answer]] = Batcher(
            "pseudoquery-search", self._search_together, lambda job: len(job.queries), BATCH_QUERIES
        )
        # `Index.add` counts the documents that it cuts, but does not say which they are. So where
        # documents may be cut, each request is added alone.
        batch_size = BATCH_DOCUMENTS if index.settings.long == "windows" else 1
        self._writes: Batcher[PutJob | DeleteJob, Added | bool] = Batcher(
            "pseudoquery-write", self._write_together, _count_documents, batch_size
        )
        self._explainer = ThreadPoolExecutor(1, "pseudoquery-explain")
        self._comparer = ThreadPoolExecutor(1, "pseudoquery-compare")
        self._readers = ThreadPoolExecutor(READERS, "pseudoquery-read")
        metrics.watch_queue("search", lambda: self._searches.waiting)
        metrics.watch_queue("write", lambda: self._writes.waiting)

    def warm_up(self) -> None:
        """Load the model and the vectors, so that the first question does not wait for them."""
        run_in_thread(lambda: self.index.search("ready", 1))

    def close(self) -> None:
        """Finish every request that was accepted, and stop."""
        self._searches.close()
        self._writes.close()
        self._explainer.shutdown()
        self._comparer.shutdown()
        self._readers.shutdown()

    def search(self, job: SearchJob) -> Future[list[Answer]]:
        """Answer questions, together with others that wait."""
        return self._searches.submit(job)

    def put(self, documents: Iterable[Document]) -> Future[Added]:
        """Add or replace documents. When the future is done, they are on disk."""
        return cast(Future[Added], self._writes.submit(PutJob(tuple(documents))))

    def delete(self, id: str) -> Future[bool]:  # noqa: A002
        """Delete a document, and return whether the index had it."""
        return cast(Future[bool], self._writes.submit(DeleteJob(id)))

    def explain(self, query: str, id: str) -> Future[Explanation | None]:  # noqa: A002
        """Explain why a document matches a question; None if the index has no such document."""
        return self._explainer.submit(self._explain, query, id)

    def map(self, id: str, query: str | None) -> Future[DocumentMap | None]:  # noqa: A002
        """Map a document's pseudo queries on a plane; None if the index has no such document."""
        return self._explainer.submit(self._map, id, query)

    def search_one_vector(self, query: str, top: int) -> Future[Answer]:
        """Answer a question as if each document had one vector."""
        return self._comparer.submit(search_one_vector, self.index, query, top)

    def get(self, id: str) -> Future[Document | None]:  # noqa: A002
        """Read a document; None if the index has no such document."""
        return self._readers.submit(self.index.get, id)

    def count(self) -> Future[int]:
        """Count the documents. It fails if the index can't be read."""
        return self._readers.submit(self.index.__len__)

    def facts(self) -> Future[dict[str, Any]]:
        """Return facts about the index, without the folders of the index and its model."""
        return self._readers.submit(self._facts)

    def _facts(self) -> dict[str, Any]:
        locations = ("folder", "address")
        facts = {name: value for name, value in self.index.info().items() if name not in locations}
        model = facts["model"]
        return facts | {"model": Path(model).name if Path(model).is_absolute() else model}

    def _explain(self, query: str, id: str) -> Explanation | None:  # noqa: A002
        return None if self.index.get(id) is None else self.index.explain(query, id)

    def _map(self, id: str, query: str | None) -> DocumentMap | None:  # noqa: A002
        encoded = self.index.encoded(id)
        if encoded is None:
            return None
        question = None if query is None else encode_queries(self.index.model, [query])[0]
        return map_document(encoded, question, self.index.representation)

    def _search_together(self, searches: list[SearchJob]) -> Sequence[list[Answer] | Exception]:
        groups: dict[str, list[int]] = defaultdict(list)
        for position, search in enumerate(searches):
            groups[search.key].append(position)
        outcomes: dict[int, list[Answer] | Exception] = {}
        for positions in groups.values():
            group = [searches[position] for position in positions]
            outcomes |= zip(positions, run_batch(group, self._search_group), strict=True)
        return [outcomes[position] for position in range(len(searches))]

    def _search_group(self, searches: Sequence[SearchJob]) -> list[list[Answer] | Refused]:
        queries = [query for search in searches for query in search.queries]
        first = searches[0]
        self._metrics.batches.observe(len(queries))
        answers = iter(
            self.index.search_many(
                queries,
                first.top,
                where=first.where,
                exact=first.exact,
                mode=first.mode,
                settings=first.settings,
            )
        )
        return [self._take_answers(search, answers) for search in searches]

    def _take_answers(self, search: SearchJob, answers: Iterator[Answer]) -> list[Answer] | Refused:
        """Keep the answers of one request, as long as they can be sent."""
        taken: list[Answer] = []
        size = 0
        for answer in islice(answers, len(search.queries)):
            kept = answer if search.include_text else _without_text(answer)
            size += sum(len(hit.title) + len(hit.text) for hit in kept.hits)
            if size <= self._response_bytes:  # a character is one byte or more
                taken.append(kept)
        if size > self._response_bytes:
            return too_large_answer(self._response_bytes, SMALLER_SEARCH)
        return taken

    def _write_together(
        self, writes: list[PutJob | DeleteJob]
    ) -> Sequence[Added | bool | Exception]:
        """Make changes in their order; neighbours of the same kind are made together."""
        outcomes: list[Added | bool | Exception] = []
        for kind, group in groupby(writes, key=type):
            if kind is PutJob:
                outcomes += run_batch(cast(list[PutJob], list(group)), self._put)
            else:
                outcomes += run_batch(cast(list[DeleteJob], list(group)), self._delete)
        return outcomes

    def _put(self, puts: Sequence[PutJob]) -> list[Added]:
        documents = [document for put in puts for document in put.documents]
        checksums = self._checksums(documents)
        counts = [_count_changes(put, checksums) for put in puts]
        cut = retry_while_locked(lambda: self.index.add(documents)).cut
        changes = [replace(count, cut=cut) for count in counts]  # only one, if any can be cut
        total = sum(changes, Added())
        for outcome in ("added", "updated", "unchanged"):
            self._metrics.written.labels(outcome).inc(getattr(total, outcome))
        return changes

    def _delete(self, deletes: Sequence[DeleteJob]) -> list[bool]:
        ids = [delete.id for delete in deletes]
        deleted = retry_while_locked(lambda: self.index.delete(ids))
        self._metrics.written.labels("deleted").inc(len(deleted))
        outcomes = []
        for id_ in ids:
            outcomes.append(id_ in deleted)
            if id_ in deleted:
                deleted.remove(id_)  # if two requests delete a document, the first did it
        return outcomes

    def _checksums(self, documents: Iterable[Document]) -> dict[str, bytes]:
        """Look up the stored documents, to tell which of the given ones are new."""
        with self.index.store.bare_snapshot() as snapshot:
            stored = {document.id: snapshot.get(document.id) for document in documents}
        return {id_: document.checksum for id_, document in stored.items() if document}


def run_batch(jobs: Sequence[Job], work: Callable[[Sequence[Job]], list[Value]]) -> list[Any]:
    """Run jobs together. If that fails, run each alone, so that one can't make others fail."""
    try:
        return list(work(jobs))
    except IndexLockedError as error:
        return [error] * len(jobs)  # each alone would wait as long, and fail too
    except Exception as error:
        if len(jobs) == 1:
            return [error]
        return [outcome for job in jobs for outcome in run_batch([job], work)]


def run_in_thread(work: Callable[[], Value]) -> Value:
    """Run a function in a thread that ends with it.

    OpenMP keeps a team of workers for every thread that has computed. With more workers than
    cores, they wait for each other less actively, and every search gets slower.
    """
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(work).result()


def retry_while_locked(change: Callable[[], Value]) -> Value:
    """Make a change, and try again for a while if another process is writing."""
    end = time.monotonic() + LOCK_PATIENCE
    while True:
        try:
            return change()
        except IndexLockedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


def _without_text(answer: Answer) -> Answer:
    return replace(answer, hits=tuple(replace(hit, text="") for hit in answer.hits))


def _count_documents(write: PutJob | DeleteJob) -> int:
    return len(write.documents) if isinstance(write, PutJob) else 1


def _count_changes(put: PutJob, checksums: dict[str, bytes]) -> Added:
    """Count a request's new, changed and unchanged documents, and note their checksums."""
    added = updated = unchanged = 0
    for document in put.documents:
        checksum = document_checksum(document)
        before = checksums.get(document.id)
        added += before is None
        updated += before not in (None, checksum)
        unchanged += before == checksum
        checksums[document.id] = checksum
    return Added(added, updated, unchanged)
