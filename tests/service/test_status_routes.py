"""Facts, health and metrics."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from pseudoquery.index import Index
from pseudoquery.version import VERSION
from tests.support.collection import DOCUMENTS
from tests.support.serving import Running, running


def test_info_tells_no_paths(service: Running, tiny_model_path: str) -> None:
    reply = service.ask("GET", "/info")
    facts = reply.json
    assert facts["version"] == VERSION
    assert facts["index"]["documents"] == len(DOCUMENTS)
    assert facts["index"]["representation"]["k"] == 4
    assert facts["limits"]["top"] == 100
    assert facts["index"]["model"] == Path(tiny_model_path).name
    assert str(Path(tiny_model_path).parent) not in reply.content.decode()
    assert "folder" not in facts["index"]


def test_health(service: Running) -> None:
    for path in ("/healthz", "/readyz"):
        reply = service.ask("GET", path)
        assert (reply.status, reply.json) == (200, {"status": "ok"})


def test_not_ready_when_the_index_can_not_be_read(served: Index) -> None:
    with running(served) as service:
        database = served.folder / "index.sqlite"
        database.rename(served.folder / "away")
        reply = service.ask("GET", "/readyz")
        assert (reply.status, reply.code) == (503, "unavailable")
        assert reply.headers["retry-after"] == "1"
        assert service.ask("GET", "/healthz").status == 200
        searched = service.ask("POST", "/search", {"query": "king"})
        assert (searched.status, searched.code) == (503, "unavailable")
        assert str(served.folder) not in searched.message
        (served.folder / "away").rename(database)
        assert service.ask("GET", "/readyz").status == 200


def test_metrics(service: Running) -> None:
    service.search(["king", "queen"])
    service.ask("PUT", "/documents/secret%20id", {"text": "x"})
    service.ask("DELETE", "/documents/secret%20id")
    service.ask("GET", "/secret-path")
    reply = service.ask("GET", "/metrics")
    assert reply.headers["content-type"].startswith("text/plain")
    text = reply.content.decode()
    assert "secret" not in text
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["pseudoquery_requests_total", "/search", "200", "POST"] == 1
    assert samples["pseudoquery_requests_total", "404", "GET", "other"] == 1
    assert samples["pseudoquery_search_batch_queries_sum",] == 2
    assert samples["pseudoquery_documents_written_total", "added"] == 1
    assert samples["pseudoquery_documents_written_total", "deleted"] == 1
    assert samples["pseudoquery_documents",] == len(DOCUMENTS)
    assert samples["pseudoquery_waiting", "search"] == 0
    assert samples["pseudoquery_requests_in_progress",] == 1
    assert samples["pseudoquery_request_seconds_count", "/search"] == 1
