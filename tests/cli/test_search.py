"""`pseudoquery search`, `explain`, `list` and `info`: every option changes the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pseudoquery.storage.schema import FORMAT
from tests.support.command import Ran, Run, check_refused
from tests.support.indexes import RECORDS, content


def test_search(run: Run, built: Path) -> None:
    ran = run("search", built, "the king of the city", "--json")
    facts = {"certified", "candidates", "ranked_by", "candidates_proven"}
    assert set(ran.json) == {"query", "hits"} | facts
    assert ran.json["ranked_by"] == "tokens"
    assert ran.json["query"] == "the king of the city"
    assert len(ran.json["hits"]) == 10
    first = ran.json["hits"][0]
    record = next(record for record in RECORDS if record["id"] == first["id"])
    assert first["text"] == record["text"]
    assert first["metadata"] == {"year": record["year"], "topic": record["topic"]}
    assert sum(first["weights"]) == pytest.approx(1)
    shown = run("search", built, "the king of the city").out
    positions = [shown.index(f"{hit['id']}  {hit['score']:.3f}") for hit in ran.json["hits"]]
    assert positions == sorted(positions)
    untitled = [hit for hit in ran.json["hits"] if not hit["title"]]
    assert untitled
    for hit in untitled:
        assert f". {hit['id']}  {hit['score']:.3f}" in shown, "the id is its title"
    assert "Proven exact" in shown
    assert "no others" not in shown


def test_search_options_change_the_answer(run: Run, built: Path) -> None:
    def search(*options: str) -> Any:
        return run("search", built, "the king of the city", "--json", *options).json

    def ids(answer: Any) -> list[str]:
        return [hit["id"] for hit in answer["hits"]]

    tokens, plain = search(), search("--rank-by", "vectors")
    assert tokens["hits"] == search("--rank-by", "tokens")["hits"]
    assert ids(tokens) != ids(plain)
    assert ids(search("--vector-share", "0")) != ids(tokens)
    assert ids(search("--vector-share", "1")) == ids(plain)
    few = search("--token-depth", "12")
    assert (few["certified"], few["candidates_proven"], few["candidates"]) == (False, True, 12)
    assert ids(search("--top", "3")) == ids(tokens)[:3]
    assert ids(search("--token-depth", "12", "--exact")) == ids(tokens)
    years = search("--where", "year>=2000", "--where", "year<2003")
    assert sorted(ids(years)) == ["id 10", "id 11", "id 12"]
    assert len(search("--where", "topic in king,queen", "--top", "40")["hits"]) == 13
    words, both = search("--mode", "bm25"), search("--mode", "hybrid")
    assert ids(words) != ids(tokens) != ids(both) != ids(words)
    assert words["hits"][0]["weights"] == []
    vectors = ("--rank-by", "vectors", "--structure")
    wide, narrow = search(*vectors, "flat"), search(*vectors, "flat", "--recall", "12")
    assert narrow["candidates"] < wide["candidates"] == 40
    assert search("--rank-by", "vectors", "--recall-vectors", "3")["candidates"] <= 3
    graph = search(*vectors, "hnsw", "--recall", "10")
    assert not graph["certified"]
    proven = search(*vectors, "hnsw", "--recall", "10", "--exact")
    assert proven["certified"]
    assert ids(proven) == ids(plain)
    fused = search("--mode", "hybrid", "--fusion", "rrf")
    assert [hit["score"] for hit in fused["hits"]] != [hit["score"] for hit in both["hits"]]
    meaning = search("--mode", "hybrid", "--fusion", "weighted", "--weight", "1")
    assert ids(meaning) == ids(tokens)
    assert ids(search("--mode", "hybrid", "--fusion", "weighted", "--weight", "0")) != ids(tokens)


def test_search_says_when_there_is_no_more(run: Run, built: Path) -> None:
    ran = run("search", built, "king", "--top", 1000)
    assert "The search found no others among 40 documents." in ran.out
    assert len(run("search", built, "king", "--top", 1000, "--json").json["hits"]) == 40
    nothing = run("search", built, "xylophone", "--mode", "bm25")
    assert nothing.code == 0
    assert (nothing.out, nothing.err) == ("Nothing was found.\n", "")


def test_explain(run: Run, built: Path) -> None:
    explained = run("explain", built, "the king of the city", "id 3", "--json").json
    assert explained["document"]["text"] == RECORDS[3]["text"]
    weights = [pseudo_query["weight"] for pseudo_query in explained["pseudo_queries"]]
    assert weights == sorted(weights, reverse=True)
    start, end = (explained["passage"][name] for name in ("start", "end"))
    assert 0 <= start < end <= len(RECORDS[3]["text"])
    shown = run("explain", built, "the king of the city", "id 3").out
    assert f"{weights[0]:.3f}" in shown
    by_vectors, by_tokens = explained["score"], explained["token_score"]
    assert f"score by vectors {by_vectors:.4f}, by tokens {by_tokens:.4f}" in shown


def test_list(run: Run, built: Path) -> None:
    shown = run("list", built).out.splitlines()
    assert [line.split("\t")[0] for line in shown] == [record["id"] for record in RECORDS]
    assert shown[1] == f"id 1\tcity history {RECORDS[1]['text']}"
    listed = run("list", built, "--json").lines
    assert [record["id"] for record in listed] == [record["id"] for record in RECORDS]
    assert listed[5]["metadata"] == {"year": 1995, "topic": "king"}
    few = run("list", built, "--where", "year=1993", "--json").lines
    assert [record["id"] for record in few] == ["id 3"]
    assert run("list", built, "--where", "year>3000") == Ran(0, "", "")


def test_info(run: Run, built: Path) -> None:
    facts = run("info", built, "--json").json
    assert facts["documents"] == 40
    assert facts["format"] == FORMAT
    assert facts["folder"] == str(built)
    shown = run("info", built).out
    assert f"{facts['vectors']:,}" in shown
    assert "deleted awaiting compaction" in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["search", "{}", ""], ["the query is empty"], id="empty query"),
        pytest.param(["search", "{}", " \t"], ["the query is empty"], id="blank query"),
        pytest.param(["search", "{}", "a \udcff"], ["not valid Unicode"], id="surrogate in query"),
        pytest.param(["search", "{}", "a", "--top", "0"], ["top is 0"], id="top 0"),
        pytest.param(["search", "{}", "a", "--top", "-5"], ["top is -5"], id="negative top"),
        *(
            pytest.param(
                ["search", "{}", "a", "--top", "9223372036854775808", "--mode", mode],
                ["top is 9223372036854775808; it must be at most 2147483647"],
                id=f"endless top, {mode}",
            )
            for mode in ("dense", "bm25", "hybrid")
        ),
        pytest.param(["search", "{}", "a", "--recall", "0"], ["recall is 0"], id="recall 0"),
        pytest.param(
            ["search", "{}", "a", "--recall-vectors", "0"], ["recall_vectors"], id="no vectors"
        ),
        pytest.param(["search", "{}", "a", "--token-depth", "0"], ["token_depth is 0"], id="depth"),
        pytest.param(
            ["search", "{}", "a", "--vector-share", "2"], ["vector_share is 2.0"], id="share"
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
    check_refused(run(*(word.format(index) for word in arguments)), *words)
    assert content(index) == before


@pytest.fixture
def csv_index(run: Run, tmp_path: Path, tiny_model_path: str) -> Path:
    """An index of a CSV file, whose values are all text."""
    source = tmp_path / "docs.csv"
    source.write_text("id,text,year,language\na,the king,1999,en\nb,the river,2004,en\n")
    folder = tmp_path / "csv index"
    assert run("index", source, "--out", folder, "--model", tiny_model_path).code == 0
    return folder


@pytest.mark.parametrize(
    ("condition", "advice"),
    [
        ("year>2000", "write --where 'year>\"2000\"' to compare text"),
        ("year=2004", "write --where 'year=\"2004\"' to compare text"),
        ("year in 2004,2005", 'write --where \'year in "2004","2005"\' to compare text'),
    ],
)
def test_a_number_that_meets_text_gets_a_hint(
    run: Run, csv_index: Path, tmp_path: Path, condition: str, advice: str
) -> None:
    out = tmp_path / "out"
    for command in (["search", csv_index, "king"], ["list", csv_index], ["export", csv_index, out]):
        ran = run(*command, "--where", condition)
        assert ran.code == 0
        assert "The field 'year' holds text, such as '1999'," in ran.err
        assert advice in ran.err
        assert ran.err.count("\n") == 1
    fixed = run("search", csv_index, "king", "--where", advice.split("'")[1], "--json").json
    assert [hit["id"] for hit in fixed["hits"]] == ["b"]


@pytest.mark.parametrize(
    "condition", ['year>"3000"', "year!=2000", "month>3", "language=fr", "id=nobody"]
)
def test_other_searches_get_no_hint(run: Run, csv_index: Path, condition: str) -> None:
    ran = run("search", csv_index, "king", "--where", condition)
    assert (ran.code, ran.err) == (0, "")
    assert run("list", csv_index, "--where", condition).err == ""


def test_programs_get_no_hint(run: Run, csv_index: Path) -> None:
    ran = run("search", csv_index, "king", "--where", "year>2000", "--json")
    assert (ran.json["hits"], ran.err) == ([], "")
    assert run("list", csv_index, "--where", "year>2000", "--json") == Ran(0, "", "")
