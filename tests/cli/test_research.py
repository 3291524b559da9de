"""`pseudoquery evaluate`: an index, a model or a run in, figures out, and no option in vain."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pseudoquery.cli import main
from pseudoquery.corpus.datasets import load_dataset
from pseudoquery.corpus.documents import read_qrels
from pseudoquery.encoding.model import load_model
from pseudoquery.evaluation.evaluate import SearchPlan, compute_figures
from pseudoquery.evaluation.measures import MEASURES, average, compare_runs, evaluate
from pseudoquery.evaluation.trec_runs import Run, read_run
from pseudoquery.index import Index
from pseudoquery.method.presets import preset
from pseudoquery.search.settings import SearchSettings
from tests.support.command import Ran, write
from tests.support.command import Run as Command

WORDS = ["river", "city", "king", "queen", "war", "peace", "music", "song", "book", "water", "fire"]
TEXTS = [
    " ".join(WORDS[(number * step) % 11] for step in range(1, 9)) + f" {number}"
    for number in range(20)
]
ANSWERS = ["answer@1", "answer@5", "answer@20", "answer@100"]


@pytest.fixture(scope="session")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BEIR folder with two splits, the first of which has answers."""
    folder = tmp_path_factory.mktemp("collections") / "small"
    folder.mkdir()
    documents = [{"_id": f"d{number}", "text": text} for number, text in enumerate(TEXTS)]
    write(folder / "corpus.jsonl", *documents)
    queries: list[dict[str, Any]] = [
        {"_id": f"q{number}", "text": f"the {WORDS[number]} of the {WORDS[-number]}"}
        for number in range(10)
    ]
    for number in range(5):
        queries[number]["answers"] = ["nowhere", f"{7 + number}"]
    write(folder / "queries.jsonl", *queries)
    # Of no sense to a random model, so that the figures are neither 0 nor 1.
    lines = [f"q{number} 0 d{(7 * number) % 20} 1" for number in range(10)]
    write(folder / "qrels" / "dev.tsv", *lines[:5])
    write(folder / "qrels" / "test.tsv", *lines[5:])
    return folder


