"""The command on a collection in Milvus: as on a folder, or one sentence that says why not."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sentence_transformers import MultiVectorEncoder

from pseudoquery.cli import cli, main
from pseudoquery.index import Index
from pseudoquery.milvus.index import MilvusIndex
from pseudoquery.search.settings import SearchSettings
from pseudoquery.service.app import create_app
from pseudoquery.service.settings import ServiceSettings
from tests.cluster.conftest import new_name
from tests.support.collection import DOCUMENTS, write_collection
from tests.support.command import Ran, Run, write

pytestmark = pytest.mark.cluster
GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "cluster.md").read_text()
EXACT = ("--rank-by", "vectors", "--exact", "--json")
"""Milvus stores no codes of tokens to rank by."""
RECORDS = [
    {"id": document.id, "title": document.title, "text": document.text, **document.metadata}
    for document in DOCUMENTS
]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("source") / "docs.jsonl", *RECORDS)


@pytest.fixture(scope="module")
def both(
    milvus: str, source: Path, tmp_path_factory: pytest.TempPathFactory, tiny_model_path: str
) -> list[Any]:
    """The same documents, indexed by the same command, in a folder and in Milvus."""
    locations = [tmp_path_factory.mktemp("cli") / "index", f"{milvus}/command"]
    for location in locations:
        main(["index", str(source), "--out", str(location), "--model", tiny_model_path])
    return locations


def refused(ran: Ran, *words: str) -> None:
    assert ran.code == 2
    assert ran.err.startswith("Error: ")
    assert ran.err.count("\n") == 1
    assert "bug" not in ran.err
    for word in words:
        assert word in ran.err


@pytest.mark.parametrize(
    "command",
    [
        ("search", "the river", "--top", "5", *EXACT),
        ("search", "the king", "--where", "n>=10", "--where", "even=true", *EXACT),
        ("list", "--where", "n<4"),
        ("list", "--json"),
    ],
)
def test_the_same_output_as_for_a_folder(
    both: list[Any], run: Run, command: tuple[str, ...]
) -> None:
    name, *rest = command
    folder, there = (run(name, location, *rest) for location in both)
    if "--exact" in rest:  # how many were looked at is the engine's
        hits = [ran.json["hits"] for ran in (folder, there)]
        assert hits[0] == hits[1] != []
        assert there.json["certified"]
    else:
        assert (there.code, there.out) == (folder.code, folder.out)
        assert there.out


def test_the_same_explanation_as_for_a_folder(both: list[Any], run: Run) -> None:
    """The document is encoded again: up to the rounding of what a folder stores."""
    folder, there = (run("explain", at, "the river", "id 3", "--json").json for at in both)
    for name in ("document", "passage"):
        assert there[name] == folder[name]
    assert there["score"] == pytest.approx(folder["score"], rel=1e-3)
    assert there["token_score"] == pytest.approx(folder["token_score"], rel=1e-3)
    for name in ("word", "spans"):
        assert [match[name] for match in there["matches"]] == [
            match[name] for match in folder["matches"]
        ]
    assert "by tokens" in run("explain", both[1], "the river", "id 3").out


def test_facts(both: list[Any], run: Run) -> None:
    facts = run("info", both[1], "--json").json
    assert facts["address"] == both[1]
    assert (facts["documents"], facts["first_step"]) == (len(DOCUMENTS), "FLAT")
    assert "answers can be proven" in run("info", both[1]).out
    assert "Proven exact" in run("search", both[1], "the river", "--exact").out


def test_changes(
    address: str, source: Path, tmp_path: Path, run: Run, tiny_model_path: str
) -> None:
    made = ["index", source, "--out", address, "--model", tiny_model_path, "--k", "2", "--json"]
    ran = run(*made, "--first-step", "HNSW")
    assert ran.json["added"] == len(DOCUMENTS), ran.err
    assert run("info", address, "--json").json["first_step"] == "HNSW"
    refused(run(*made), "already holds a finished index")
    more = write(tmp_path / "more.jsonl", RECORDS[0], {"id": "new", "text": "the castle"})
    done = run("add", address, more, "--json").json
    assert (done["added"], done["unchanged"]) == (1, 1)
    assert run("delete", address, "new", "id 3", "--json").json["deleted"] == ["new", "id 3"]
    refused(run("delete", address, "new"), f"{address} has no document with the id 'new'")
    assert len(run("list", address).out.splitlines()) == len(DOCUMENTS) - 1
    assert run("compact", address).out == f"Milvus has started to compact {address}.\n"
    assert run("export", address, tmp_path / "beir", "--json").json["documents"] == 29


def test_an_interrupted_build_goes_on(
    address: str, source: Path, tmp_path: Path, run: Run, tiny_model_path: str
) -> None:
    half = write(tmp_path / source.name, *RECORDS[:7], "not JSON")
    how = ["--out", address, "--model", tiny_model_path]
    refused(run("index", half, *how), "docs.jsonl line 8")
    refused(run("index", source, *how), "holds an unfinished index of")
    refused(run("index", half, *how, "--k", "3"), "was begun with other settings")
    write(half, *RECORDS)
    assert run("index", half, *how, "--json").json["added"] >= len(DOCUMENTS) - 7
    assert len(run("list", address).out.splitlines()) == len(DOCUMENTS)
    refused(run("index", half, *how), "already holds a finished index")


def test_copies(template: Path, address: str, tmp_path: Path, run: Run) -> None:
    assert run("copy", template, address, "--json").json == {"copied": len(DOCUMENTS)}
    run("delete", address, "id 3", "id 4")
    assert run("copy", template, address).out == f"Copied 2 documents to {address}.\n"
    back = tmp_path / "back"
    assert run("copy", address, back, "--json").json == {"copied": len(DOCUMENTS)}
    asked = ("king of the river", *EXACT)
    assert run("search", back, *asked).out == run("search", template, *asked).out
    assert run("verify", back).code == 0
    refused(run("copy", address, back), f"{back} is there already")
    refused(run("copy", template, tmp_path / "other"), "are of one kind")
    refused(run("copy", template, address, "--first-step", "HNSW"), "is there already")
    refused(run("copy", tmp_path / "nowhere", f"{address}_2"), "nowhere")
    refused(run("info", f"{address}_2"), "has no collection")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back"]


def test_an_evaluation(address: str, tmp_path: Path, run: Run, tiny_model_path: str) -> None:
    data = write_collection(tmp_path / "data")
    figures = []
    for location in (tmp_path / "index", address):
        run("index", data, "--out", location, "--model", tiny_model_path)
        how = ("--split", "dev", "--index", location, "--top", "5", *EXACT)
        figures.append(run("evaluate", data, *how).json["figures"])
    assert figures[0] == figures[1]


def test_the_commands_of_the_guide(
    milvus: str, template: Path, run: Run, tiny_model_path: str, tmp_path: Path, monkeypatch: Any
) -> None:
    """They run as they stand, but for where Milvus is, and on a smaller model."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(template, "my-index")
    write(tmp_path / "docs.jsonl", *RECORDS)
    names = {"/papers": f"/{new_name()}", "/copy": f"/{new_name()}"}
    lines = re.findall(r"^pseudoquery (.*http://localhost:19530/.*)$", GUIDE, re.MULTILINE)
    assert len(lines) == 5
    for line in lines:
        for old, new in (*names.items(), ("http://localhost:19530", milvus)):
            line = line.replace(old, new)
        name, *arguments = shlex.split(line, comments=True)
        if name == "serve":
            assert cli.commands[name].make_context(name, arguments)
            continue
        model = ("--model", tiny_model_path) if name == "index" else ()
        assert run(name, *arguments, *model).code == 0, line
    assert run("list", "my-copy").out == run("list", "my-index").out


