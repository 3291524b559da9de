"""`pseudoquery evaluate`: no option is in vain, and bad input is refused before a search."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pseudoquery.evaluation.evaluate import SearchPlan
from pseudoquery.evaluation.trec_runs import Run
from pseudoquery.index import Index
from pseudoquery.search.settings import SearchSettings
from tests.support.command import Ran, check_refused, write
from tests.support.command import Run as Command
from tests.support.evaluation import Result


def test_how_it_is_asked_changes_the_run(
    result: Callable[..., Result], collection_index: Path
) -> None:
    plain = result("--index", collection_index)
    words = result("--index", collection_index, "--mode", "bm25")
    both = result("--index", collection_index, "--mode", "hybrid")
    assert plain == result("--index", collection_index, "--mode", "dense")
    assert plain.run != words.run != both.run != plain.run
    assert plain.figures != words.figures
    few = result("--index", collection_index, "--top", 3)
    assert few.run == {query: ranking[:3] for query, ranking in plain.run.items()}
    assert list(few.figures) == ["Success@1", "answer@1"], "three say nothing of ten"
    assert few.figures["Success@1"] == plain.figures["Success@1"]
    by_vectors = ("--index", collection_index, "--top", 3, "--rank-by", "vectors")
    few = result(*by_vectors)
    assert few.run != {query: ranking[:3] for query, ranking in plain.run.items()}
    # So few are recalled that only --exact finds the rest.
    narrow = (*by_vectors, "--recall-vectors", 1)
    assert {len(ranking) for ranking in result(*narrow).run.values()} == {1}
    assert result(*narrow, "--exact") == few
    graph = (*by_vectors, "--structure", "hnsw")
    assert result(*graph) == few, "so few documents are all evaluation"
    weighted = ("--index", collection_index, "--mode", "hybrid", "--fusion", "weighted")
    assert result(*weighted).run == both.run, "which is the default"
    assert (
        result("--index", collection_index, "--mode", "hybrid", "--fusion", "rrf").run != both.run
    )
    assert result(*weighted, "--weight", 1).run.keys() == plain.run.keys()
    assert result(*weighted, "--weight", 1).run != result(*weighted, "--weight", 0).run


def test_how_tokens_count_changes_the_run(
    result: Callable[..., Result], collection_index: Path, tiny_model_path: str
) -> None:
    def ids(*options: object) -> dict[str, list[str]]:
        searched = result("--index", collection_index, *options)
        return {query: [id_ for id_, _ in ranking] for query, ranking in searched.run.items()}

    plain = ids("--top", 3)
    assert ids("--top", 3, "--rank-by", "tokens") == plain
    assert ids("--top", 3, "--vector-share", 0.2) == plain
    assert ids("--top", 3, "--vector-share", 0) != plain
    by_vectors = ids("--top", 4, "--rank-by", "vectors")
    few = ids("--top", 3, "--token-depth", 4)
    assert few != plain
    assert all(set(few[query]) < set(by_vectors[query]) for query in few)
    assert ids("--top", 3, "--token-depth", 20) == plain
    built = ("--model", tiny_model_path, "--top", 3)
    signs, none = (result(*built, "--tokens", kind).run for kind in ("signs", "none"))
    assert signs == result(*built).run != none
    assert none == result(*built, "--rank-by", "vectors").run


def test_tokens_that_are_not_stored_cannot_be_ranked_by(
    run: Command, collection: Path, tiny_model_path: str
) -> None:
    options = ("--split", "dev", "--model", tiny_model_path, "--tokens", "none")
    check_refused(run("evaluate", collection, *options, "--rank-by", "tokens"), "--tokens none")


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, Any], SearchPlan]]:
    """Collect what each evaluated index was made with, and how it was searched."""
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
    result: Callable[..., Result],
    collection_index: Path,
    plans: list[tuple[dict[str, Any], SearchPlan]],
) -> None:
    options = ("--mode", "hybrid", "--structure", "flat8", "--top", 5, "--recall", 7)
    result(
        "--index", collection_index, *options, "--fusion", "weighted", "--weight", 0.25, "--exact"
    )
    result("--index", collection_index, "--recall-vectors", 9)
    (_, first), (_, second) = plans
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
    plans: list[tuple[dict[str, Any], SearchPlan]],
    options: tuple[object, ...],
    made: dict[str, Any],
    settings: dict[str, Any],
) -> None:
    result("--model", tiny_model_path, *options)
    assert plans == [(made, SearchPlan(settings=SearchSettings(**settings)))]


def test_an_index_and_a_run(
    run: Command, collection: Path, collection_index: Path, tmp_path: Path
) -> None:
    file = write(tmp_path / "run.trec", "q0 Q0 d0 1 1 x")
    options = (collection, "--split", "dev", "--index", collection_index, "--run", file)
    check_refused(run("evaluate", *options), "--index and --run exclude each other")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--model", "default"),  # what is given counts, even if it is the default
        ("--preset", "paper-passage"),
        ("--k", 4),
        ("--long", "windows"),
        ("--tokens", "signs"),
        ("--mode", "hybrid"),
        ("--exact", None),
        ("--top", 10),
        ("--structure", "flat"),
        ("--recall", 10),
        ("--recall-vectors", 10),
        ("--rank-by", "tokens"),
        ("--token-depth", 1001),
        ("--vector-share", 0.5),
        ("--fusion", "rrf"),
        ("--weight", 0.5),
    ],
)
def test_options_that_a_run_or_an_index_would_ignore(
    run: Command,
    collection: Path,
    collection_index: Path,
    tmp_path: Path,
    option: str,
    value: object,
) -> None:
    file = write(tmp_path / "run.trec", "q0 Q0 d0 1 1 x")
    given = (option,) if value is None else (option, value)
    options = (collection, "--split", "dev")
    check_refused(
        run("evaluate", *options, "--run", file, *given), f"{option} has no effect with --run;"
    )
    if option in ("--model", "--preset", "--k", "--long", "--tokens"):
        check_refused(
            run("evaluate", *options, "--index", collection_index, *given),
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
        (
            ("--rank-by", "vectors", "--token-depth", 2000),
            "--token-depth has no effect with --rank-by vectors;",
        ),
        (
            ("--rank-by", "vectors", "--vector-share", 0.5),
            "--vector-share has no effect with --rank-by vectors;",
        ),
        (
            ("--token-depth", 1000),
            "--token-depth has no effect unless it exceeds --top, which is 1000;",
        ),
        (("--mode", "bm25", "--rank-by", "tokens"), "--rank-by has no effect with --mode bm25;"),
        (("--recall", 0), "recall is 0"),
        (("--token-depth", 0), "token_depth is 0"),
        (("--vector-share", 1.5), "vector_share is 1.5; it must be between 0 and 1"),
        (("--recall-vectors", 0), "recall_vectors is 0"),
        (("--mode", "hybrid", "--fusion", "weighted", "--weight", 2), "between 0 and 1"),
    ],
)
def test_options_that_others_make_useless(
    run: Command,
    collection: Path,
    collection_index: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[object, ...],
    sentence: str,
) -> None:
    monkeypatch.setattr("pseudoquery.index.Index.rank_many", lambda *_, **__: 1 / 0)
    check_refused(
        run("evaluate", collection, "--split", "dev", "--index", collection_index, *options),
        sentence,
    )


def test_bad_input_is_refused_before_anything_is_searched(
    run: Command,
    collection: Path,
    collection_index: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pseudoquery.index.Index.rank_many", lambda *_, **__: 1 / 0)
    bad = write(tmp_path / "bad.trec", "q0 Q0 d0 1 1 x", "q0 Q0 d1")
    alien = write(tmp_path / "alien.trec", "q0 Q0 alien 1 1 x")

    def evaluated(dataset: object, *options: object, split: str = "dev") -> Ran:
        return run("evaluate", dataset, "--split", split, "--index", collection_index, *options)

    check_refused(
        evaluated(collection, "--measure", "RR@10", "--measure", "foo"), "no measure 'foo'"
    )
    check_refused(evaluated(collection, "--measure", "nDCG@0"), "no measure 'nDCG@0'")
    check_refused(evaluated(tmp_path / "missing"), "missing is not a test collection")
    check_refused(evaluated("irds"), "irds is not a test collection")
    check_refused(evaluated(collection, split="train"), "train.tsv: there is no such file")
    check_refused(evaluated(collection, "--compare", tmp_path / "missing"), "missing can't be read")
    check_refused(evaluated(collection, "--compare", bad), "bad.trec line 2")
    check_refused(
        evaluated(collection, "--compare", alien), "'alien'", "Give the run of this collection"
    )
    for option in ("--save-run", "--per-query"):
        target = tmp_path / "missing" / "file"
        check_refused(
            evaluated(collection, option, target), f"{target} can't be written; make the folder"
        )
    with pytest.raises(ZeroDivisionError):
        evaluated(collection)  # so that all of the above proves something


def test_other_bad_input(
    run: Command, collection: Path, collection_index: Path, tmp_path: Path
) -> None:
    options = (collection, "--split", "dev")
    bad = write(tmp_path / "bad.trec", "q0 Q0 d0 1 nan x")
    check_refused(run("evaluate", *options, "--run", bad), "bad.trec line 1")
    check_refused(
        run("evaluate", *options, "--run", tmp_path / "missing"),
        "missing can't be read as a run file",
    )
    check_refused(run("evaluate", *options, "--index", tmp_path / "missing"), "missing")
    check_refused(run("evaluate", *options, "--model", tmp_path / "missing"), "can't be loaded")
    check_refused(run("evaluate", *options, "--preset", "best"), "no preset 'best'")
    check_refused(
        run("evaluate", *options, "--index", collection_index, "--save-run", tmp_path),
        "Is a directory",
    )
    deep = ("--index", collection_index, "--top", 10, "--measure", "RR", "--measure", "R@11")
    check_refused(run("evaluate", *options, *deep), "R@11 looks deeper than --top 10;")
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
    check_refused(
        run("evaluate", *options, "--save-run", tmp_path / "run.trec"), "'q 1' can't be written"
    )
    assert not (tmp_path / "run.trec").exists()