@pytest.fixture(scope="session")
def built(collection: Path, tiny_model_path: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of the collection; not to be changed."""
    folder = tmp_path_factory.mktemp("built") / "index"
    main(["index", str(collection), "--out", str(folder), "--model", tiny_model_path])
    return folder


class Result(NamedTuple):
    """What a command found: its report, and the run that it saved."""

    report: dict[str, Any]
    run: Run

    @property
    def figures(self) -> dict[str, float]:
        """The mean of each measure."""
        found: dict[str, float] = self.report["figures"]
        return found


@pytest.fixture
def result(run: Command, collection: Path, tmp_path: Path) -> Callable[..., Result]:
    """Evaluate on the collection's split dev, and read what was printed and saved."""

    def evaluated(*options: object) -> Result:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.trec"
        split = () if "--split" in options else ("--split", "dev")
        ran = run("evaluate", collection, *split, *options, "--json", "--save-run", path)
        assert (ran.code, ran.err) == (0, "")
        return Result(json.loads(ran.out), read_run(path))

    return evaluated


def refused(ran: Ran, *words: str) -> None:
    """Check that bad input got one sentence on stderr, and exit code 2."""
    assert (ran.code, ran.out) == (2, "")
    assert re.fullmatch(r"Error: [^\n]+[.)]\n", ran.err)
    assert "bug" not in ran.err
    for word in words:
        assert word in ran.err


# --- an index, a run, a model


def test_an_index(result: Callable[..., Result], collection: Path, built: Path) -> None:
    found = result("--index", built)
    assert (found.report["dataset"], found.report["queries"]) == ("small", 5)
    assert "compared" not in found.report
    assert list(found.figures) == [*MEASURES, *ANSWERS]
    assert all(len(ranking) == 20 for ranking in found.run.values())
    queries = load_dataset(str(collection), "dev").queries
    rankings = Index.open(built).rank_many([query.text for query in queries])
    assert found.run == dict(zip((query.id for query in queries), rankings, strict=True))
    by_judgement = evaluate(found.run, read_qrels(collection / "qrels" / "dev.tsv"))
    assert {name: found.figures[name] for name in MEASURES} == by_judgement
    assert 0 < by_judgement["RR@10"] < 1
    assert found.figures["answer@20"] == 1.0 > found.figures["answer@1"]


def test_a_saved_run_has_the_same_figures(
    result: Callable[..., Result], built: Path, tmp_path: Path
) -> None:
    found = result("--index", built)
    assert result("--run", tmp_path / "0.trec") == found
    words = result("--index", built, "--mode", "bm25")
    assert result("--run", tmp_path / "2.trec") == words != found


def test_words_need_no_index(
    result: Callable[..., Result],
    run: Command,
    collection: Path,
    built: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_index = result("--index", built, "--mode", "bm25")
    monkeypatch.setattr("pseudoquery.index.Index.create", lambda *_, **__: 1 / 0)
    assert result("--mode", "bm25") == with_index
    few = result("--mode", "bm25", "--top", 3).run
    assert few == {query: ranking[:3] for query, ranking in with_index.run.items()}
    useless = run("evaluate", collection, "--split", "dev", "--mode", "bm25", "--k", 4)
    refused(useless, "--k has no effect with --mode bm25;")


def test_a_query_missing_from_a_run_counts_as_zero(
    result: Callable[..., Result], tmp_path: Path
) -> None:
    # q0's only right document is d0, and "7" is in d7 alone; the other four queries are left out.
    file = write(tmp_path / "one.trec", "q0 Q0 d0 1 2 x", "q0 Q0 d7 2 1 x", "other Q0 d1 1 1 x")
    found = result("--run", file)
    assert found.report["queries"] == 5
    assert found.figures["RR@10"] == found.figures["Success@1"] == 1 / 5
    assert (found.figures["answer@1"], found.figures["answer@5"]) == (0.0, 1 / 5)


def test_the_split_decides(result: Callable[..., Result], built: Path, collection: Path) -> None:
    found = result("--index", built, "--split", "test")
    assert list(found.run) == ["q5", "q6", "q7", "q8", "q9"]
    assert list(found.figures) == list(MEASURES), "no answers, no accuracy by answers"
    assert found.figures == evaluate(found.run, read_qrels(collection / "qrels" / "test.tsv"))


def test_a_model(result: Callable[..., Result], built: Path, tiny_model_path: str) -> None:
    found = result("--model", tiny_model_path)
    assert found == result("--index", built), "an index that was made for this is no other"
    two = result("--model", tiny_model_path, "--k", 2)
    single = result("--model", tiny_model_path, "--preset", "single-vector")
    runs = [found.run, two.run, single.run]
    assert all(one != other for one in runs for other in runs if one is not other)
    assert two == result("--model", tiny_model_path, "--k", 2, "--preset", "recommended")
    assert found == result("--model", tiny_model_path, "--preset", "recommended")


def test_a_model_keeps_its_own_representation(
    result: Callable[..., Result], tiny_model_path: str, tmp_path: Path
) -> None:
    trained = load_model(tiny_model_path, preset("single-vector"), device="cpu")
    trained.save_pretrained(str(tmp_path / "trained"), create_model_card=False)
    found = result("--model", tmp_path / "trained")
    assert found == result("--model", tiny_model_path, "--preset", "single-vector")
    other = result("--model", tmp_path / "trained", "--preset", "recommended")
    assert other == result("--model", tiny_model_path)
    assert other.run != found.run


def test_the_default_model(
    result: Callable[..., Result], tiny_model_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def load(name: object, representation: object, precision: object) -> Any:
        asked.append(name)
        return load_model(tiny_model_path)

    monkeypatch.setattr("pseudoquery.index._loaded", load)
    result()
    assert asked[0] == "default"


def test_nothing_is_left_behind(
    run: Command,
    collection: Path,
    tiny_model_path: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pseudoquery.evaluation import evaluate as trial

    made: list[Path] = []
    real = trial.index_dataset

    def spied(dataset: Any, folder: Path, **settings: Any) -> Any:
        made.append(folder)
        yield from real(dataset, folder, **settings)
        assert (folder / "index.sqlite").is_file()

    monkeypatch.setattr(trial, "index_dataset", spied)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    options = (collection, "--split", "dev", "--model", tiny_model_path)
    before = sorted(collection.rglob("*"))
    assert run("evaluate", *options).code == 0
    with monkeypatch.context() as broken:
        broken.setattr("pseudoquery.index.Index.rank_many", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run("evaluate", *options)
    assert len(made) == 2
    assert all(tmp_path in folder.parents for folder in made)
    assert list(tmp_path.iterdir()) == []
    assert sorted(collection.rglob("*")) == before


# --- options


def test_how_it_is_asked_changes_the_run(result: Callable[..., Result], built: Path) -> None:
    plain = result("--index", built)
    words = result("--index", built, "--mode", "bm25")
    both = result("--index", built, "--mode", "hybrid")
    assert plain == result("--index", built, "--mode", "dense")
    assert plain.run != words.run != both.run != plain.run
    assert plain.figures != words.figures
    few = result("--index", built, "--top", 3)
    assert few.run == {query: ranking[:3] for query, ranking in plain.run.items()}
    assert list(few.figures) == ["Success@1", "answer@1"], "three say nothing of ten"
    assert few.figures["Success@1"] == plain.figures["Success@1"]
    # So few are recalled that only --exact finds the rest.
    narrow = ("--index", built, "--top", 3, "--recall-vectors", 1)
    assert {len(ranking) for ranking in result(*narrow).run.values()} == {1}
    assert result(*narrow, "--exact") == few
    graph = ("--index", built, "--top", 3, "--structure", "hnsw")
    assert result(*graph) == few, "so few documents are all found"
    weighted = ("--index", built, "--mode", "hybrid", "--fusion", "weighted")
    assert result(*weighted).run == both.run, "which is the default"
    assert result("--index", built, "--mode", "hybrid", "--fusion", "rrf").run != both.run
    assert result(*weighted, "--weight", 1).run.keys() == plain.run.keys()
    assert result(*weighted, "--weight", 1).run != result(*weighted, "--weight", 0).run


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, Any], SearchPlan]]:
    """Collect what each evaluated index was made with, and how it was asked."""
    from pseudoquery.evaluation import evaluate as trial

    calls: list[tuple[dict[str, Any], SearchPlan]] = []
    real = trial.search_all

    def spied(index: Index, dataset: Any, ask: SearchPlan, advance: Any) -> Run:
        made = {"k": index.representation.k, "long": index.settings.long}
        calls.append((made, ask))
        return real(index, dataset, ask, advance)

    monkeypatch.setattr(trial, "search_all", spied)
    return calls


def test_the_first_step_can_be_chosen(
    result: Callable[..., Result], built: Path, asked: list[tuple[dict[str, Any], SearchPlan]]
) -> None:
    options = ("--mode", "hybrid", "--structure", "flat8", "--top", 5, "--recall", 7)
    result("--index", built, *options, "--fusion", "weighted", "--weight", 0.25, "--exact")
    result("--index", built, "--recall-vectors", 9)
    (_, first), (_, second) = asked
    settings = SearchSettings("flat8", recall=7, fusion="weighted", weight=0.25)
    assert first == SearchPlan(5, "hybrid", exact=True, settings=settings)
    assert second == SearchPlan(settings=SearchSettings(recall_vectors=9))


@pytest.mark.parametrize(
    ("options", "made", "settings"),
    [
        ((), {"k": 16, "long": "windows"}, {}),
        (("--long", "truncate"), {"k": 16, "long": "truncate"}, {}),
        (
            ("--preset", "paper-passage"),
            {"k": 4, "long": "truncate"},
            {"structure": "flat", "recall_vectors": 4000},
        ),
        (
            ("--preset", "paper-openqa"),
            {"k": 4, "long": "truncate"},
            {"structure": "flat", "recall_vectors": 4000},
        ),
        (
            ("--preset", "paper-document"),
            {"k": 8, "long": "truncate"},
            {"structure": "flat", "recall_vectors": 8000},
        ),
        (
            ("--preset", "paper-document", "--k", 2, "--long", "windows"),
            {"k": 2, "long": "windows"},
            {"structure": "flat", "recall_vectors": 2000},
        ),
        (
            ("--preset", "paper-document", "--recall-vectors", 50, "--structure", "flat8"),
            {"k": 8, "long": "truncate"},
            {"structure": "flat8", "recall_vectors": 50},
        ),
        (
            ("--preset", "paper-document", "--recall", 1001),
            {"k": 8, "long": "truncate"},
            {"structure": "flat", "recall": 1001},
        ),
    ],
)
def test_the_papers_settings_by_name(
    result: Callable[..., Result],
    tiny_model_path: str,
    asked: list[tuple[dict[str, Any], SearchPlan]],
    options: tuple[object, ...],
    made: dict[str, Any],
    settings: dict[str, Any],
) -> None:
    result("--model", tiny_model_path, *options)
    assert asked == [(made, SearchPlan(settings=SearchSettings(**settings)))]


def test_what_was_cut_is_said(
    run: Command, collection: Path, tiny_model_path: str, tmp_path: Path
) -> None:
    folder = tmp_path / "long"
    folder.mkdir()
    write(folder / "corpus.jsonl", {"_id": "d", "text": "king " * 200}, {"_id": "e", "text": "sun"})
    write(folder / "queries.jsonl", {"_id": "q", "text": "king"})
    write(folder / "qrels" / "dev.tsv", "q 0 d 1")
    options = (folder, "--split", "dev", "--model", tiny_model_path, "--json")
    assert run("evaluate", *options).err == ""
    for cutting in (("--long", "truncate"), ("--preset", "paper-passage")):
        ran = run("evaluate", *options, *cutting)
        assert ran.json["figures"]["R@1000"] == 1.0
        assert ran.err == (
            "Of the documents, 1 are long and only their beginning was read; "
            "--long windows reads all.\n"
        )


@pytest.fixture
def answered(tmp_path: Path) -> Path:
    """A DPR folder whose test questions have answers and no judged passages."""
    folder = tmp_path / "dpr"
    folder.mkdir()
    passages = [f"{number}\t{text}\ttitle" for number, text in enumerate(TEXTS)]
    write(folder / "psgs_w100.tsv", "id\ttext\ttitle", *passages)
    write(folder / "nq-test.qa.csv", "the king?\t['7', '8']", "the moon?\t['nowhere']")
    return folder


def test_answers_without_judgements(
    run: Command, answered: Path, tiny_model_path: str, tmp_path: Path
) -> None:
    options = (answered, "--split", "test")
    file = write(tmp_path / "run.trec", "0 Q0 1 1 3 x", "0 Q0 7 2 2 x", "1 Q0 2 1 1 x")
    ran = run("evaluate", *options, "--run", file, "--json")
    assert ran.json["queries"] == 2
    assert ran.json["figures"] == dict(zip(ANSWERS, (0.0, 0.5, 0.5, 0.5), strict=True))
    ran = run("evaluate", *options, "--run", file)
    assert "RR@10" not in ran.out
    assert ran.out.splitlines()[-1] == (
        "The collection has no judgements, so only answer strings could be looked for."
    )
    ran = run("evaluate", *options, "--model", tiny_model_path, "--json")
    assert ran.json["figures"]["answer@20"] == 0.5
    compared = run("evaluate", *options, "--run", file, "--compare", file, "--json").json
    assert [row["measure"] for row in compared["compared"]] == ANSWERS
    refused(
        run("evaluate", *options, "--run", file, "--measure", "RR@10"),
        "--measure has no effect on a collection without judgements",
    )


def test_measures(result: Callable[..., Result], built: Path) -> None:
    plain = result("--index", built)
    found = result("--index", built, "--measure", "P@1", "--measure", "RR@10")
    assert list(found.figures) == ["P@1", "RR@10", *ANSWERS]
    assert found.figures["P@1"] == plain.figures["Success@1"]
    assert found.figures["RR@10"] == plain.figures["RR@10"]


def test_per_query(run: Command, collection: Path, built: Path, tmp_path: Path) -> None:
    options = (collection, "--split", "dev", "--index", built, "--json")
    target = tmp_path / "each.jsonl"
    ran = run("evaluate", *options, "--per-query", target, "--save-run", tmp_path / "run.trec")
    rows = [json.loads(line) for line in target.read_text().splitlines()]
    assert [row["query"] for row in rows] == ["q0", "q1", "q2", "q3", "q4"]
    figures = compute_figures(read_run(tmp_path / "run.trec"), load_dataset(str(collection), "dev"))
    for row in rows:
        assert row == {"query": row["query"]} | {
            name: own[row["query"]] for name, own in figures.items()
        }
    assert json.loads(ran.out)["figures"] == pytest.approx(average(figures))


def test_per_query_where_some_have_no_answers(
    run: Command, collection: Path, built: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "mixed"
    folder.mkdir()
    for name in ("corpus.jsonl", "queries.jsonl"):
        (folder / name).write_bytes((collection / name).read_bytes())
    write(folder / "qrels" / "all.tsv", "q0 0 d0 1", "q9 0 d3 1")
    target = tmp_path / "each.jsonl"
    options = ("--split", "all", "--index", built, "--measure", "RR")
    assert run("evaluate", folder, *options, "--per-query", target).code == 0
    first, second = (json.loads(line) for line in target.read_text().splitlines())
    assert list(first) == ["query", "RR", *ANSWERS]
    assert list(second) == ["query", "RR"]


def test_two_runs_compared(
    result: Callable[..., Result], run: Command, collection: Path, built: Path, tmp_path: Path
) -> None:
    other = result("--index", built, "--mode", "bm25")
    found = result("--index", built, "--compare", tmp_path / "0.trec")
    loaded = load_dataset(str(collection), "dev")
    compared = compare_runs(compute_figures(found.run, loaded), compute_figures(other.run, loaded))
    assert [row["measure"] for row in found.report["compared"]] == [*MEASURES, *ANSWERS]
    for row, one in zip(found.report["compared"], compared, strict=True):
        assert (row["first"], row["second"]) == (one.first, one.second)
        assert (row["better"], row["worse"], row["p_value"]) == (one.better, one.worse, one.p_value)
        assert row["first"] == found.figures[row["measure"]]
        assert row["second"] == other.figures[row["measure"]]
    assert any(row["better"] or row["worse"] for row in found.report["compared"])
    same = result("--index", built, "--compare", tmp_path / "1.trec")
    assert {row["p_value"] for row in same.report["compared"]} == {1.0}
    assert {row["better"] + row["worse"] for row in same.report["compared"]} == {0}


def test_for_people(
    result: Callable[..., Result], run: Command, collection: Path, built: Path, tmp_path: Path
) -> None:
    words = result("--index", built, "--mode", "bm25")
    found = result("--index", built)
    options = (collection, "--split", "dev", "--run", tmp_path / "1.trec")
    ran = run("evaluate", *options)
    assert (ran.code, ran.err) == (0, "")
    heading, *rows = (line.split() for line in ran.out.splitlines())
    assert heading == ["measure", "%"]
    assert rows == [[name, f"{100 * value:.2f}"] for name, value in found.figures.items()]
    ran = run("evaluate", *options, "--compare", tmp_path / "0.trec")
    heading, *rows = (re.split(r"  +", line.strip()) for line in ran.out.splitlines())
    assert heading == ["measure", "this run", "other run", "better", "worse", "p"]
    assert [row[:3] for row in rows] == [
        [name, f"{100 * value:.2f}", f"{100 * words.figures[name]:.2f}"]
        for name, value in found.figures.items()
    ]


# --- what can't be done


def test_an_index_and_a_run(run: Command, collection: Path, built: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "run.trec", "q0 Q0 d0 1 1 x")
    options = (collection, "--split", "dev", "--index", built, "--run", file)
    refused(run("evaluate", *options), "an --index or a --run, not both")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--model", "default"),  # what is given counts, even if it is the default
        ("--preset", "paper-passage"),
        ("--k", 4),
        ("--long", "windows"),
        ("--mode", "hybrid"),
        ("--exact", None),
        ("--top", 10),
        ("--structure", "flat"),
        ("--recall", 10),
        ("--recall-vectors", 10),
        ("--fusion", "rrf"),
        ("--weight", 0.5),
    ],
)
def test_options_that_a_run_or_an_index_would_ignore(
    run: Command, collection: Path, built: Path, tmp_path: Path, option: str, value: object
) -> None:
    file = write(tmp_path / "run.trec", "q0 Q0 d0 1 1 x")
    given = (option,) if value is None else (option, value)
    options = (collection, "--split", "dev")
    refused(run("evaluate", *options, "--run", file, *given), f"{option} has no effect with --run;")
    if option in ("--model", "--preset", "--k", "--long"):
        refused(
            run("evaluate", *options, "--index", built, *given),
            f"{option} has no effect with --index;",
        )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--fusion", "rrf"), "--fusion has no effect without --mode hybrid;"),
        (("--weight", 0.5), "--weight has no effect without --mode hybrid;"),
        (
            ("--mode", "hybrid", "--fusion", "rrf", "--weight", 0.5),
            "--weight has no effect without --fusion weighted;",
        ),
        (("--mode", "bm25", "--recall", 10), "--recall has no effect with --mode bm25;"),
        (
            ("--mode", "bm25", "--recall-vectors", 10),
            "--recall-vectors has no effect with --mode bm25;",
        ),
        (("--mode", "bm25", "--structure", "flat"), "--structure has no effect with --mode bm25;"),
        (
            ("--recall", 10, "--recall-vectors", 10),
            "--recall has no effect with --recall-vectors;",
        ),
        (("--recall", 1000), "--recall has no effect unless it exceeds --top, which is 1000;"),
        (("--recall", 0), "recall is 0"),
        (("--recall-vectors", 0), "recall_vectors is 0"),
        (("--mode", "hybrid", "--fusion", "weighted", "--weight", 2), "between 0 and 1"),
    ],
)
def test_options_that_others_make_useless(
    run: Command,
    collection: Path,
    built: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[object, ...],
    sentence: str,
) -> None:
    monkeypatch.setattr("pseudoquery.index.Index.rank_many", lambda *_, **__: 1 / 0)
    refused(run("evaluate", collection, "--split", "dev", "--index", built, *options), sentence)