def test_what_can_not_be_done_there_is_said(both: list[Any], tmp_path: Path, run: Run) -> None:
    there = both[1]
    refused(run("verify", there), "is kept by Milvus, which checks its files itself")
    refused(run("search", there, "a", "--mode", "bm25"), "by mode 'dense' only")
    refused(run("search", there, "a", "--structure", "hnsw"), "can't be chosen")
    source = write(tmp_path / "a.jsonl", {"id": "a", "text": "a"})
    how = ("--out", tmp_path / "index", "--first-step", "HNSW")
    refused(run("index", source, *how), "--first-step is only for an index in Milvus")
    for local in (("export", there, there), ("bench", "search", "--index", there)):
        refused(run(*local), "is an address; give a path on this machine")
    for wrong in ("http://localhost:1", "milvus://localhost:1/papers"):
        refused(run("info", wrong), "write it as http://HOST:PORT/NAME")
    refused(run("info", "http://127.0.0.1:9/papers"), "no Milvus answers at")
    assert not (tmp_path / "index").exists()


def test_a_password_in_an_address_is_refused_and_not_shown(run: Run) -> None:
    ran = run("info", "http://root:secret@localhost:19530/papers")
    refused(ran, "in the environment variable MILVUS_TOKEN")
    assert "secret" not in ran.err


def test_the_token_is_kept_nowhere(
    address: str, template: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILVUS_TOKEN", "root:hush-hush")
    shown = run("copy", template, address), run("info", address, "--json")
    run("copy", address, tmp_path / "back")
    assert all(ran.code == 0 for ran in shown)
    assert not any("hush" in ran.out + ran.err for ran in shown)
    files = [path for path in (tmp_path / "back").rglob("*") if path.is_file()]
    assert files
    assert not any(b"hush" in path.read_bytes() for path in files)
    rows = MilvusIndex.open(address).collection.rows("place < 0", ["content"])
    assert "hush" not in json.dumps(list(rows))


@pytest.fixture
def client(both: list[Any], tiny_model: MultiVectorEncoder) -> Iterator[TestClient]:
    index = MilvusIndex.open(both[1])
    with TestClient(create_app(index, ServiceSettings()), base_url="http://localhost") as client:
        yield client


def test_the_service(both: list[Any], client: TestClient) -> None:
    def ask(path: str, **body: Any) -> Any:
        return client.post(path, json=body).json()

    folder = Index.open(both[0])
    hits = ask("/search", query="the river", exact=True)["answers"][0]["hits"]
    expected = folder.search(
        "the river", exact=True, settings=SearchSettings(rank_by="vectors")
    ).hits
    assert [(hit["id"], hit["score"]) for hit in hits] == [(hit.id, hit.score) for hit in expected]
    put = client.put("/documents/new", json={"text": "the castle"}).json()
    assert (put["added"], put["updated"]) == (1, 0)
    assert client.get("/documents/new").json()["text"] == "the castle"
    assert ask("/explain", query="castle", id="new")["pseudo_queries"]
    assert client.delete("/documents/new").json() == {"deleted": "new"}
    assert client.get("/readyz").status_code == client.get("/metrics").status_code == 200
    facts = client.get("/info").json()["index"]
    assert facts["documents"] == len(DOCUMENTS)
    assert not {"address", "folder"} & facts.keys()
    refusal = client.post("/compare", json={"query": "the river"})
    assert refusal.status_code == 422
    assert "Milvus" in refusal.json()["error"]["message"]
