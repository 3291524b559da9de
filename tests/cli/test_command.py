"""The command: what it prints, what it refuses, and that every option does something."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import pytest

from pseudoquery.cli import cli, main, search_commands
from pseudoquery.index import Index
from pseudoquery.storage.schema import FORMAT
from pseudoquery.storage.segments import segment_path
from pseudoquery.version import VERSION
from tests.support.command import Ran, Run, write

WORDS = ["river", "city", "king", "queen", "war", "peace", "music", "song", "book", "water", "fire"]
RECORDS: list[dict[str, Any]] = [
    {
        "id": f"id {number}",
        "title": f"{WORDS[number % 11]} history" if number % 2 else "",
        "text": " ".join(WORDS[(number * step) % 11] for step in range(1, 9)) + f" {number}",
        "year": 1990 + number,
        "topic": WORDS[number % 3],
    }
    for number in range(40)
]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory, tiny_model_path: str) -> Path:
    """An index of all records, made by the command; not to be changed."""
    folder = tmp_path_factory.mktemp("built")
    source = write(folder / "docs.jsonl", *RECORDS)
    main(["index", str(source), "--out", str(folder / "index"), "--model", tiny_model_path])
    return folder / "index"


@pytest.fixture
def index(built: Path, tmp_path: Path) -> Path:
    """A copy of that index, to be changed."""
    return Path(shutil.copytree(built, tmp_path / "index"))


def content(folder: Path) -> Any:
    """Read all that an index holds."""
    opened = Index.open(folder)
    answer = opened.search("the king of the city", 100)
    return list(opened.documents()), [(hit.id, hit.score) for hit in answer.hits]


def refused(ran: Ran, *words: str) -> None:
    """Check that bad input got one sentence on stderr that says what to do, and exit code 2."""
    assert ran.code == 2
    assert ran.out == ""
    assert "Traceback" not in ran.err
    assert "bug" not in ran.err
    assert ran.err.startswith("Error: ")
    assert ran.err.count("\n") == 1
    assert re.search(r"[.)]\n$|pip install -U pseudoquery\n$", ran.err)
    assert ".." not in ran.err.replace("...", "")
    for word in words:
        assert word in ran.err


# --- every command, for people and for programs


def test_index(run: Run, tmp_path: Path, tiny_model_path: str) -> None:
    source = write(tmp_path / "docs.jsonl", *RECORDS[:3])
    for_people = run("index", source, "--out", tmp_path / "a", "--model", tiny_model_path)
    assert (for_people.code, for_people.out) == (0, "Indexed 3 documents.\n")
    ran = run("index", source, "--out", tmp_path / "b", "--model", tiny_model_path, "--json")
    assert ran.json == {"added": 3, "updated": 0, "unchanged": 0, "cut": 0, "skipped": 0}
    assert content(tmp_path / "a") == content(tmp_path / "b")
    documents, _ = content(tmp_path / "a")
    assert documents[1].metadata == {"year": 1991, "topic": "city"}
    assert documents[1].title == "city history"


def test_index_options_change_the_index(run: Run, tmp_path: Path, tiny_model_path: str) -> None:
    source = write(tmp_path / "docs.jsonl", *RECORDS[:5], {"id": "long", "text": "king " * 300})

    def facts(*options: str) -> dict[str, Any]:
        out = tmp_path / f"index {len(list(tmp_path.iterdir()))}"
        done = run("index", source, "--out", out, "--model", tiny_model_path, "--json", *options)
        made: dict[str, Any] = run("info", out, "--json").json
        assert done.json["added"] == made["documents"] == 6
        return {**made, "cut": done.json["cut"]}

    plain = facts()
    assert plain["model"] == tiny_model_path
    assert plain["cut"] == 0
    assert facts("--k", "2")["representation"]["k"] == 2
    assert facts("--k", "2")["vectors"] < plain["vectors"]
    paper = facts("--preset", "paper-passage")
    assert (paper["representation"]["query"], paper["representation"]["k"]) == ("cls", 4)
    assert (plain["long"], paper["long"], paper["cut"]) == ("windows", "truncate", 1)
    whole = facts("--preset", "paper-passage", "--k", "3", "--long", "windows")
    assert whole["representation"] == {**paper["representation"], "k": 3}
    assert (whole["long"], whole["cut"]) == ("windows", 0)
    assert facts("--preset", "single-vector")["vectors"] == 6
    assert facts("--long", "truncate")["cut"] == 1
    wide = facts("--vector-type", "float32")["vector_bytes_per_document"]
    assert wide == pytest.approx(2 * plain["vector_bytes_per_document"], abs=1)
    ran = run("index", source, "--out", tmp_path / "cut", "--model", tiny_model_path,
              "--long", "truncate")  # fmt: skip
    assert "Only the beginning of 1 long document was read" in ran.out
    narrow = facts("--vector-type", "int8")["vector_bytes_per_document"]
    assert narrow < plain["vector_bytes_per_document"] < wide
    assert facts("--precision", "bfloat16")["precision"] == "bfloat16"


def test_the_default_model_is_another(
    run: Run, tmp_path: Path, tiny_model_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def load(name: object, representation: object, precision: object) -> Any:
        from pseudoquery.encoding.model import load_model

        if isinstance(name, str):
            asked.append(name)
        return load_model(tiny_model_path)

    monkeypatch.setattr("pseudoquery.index._loaded", load)
    source = write(tmp_path / "docs.jsonl", RECORDS[0])
    assert run("index", source, "--out", tmp_path / "a").code == 0
    assert run("index", source, "--out", tmp_path / "b", "--model", "some/model").code == 0
    assert asked == ["default", "some/model"]


def test_index_from_standard_input(tmp_path: Path, tiny_model_path: str) -> None:
    """The whole program, once, as a shell runs it: results on stdout, progress on stderr only."""
    program = Path(sys.executable).parent / "pseudoquery"
    done = subprocess.run(
        [program, "index", "-", "--out", tmp_path / "index", "--model", tiny_model_path, "--json"],
        input="".join(json.dumps(one) + "\n" for one in RECORDS),
        capture_output=True,
        text=True,
        env={**os.environ, "TTY_COMPATIBLE": "1", "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["added"] == 40
    assert "Encoding" in done.stderr


def test_add(run: Run, index: Path, tmp_path: Path) -> None:
    changed = {**RECORDS[1], "text": "changed"}
    more = write(tmp_path / "more.jsonl", RECORDS[0], changed, {"id": "new", "text": "new"})
    ran = run("add", index, more)
    assert ran.out == "Indexed 1 document, updated 1, 1 were already there.\n"
    assert run("add", index, more, "--json").json == (
        {"added": 0, "updated": 0, "unchanged": 3, "cut": 0, "skipped": 0}
    )
    documents, _ = content(index)
    assert len(documents) == 41
    assert {one.text for one in documents} >= {"changed", "new"}


def test_delete(run: Run, index: Path) -> None:
    assert run("delete", index, "id 1", "id 2").out == "Deleted 2 documents.\n"
    assert run("delete", index, "id 3", "--json").json == {"deleted": ["id 3"], "missing": []}
    documents, results = content(index)
    assert len(documents) == len(results) == 37


def test_search(run: Run, built: Path) -> None:
    ran = run("search", built, "the king of the city", "--json")
    assert set(ran.json) == {"query", "hits", "certified", "candidates"}
    assert ran.json["query"] == "the king of the city"
    assert len(ran.json["hits"]) == 10
    first = ran.json["hits"][0]
    record = next(one for one in RECORDS if one["id"] == first["id"])
    assert first["text"] == record["text"]
    assert first["metadata"] == {"year": record["year"], "topic": record["topic"]}
    assert sum(first["weights"]) == pytest.approx(1)
    shown = run("search", built, "the king of the city").out
    places = [shown.index(f"{hit['id']}  {hit['score']:.3f}") for hit in ran.json["hits"]]
    assert places == sorted(places)
    assert "Proven exact" in shown
    assert "These are all" not in shown


def test_search_options_change_the_answer(run: Run, built: Path) -> None:
    def search(*options: str) -> Any:
        return run("search", built, "the king of the city", "--json", *options).json

    def ids(answer: Any) -> list[str]:
        return [hit["id"] for hit in answer["hits"]]

    plain = search()
    assert ids(search("--top", "3")) == ids(plain)[:3]
    years = search("--where", "year>=2000", "--where", "year<2003")
    assert sorted(ids(years)) == ["id 10", "id 11", "id 12"]
    assert len(search("--where", "topic in king,queen", "--top", "40")["hits"]) == 13
    words, both = search("--mode", "bm25"), search("--mode", "hybrid")
    assert ids(words) != ids(plain) != ids(both) != ids(words)
    assert words["hits"][0]["weights"] == []
    wide, narrow = search("--structure", "flat"), search("--structure", "flat", "--recall", "12")
    assert narrow["candidates"] < wide["candidates"] == 40
    assert search("--recall-vectors", "3")["candidates"] <= 3
    graph = search("--structure", "hnsw", "--recall", "10")
    assert not graph["certified"]
    proven = search("--structure", "hnsw", "--recall", "10", "--exact")
    assert proven["certified"]
    assert ids(proven) == ids(plain)
    fused = search("--mode", "hybrid", "--fusion", "rrf")
    assert [hit["score"] for hit in fused["hits"]] != [hit["score"] for hit in both["hits"]]
    meaning = search("--mode", "hybrid", "--fusion", "weighted", "--weight", "1")
    assert ids(meaning) == ids(plain)
    assert ids(search("--mode", "hybrid", "--fusion", "weighted", "--weight", "0")) != ids(plain)


def test_search_says_when_there_is_no_more(run: Run, built: Path) -> None:
    ran = run("search", built, "king", "--top", 1000)
    assert "These are all that were found among 40 documents." in ran.out
    assert len(run("search", built, "king", "--top", 1000, "--json").json["hits"]) == 40
    nothing = run("search", built, "xylophone", "--mode", "bm25")
    assert nothing.code == 0
    assert nothing.out.startswith("Nothing was found.")


def test_explain(run: Run, built: Path) -> None:
    explained = run("explain", built, "the king of the city", "id 3", "--json").json
    assert explained["document"]["text"] == RECORDS[3]["text"]
    weights = [one["weight"] for one in explained["pseudo_queries"]]
    assert weights == sorted(weights, reverse=True)
    start, end = (explained["passage"][name] for name in ("start", "end"))
    assert 0 <= start < end <= len(RECORDS[3]["text"])
    shown = run("explain", built, "the king of the city", "id 3").out
    assert f"{weights[0]:.3f}" in shown
    assert f"score {explained['score']:.4f}" in shown


def test_list(run: Run, built: Path) -> None:
    shown = run("list", built).out.splitlines()
    assert [line.split("\t")[0] for line in shown] == [one["id"] for one in RECORDS]
    assert shown[1] == f"id 1\tcity history {RECORDS[1]['text']}"
    listed = run("list", built, "--json").lines
    assert [one["id"] for one in listed] == [one["id"] for one in RECORDS]
    assert listed[5]["metadata"] == {"year": 1995, "topic": "king"}
    few = run("list", built, "--where", "year=1993", "--json").lines
    assert [one["id"] for one in few] == ["id 3"]
    assert run("list", built, "--where", "year>3000") == Ran(0, "", "")


def test_info(run: Run, built: Path) -> None:
    facts = run("info", built, "--json").json
    assert facts["documents"] == 40
    assert facts["format"] == FORMAT
    assert facts["folder"] == str(built)
    shown = run("info", built).out
    assert f"{facts['vectors']:,}" in shown
    assert "deleted awaiting compaction" in shown


def test_verify(run: Run, index: Path) -> None:
    assert run("verify", index).out == f"{index} is sound.\n"
    assert run("verify", index, "--json").json == {"ok": True, "problems": [], "repaired": 0}
    before = content(index)
    path = segment_path(index, 1)
    path.write_bytes(path.read_bytes()[:-1] + b"\x55")
    ran = run("verify", index, "--json")
    assert ran.code == 2
    assert not ran.json["ok"]
    assert len(ran.json["problems"]) == 1
    refused(run("verify", index), "segment 1", f"`pseudoquery verify {index} --repair`")
    assert (
        run("verify", index, "--repair").out == f"{index} is sound (40 documents encoded again).\n"
    )
    assert content(index) == before
    assert run("verify", index, "--repair", "--json").json["repaired"] == 0


def test_what_can_t_be_repaired_is_said(run: Run, index: Path) -> None:
    with closing(sqlite3.connect(index / "index.sqlite", isolation_level=None)) as connection:
        connection.execute("UPDATE documents SET metadata = 'no JSON' WHERE id = 'id 3'")
    refused(run("verify", index, "--repair"), "document 'id 3'", "restore it from a backup")
    listed = run("list", index)
    assert len(listed.out.splitlines()) == 3, "those before it"
    refused(listed._replace(out=""), "the document 'id 3'", "restore the index from a backup")


def test_compact(run: Run, index: Path) -> None:
    run("delete", index, *(one["id"] for one in RECORDS[5:]))
    before = content(index)
    vectors = run("info", index, "--json").json["vector_bytes"]
    ran = run("compact", index, "--json").json
    assert ran["bytes_after"] < ran["bytes_before"]
    assert run("info", index, "--json").json["vector_bytes"] < vectors / 2
    assert content(index) == before
    assert re.fullmatch(r"[\d,]+ bytes before, [\d,]+ after\.\n", run("compact", index).out)


def test_demo_makes_its_index_where_it_is_told(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    refused(run("demo", "--folder", tmp_path / "other"), str(tmp_path / "other"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo-index").write_text("a file")
    refused(run("demo"), "demo-index")


def test_version_and_help(run: Run) -> None:
    assert run("--version").out == f"pseudoquery, version {VERSION}\n"
    assert run("-h").out == run("--help").out
    for name, command in cli.commands.items():
        shown = run(name, "--help").out
        assert command.help
        for option in command.params:
            if isinstance(option, click.Option):
                assert option.help, f"{name} {option.opts}"
                assert option.opts[0] in shown


def test_every_option_is_used_in_a_test() -> None:
    here = Path(__file__).parents[1]
    tests = "".join(
        (here / name).read_text()
        for name in (
            "cluster/test_milvus_cli.py",
            "bench/test_bench.py",
            "cli/test_command.py",
            "cli/test_research.py",
            "cli/test_serve.py",
            "research/test_run.py",
            "corpus/test_export.py",
            "corpus/test_huggingface.py",
            "cluster/test_build.py",
            "training/test_train.py",
        )
    )
    for name, command in cli.commands.items():
        assert f'run("{name}"' in tests or f'main(["{name}"' in tests
        for option in command.params:
            if isinstance(option, click.Option):
                assert f'"{option.opts[0]}"' in tests


# --- imports


def loaded(program: str) -> set[str]:
    """Run a program, and say which heavy libraries it loaded."""
    heavy = "{'torch', 'transformers', 'sentence_transformers', 'numpy', 'rich', 'faiss', 'scipy'}"
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys\nprint(*({heavy} & set(sys.modules)))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.splitlines()[-1].split())


def test_help_imports_nothing_heavy() -> None:
    assert loaded("from pseudoquery.cli import main\nmain(['--help'])") == set()
    assert loaded("from pseudoquery.cli import main\nmain(['search', '--help'])") == set()


def test_the_package_imports_no_model_library() -> None:
    heavy = {"torch", "transformers", "sentence_transformers", "faiss"}
    assert not loaded("import pseudoquery") & heavy
    assert not loaded("import pseudoquery; pseudoquery.Index; pseudoquery.SearchSettings") & heavy


# --- bad input: documents

BAD_LINES = {
    "not JSON": "{not JSON",
    "an array": "[1, 2]",
    "no id": {"text": "moon"},
    "an empty id": {"id": "", "text": "moon"},
    "no text": {"id": "x"},
    "text that is a number": {"id": "x", "text": 7},
    "metadata that is a list": {"id": "x", "text": "moon", "metadata": [1]},
    "a lone surrogate": '{"id": "x", "text": "a \\ud800 b"}',
    "a number too large": {"id": "x", "text": "moon", "n": 2**70},
    "NaN": '{"id": "x", "text": "moon", "n": NaN}',
}


@pytest.mark.parametrize("line", BAD_LINES.values(), ids=BAD_LINES.keys())
def test_malformed_records_stop_or_are_skipped(
    run: Run, index: Path, tmp_path: Path, line: Any
) -> None:
    source = write(tmp_path / "new.jsonl", {"id": "a", "text": "moon"}, line, RECORDS[0])
    before = content(index)
    refused(run("add", index, source), f"{source} line 2", "--on-error skip")
    assert content(index) == before
    skipped = run("add", index, source, "--on-error", "skip", "--json")
    assert skipped.code == 0
    assert skipped.json == {"added": 1, "updated": 0, "unchanged": 1, "cut": 0, "skipped": 1}
    assert f"Skipped: {source} line 2" in skipped.err
    assert len(content(index)[0]) == 41
    assert run("add", index, source, "--on-error", "skip").out == (
        "Indexed 0 documents, 2 were already there, skipped 1.\n"
    )


def test_only_the_first_skipped_records_are_named(run: Run, index: Path, tmp_path: Path) -> None:
    source = write(tmp_path / "new.jsonl", *["broken"] * 20)
    ran = run("add", index, source, "--on-error", "skip", "--json")
    assert ran.json["skipped"] == 20
    assert ran.err.count("Skipped: ") == 6
    assert "more, which are only counted" in ran.err


def test_duplicate_ids_stop_or_are_skipped(run: Run, tmp_path: Path, tiny_model_path: str) -> None:
    source = write(tmp_path / "docs.jsonl", *RECORDS[:4], {**RECORDS[1], "text": "another"})
    made = tmp_path / "index"
    ran = run("index", source, "--out", made, "--model", tiny_model_path)
    refused(ran, f"{source} line 5", "the id 'id 1' was already used in", "line 2")
    skipped = run(
        "index", source, "--out", made, "--model", tiny_model_path, "--on-error", "skip", "--json"
    )
    assert (skipped.json["added"], skipped.json["skipped"]) == (4, 1)
    assert run("list", made, "--where", "id=id 1", "--json").json["text"] == RECORDS[1]["text"]


def test_an_unfinished_index_can_be_finished_with_skip(
    run: Run, tmp_path: Path, tiny_model_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pseudoquery.storage.incoming.BATCH_DOCUMENTS", 2)
    source = write(tmp_path / "docs.jsonl", *RECORDS[:5], "broken", *RECORDS[5:7])
    command = ["index", source, "--out", tmp_path / "index", "--model", tiny_model_path, "--json"]
    refused(run(*command), "line 6")
    assert run(*command, "--on-error", "skip").json == (
        {"added": 3, "updated": 0, "unchanged": 4, "cut": 0, "skipped": 1}
    )


def test_blank_documents_are_kept_and_found(run: Run, index: Path, tmp_path: Path) -> None:
    source = write(
        tmp_path / "blank.jsonl",
        {"id": "empty", "text": "", "kind": "blank"},
        {"id": "space", "text": " \n\t\u00a0", "kind": "blank"},
        {"id": "titled", "text": "", "title": "xylophone", "kind": "blank"},
    )
    assert run("add", index, source, "--json").json["added"] == 3
    listed = run("list", index, "--where", "kind=blank", "--json").lines
    assert [one["id"] for one in listed] == ["empty", "space", "titled"]
    assert listed[1]["text"] == " \n\t\u00a0"
    hits = run("search", index, "xylophone", "--mode", "bm25", "--json").json["hits"]
    assert [hit["id"] for hit in hits] == ["titled"]
    for mode in ("dense", "bm25", "hybrid"):
        assert run("search", index, "xylophone", "--mode", mode, "--top", 100).code == 0
    assert run("info", index, "--json").json["without_vectors"] == 2
    explained = run("explain", index, "king", "empty", "--json").json
    assert (explained["score"], explained["pseudo_queries"]) == (None, [])
    assert run("explain", index, "king", "empty").code == 0
    assert run("verify", index).code == 0


STRANGE = {
    "emoji": "😀 family 👨‍👩‍👧 zebra",
    "NUL": "a\0b zebra \0",
    "right to left": "שלום عالم zebra \u202e",
    "controls": "zebra \x1b[2J \x07 \r\n \x9b",
    "separators": "zebra \u2028 \u2029 \x85 \x0b \x1c",
    "quotes": "zebra '; DROP TABLE documents; --\" [bold] {}",
}


@pytest.mark.parametrize("text", STRANGE.values(), ids=STRANGE.keys())
def test_strange_texts_go_in_and_come_out(run: Run, index: Path, tmp_path: Path, text: str) -> None:
    record = {"id": f"id {text}", "title": text, "text": text, "strange": text}
    source = write(tmp_path / "strange.jsonl", record)
    assert run("add", index, source, "--json").json["added"] == 1
    hits = run("search", index, "zebra", "--mode", "bm25", "--json").json["hits"]
    assert [(hit["id"], hit["text"], hit["title"]) for hit in hits] == [(record["id"], text, text)]
    assert hits[0]["metadata"] == {"strange": text}
    for command in (["list", index], ["search", index, text], ["search", index, text, "--mode",
                    "hybrid"], ["explain", index, "king", record["id"]]):  # fmt: skip
        assert run(*command).code == 0
    assert run("verify", index).code == 0
    assert run("delete", index, record["id"], "--json").json["deleted"] == [record["id"]]


@pytest.mark.slow
def test_a_document_of_ten_megabytes(run: Run, index: Path, tmp_path: Path) -> None:
    text = ("q" * 120 + " the king ") * (10**7 // 130)
    source = write(tmp_path / "large.jsonl", {"id": "large", "text": text})
    assert run("add", index, source, "--json").json == (
        {"added": 1, "updated": 0, "unchanged": 0, "cut": 0, "skipped": 0}
    )
    hits = run("search", index, "the king", "--where", "id=large", "--json").json["hits"]
    assert hits[0]["text"] == text
    assert run("list", index, "--where", "id=large").out.startswith("large\tqqq")
    assert run("verify", index).code == 0


# --- bad input: queries and options


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["search", "{}", ""], ["the query is empty"], id="empty query"),
        pytest.param(["search", "{}", " \t"], ["the query is empty"], id="blank query"),
        pytest.param(["search", "{}", "a \udcff"], ["not valid Unicode"], id="surrogate in query"),
        pytest.param(["search", "{}", "a", "--top", "0"], ["top is 0"], id="top 0"),
        pytest.param(["search", "{}", "a", "--top", "-5"], ["top is -5"], id="negative top"),
        pytest.param(["search", "{}", "a", "--recall", "0"], ["recall is 0"], id="recall 0"),
        pytest.param(
            ["search", "{}", "a", "--recall-vectors", "0"], ["recall_vectors"], id="no vectors"
        ),
        pytest.param(["search", "{}", "a", "--weight", "2"], ["between 0 and 1"], id="weight 2"),
        pytest.param(
            ["search", "{}", "a", "--weight", "nan"], ["between 0 and 1"], id="weight nan"
        ),
        pytest.param(["search", "{}", "a", "--where", "year"], ["'year'"], id="bad condition"),
        pytest.param(["list", "{}", "--where", "~"], ["'~'"], id="bad condition of list"),
        pytest.param(["list", "{}", "--where", "a=\udcff"], ["Unicode"], id="surrogate in value"),
        pytest.param(["list", "{}", "--where", "\udcff=1"], ["Unicode"], id="surrogate in field"),
        pytest.param(["explain", "{}", "king", "nobody"], ["'nobody'"], id="explain nobody"),
        pytest.param(["explain", "{}", "king", "\udcff"], ["Unicode"], id="explain surrogate"),
        pytest.param(["explain", "{}", "", "id 1"], ["the query is empty"], id="explain nothing"),
        pytest.param(["delete", "{}", "\udcff"], ["Unicode"], id="delete surrogate"),
        pytest.param(["add", "{}", "nowhere.jsonl"], ["nowhere.jsonl"], id="missing source"),
        pytest.param(["add", "{}", "docs.pdf"], ["docs.pdf"], id="source of unknown kind"),
    ],
)
def test_what_can_t_be_done_is_refused(
    run: Run, index: Path, arguments: list[str], words: list[str]
) -> None:
    before = content(index)
    refused(run(*(one.format(index) for one in arguments)), *words)
    assert content(index) == before


def test_unknown_ids_are_named_and_the_others_deleted(run: Run, index: Path) -> None:
    refused(run("delete", index, "nobody")._replace(out=""), "has no document with the id 'nobody'")
    ran = run("delete", index, "id 1", "nobody", "no one", "--json")
    assert ran.code == 2
    assert ran.json == {"deleted": ["id 1"], "missing": ["nobody", "no one"]}
    assert "'nobody' and 1 more." in ran.err
    assert len(content(index)[0]) == 39


@pytest.mark.parametrize(
    "arguments",
    [
        ["search", "{}"],
        ["search", "{}", "a", "--top", "many"],
        ["search", "{}", "a", "--mode", "magic"],
        ["search", "{}", "a", "--structure", "tree"],
        ["index", "docs.jsonl"],
        ["index", "docs.jsonl", "--out", "x", "--k", "0"],
        ["index", "docs.jsonl", "--out", "x", "--long", "cut"],
        ["index", "docs.jsonl", "--out", "x", "--vector-type", "int4"],
        ["add", "{}", "docs.jsonl", "--on-error", "ignore"],
        ["nothing"],
        ["search", "{}", "a", "--nothing"],
    ],
)
def test_wrong_usage(run: Run, built: Path, arguments: list[str]) -> None:
    ran = run(*(one.format(built) for one in arguments))
    assert (ran.code, ran.out) == (2, "")
    assert "Error: " in ran.err
    assert "Usage: " in ran.err
    assert not Path("x").exists()


@pytest.mark.parametrize("option", [["--preset", "nothing"], ["--model", "./no/such/model"]])
def test_a_build_that_can_t_begin_leaves_nothing(
    run: Run, tmp_path: Path, option: list[str]
) -> None:
    source = write(tmp_path / "docs.jsonl", RECORDS[0])
    refused(run("index", source, "--out", tmp_path / "index", *option), option[1])
    assert not (tmp_path / "index").exists()


# --- bad input: folders


def test_what_is_no_index(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("nowhere", "empty"):
        folder = tmp_path / name
        for arguments in (
            ["search", folder, "king"],
            ["add", folder, write(tmp_path / "docs.jsonl", RECORDS[0])],
            ["delete", folder, "x"],
            ["explain", folder, "king", "x"],
            ["list", folder],
            ["info", folder],
            ["verify", folder],
            ["compact", folder],
        ):
            refused(run(*arguments), f"{folder} is not an index", "pseudoquery index DOCUMENTS")
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_that_is_not_empty_is_left_alone(
    run: Run, tmp_path: Path, tiny_model_path: str
) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("precious")
    source = write(tmp_path / "docs.jsonl", RECORDS[0])
    ran = run("index", source, "--out", tmp_path / "thesis", "--model", tiny_model_path)
    refused(ran, "is not empty and holds no index")
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["chapter.txt"]


def test_a_finished_index_is_not_built_again(run: Run, index: Path, tmp_path: Path) -> None:
    before = content(index)
    source = write(tmp_path / "docs.jsonl", RECORDS[0])
    refused(run("index", source, "--out", index), "already holds a finished index",
            f"`pseudoquery add {index} {source}`")  # fmt: skip
    assert content(index) == before


def test_a_newer_format(run: Run, index: Path) -> None:
    with closing(sqlite3.connect(index / "index.sqlite", isolation_level=None)) as connection:
        connection.execute("UPDATE settings SET value = '99' WHERE name = 'format'")
    refused(run("search", index, "king"), "made by a newer version", "pip install -U pseudoquery")


def test_garbage(run: Run, index: Path) -> None:
    (index / "index.sqlite").write_bytes(b"garbage" * 1000)
    for command in ("info", "list", "verify", "compact"):
        refused(run(command, index), "index.sqlite is damaged", "restore it from a backup")


@pytest.mark.parametrize("damage", ["truncated", "missing", "header"])
def test_a_damaged_segment(run: Run, index: Path, damage: str) -> None:
    before = content(index)
    path = segment_path(index, 1)
    data = path.read_bytes()
    if damage == "truncated":
        path.write_bytes(data[:-10])
    elif damage == "missing":
        path.unlink()
    else:
        path.write_bytes(data[:10] + bytes([data[10] ^ 4]) + data[11:])
    for arguments in (["search", index, "king"], ["info", index], ["compact", index]):
        refused(run(*arguments), f"{path} is damaged", f"`pseudoquery verify {index} --repair`")
    refused(run("verify", index), "segment 1")
    assert run("verify", index, "--repair").code == 0
    assert content(index) == before


def test_a_model_that_has_gone_or_changed(run: Run, tmp_path: Path, tiny_model_path: str) -> None:
    model = Path(shutil.copytree(tiny_model_path, tmp_path / "model"))
    source = write(tmp_path / "docs.jsonl", *RECORDS[:3])
    folder = tmp_path / "index"
    assert run("index", source, "--out", folder, "--model", model).code == 0
    weights = next(model.rglob("model.safetensors"))
    data = weights.read_bytes()
    weights.write_bytes(data[:-4] + b"\0\0\0\x40")
    refused(run("search", folder, "king"), "was made with another model than", str(model))
    assert run("search", folder, "king", "--mode", "bm25").code == 0
    shutil.rmtree(model)
    refused(run("search", folder, "king"), str(model), "can't be loaded")
    assert len(run("list", folder).out.splitlines()) == 3


def test_a_second_writer_is_refused(run: Run, index: Path, tmp_path: Path) -> None:
    source = write(tmp_path / "docs.jsonl", {"id": "new", "text": "new"})
    with Index.open(index).store.writer():
        for arguments in (["add", index, source], ["delete", index, "id 1"], ["compact", index]):
            refused(run(*arguments), "another process is writing to", "run this again")
        assert run("search", index, "king").code == 0, "readers go on"
    assert run("add", index, source).code == 0


# --- disks, permissions and terminals


@pytest.fixture
def public(built: Path) -> Iterator[Path]:
    """An index in a folder that anyone can reach."""
    if os.geteuid():
        pytest.skip("only root can become another user")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(shutil.copytree(built, Path(folder) / "index"))


def as_nobody(*arguments: object) -> Ran:
    """Run a command as a user without rights; first as root, so that all modules are loaded."""
    program = (
        "import os, shutil, sys\n"
        "import pseudoquery.building.build\n"
        "from pseudoquery.cli import main\n"
        "def call(arguments):\n"
        "    try:\n"
        "        main(arguments)\n"
        "    except SystemExit as ended:\n"
        "        return ended.code\n"
        "    return 0\n"
        "out, err = os.dup(1), os.dup(2)\n"
        "for stream in (1, 2):\n"
        "    os.dup2(os.open(os.devnull, os.O_WRONLY), stream)\n"
        "call(['search', sys.argv[1], 'king', '--mode', 'bm25'])\n"
        "call(['info', sys.argv[1]])\n"
        "call(['verify', sys.argv[1]])\n"
        "call(['info', 'nowhere'])\n"
        "sys.stdout.flush()\n"
        "os.dup2(out, 1), os.dup2(err, 2)\n"
        "os.setgid(65534), os.setuid(65534)\n"
        "sys.exit(call(sys.argv[2:]))\n"
    )
    warm = next(
        one for one in arguments if isinstance(one, Path) and (one / "index.sqlite").exists()
    )
    done = subprocess.run(
        [sys.executable, "-c", program, warm, *map(str, arguments)], capture_output=True, text=True
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def test_an_index_that_can_only_be_read(public: Path) -> None:
    found = as_nobody("search", public, "king", "--mode", "bm25", "--json")
    assert found.code == 0, found.err
    assert len(found.json["hits"]) == 10
    assert as_nobody("info", public, "--json").json["documents"] == 40
    assert "Ranked by words alone" in as_nobody("search", public, "king", "--mode", "bm25").out
    refused(as_nobody("delete", public, "id 1"), "no permission", "change its owner or mode")
    assert len(content(public)[0]) == 40


def test_an_index_that_is_private(public: Path) -> None:
    public.chmod(0o700)
    for arguments in (["search", public, "king", "--mode", "bm25"], ["info", public]):
        refused(as_nobody(*arguments), f"no permission for {public}", "change its owner or mode")
    source = write(public.parent / "docs.jsonl", RECORDS[0])
    ran = as_nobody("index", source, "--out", public, "--model", public)
    refused(ran, f"no permission for {public}", "change its owner or mode")
    source.chmod(0o600)
    ran = as_nobody("add", public, source)
    assert (ran.code, ran.out) == (2, "")
    assert "ermission" in ran.err


def test_a_terminal_without_emoji(index: Path, tmp_path: Path, run: Run) -> None:
    source = write(tmp_path / "docs.jsonl", {"id": "smile", "text": "zebra 😀"})
    run("add", index, source)
    program = Path(sys.executable).parent / "pseudoquery"
    for options in ([], ["--json"]):
        done = subprocess.run(
            [program, "search", index, "zebra", "--mode", "bm25", *options],
            capture_output=True,
            env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        )
        assert done.returncode == 0, done.stderr
        shown = (
            json.loads(done.stdout)["hits"][0]["text"] if options else done.stdout.decode("ascii")
        )
        assert ("zebra 😀" if options else "zebra \\U0001f600") in shown


def test_output_that_nobody_reads_to_its_end(built: Path) -> None:
    program = Path(sys.executable).parent / "pseudoquery"
    with subprocess.Popen(
        [program, "list", built, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (1, b""), "as click has it, without a word"


@pytest.mark.parametrize("error", [KeyboardInterrupt, click.Abort])
def test_interrupted_by_the_user(
    run: Run, built: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def interrupt(folder: Path) -> None:
        raise error

    monkeypatch.setattr(search_commands, "open_index", interrupt)
    ran = run("info", built)
    assert (ran.code, ran.out) == (130, "")
    assert "everything acknowledged so far is safe" in ran.err


def test_an_unknown_system_error_is_a_sentence(
    run: Run, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: Path) -> None:
        raise OSError(5, "Input/output error", "some file")

    monkeypatch.setattr(search_commands, "open_index", fail)
    refused(run("info", built), "some file: Input/output error.")


@pytest.mark.parametrize("debug", [False, True])
def test_a_bug_is_reported_as_one(tmp_path: Path, debug: bool) -> None:
    program = (
        "from pseudoquery.cli import main, search_commands\n"
        "def fail(folder): raise ZeroDivisionError('oh')\n"
        "search_commands.open_index = fail\n"
        "main(['info', 'x'])\n"
    )
    environment = {**os.environ, **({"PSEUDOQUERY_DEBUG": "1"} if debug else {})}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 1
    assert ("Traceback" in done.stderr) == debug
    assert ("Error: ZeroDivisionError: oh. This is a bug" in done.stderr) != debug