def test_bad_input_is_refused_before_anything_is_searched(
    run: Command, collection: Path, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pseudoquery.index.Index.rank_many", lambda *_, **__: 1 / 0)
    bad = write(tmp_path / "bad.trec", "q0 Q0 d0 1 1 x", "q0 Q0 d1")
    alien = write(tmp_path / "alien.trec", "q0 Q0 alien 1 1 x")

    def evaluated(dataset: object, *options: object, split: str = "dev") -> Ran:
        return run("evaluate", dataset, "--split", split, "--index", built, *options)

    refused(evaluated(collection, "--measure", "RR@10", "--measure", "foo"), "no measure 'foo'")
    refused(evaluated(collection, "--measure", "nDCG@0"), "no measure 'nDCG@0'")
    refused(evaluated(tmp_path / "missing"), "missing is not a test collection")
    refused(evaluated("irds"), "irds is not a test collection")
    refused(evaluated(collection, split="train"), "train.tsv: there is no such file")
    refused(evaluated(collection, "--compare", tmp_path / "missing"), "missing can't be read")
    refused(evaluated(collection, "--compare", bad), "bad.trec line 2")
    refused(evaluated(collection, "--compare", alien), "'alien'", "do not belong together")
    for option in ("--save-run", "--per-query"):
        target = tmp_path / "missing" / "file"
        refused(evaluated(collection, option, target), f"{target} can't be written", "no folder")
    with pytest.raises(ZeroDivisionError):
        evaluated(collection)  # so that all of the above proves something


def test_other_bad_input(run: Command, collection: Path, built: Path, tmp_path: Path) -> None:
    options = (collection, "--split", "dev")
    bad = write(tmp_path / "bad.trec", "q0 Q0 d0 1 nan x")
    refused(run("evaluate", *options, "--run", bad), "bad.trec line 1")
    refused(
        run("evaluate", *options, "--run", tmp_path / "missing"),
        "missing can't be read as a run file",
    )
    refused(run("evaluate", *options, "--index", tmp_path / "missing"), "missing")
    refused(run("evaluate", *options, "--model", tmp_path / "missing"), "can't be loaded")
    refused(run("evaluate", *options, "--preset", "best"), "no preset 'best'")
    refused(run("evaluate", *options, "--index", built, "--save-run", tmp_path), "Is a directory")
    deep = ("--index", built, "--top", 10, "--measure", "RR", "--measure", "R@11")
    refused(run("evaluate", *options, *deep), "R@11 looks deeper than --top 10 documents;")
    for wrong in (
        ("--top", "0"),
        ("--k", "0"),
        ("--mode", "sparse"),
        ("--long", "cut"),
        ("--structure", "tree"),
        ("--fusion", "sum"),
    ):
        ran = run("evaluate", *options, *wrong)
        assert (ran.code, ran.out) == (2, "")
        assert f"Invalid value for '{wrong[0]}'" in ran.err
    ran = run("evaluate", collection)
    assert ran.code == 2
    assert "Missing option '--split'" in ran.err


def test_ids_that_a_run_file_cannot_hold(
    run: Command, collection: Path, tiny_model_path: str, tmp_path: Path
) -> None:
    folder = tmp_path / "spaces"
    folder.mkdir()
    write(folder / "corpus.jsonl", {"_id": "d 1", "text": "king"})
    write(folder / "queries.jsonl", {"_id": "q 1", "text": "king"})
    write(folder / "qrels" / "dev.tsv", "query-id\tcorpus-id\tscore", "q 1\td 1\t1")
    options = (folder, "--split", "dev", "--model", tiny_model_path)
    ran = run("evaluate", *options, "--json")
    assert json.loads(ran.out)["figures"]["RR@10"] == 1.0
    refused(
        run("evaluate", *options, "--save-run", tmp_path / "run.trec"), "'q 1' can't be written"
    )
    assert not (tmp_path / "run.trec").exists()
