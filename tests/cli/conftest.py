"""Indexes and a test collection that the tests of commands share."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pseudoquery.cli import main
from pseudoquery.evaluation.trec_runs import read_run
from tests.support.command import Run, write
from tests.support.evaluation import TEXTS, WORDS, Result
from tests.support.indexes import RECORDS


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
    # Judgements without sense: the figures of a random model are neither 0 nor 1.
    lines = [f"q{number} 0 d{(7 * number) % 20} 1" for number in range(10)]
    write(folder / "qrels" / "dev.tsv", *lines[:5])
    write(folder / "qrels" / "test.tsv", *lines[5:])
    return folder


@pytest.fixture(scope="session")
def collection_index(
    collection: Path, tiny_model_path: str, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An index of the collection; not to be changed."""
    folder = tmp_path_factory.mktemp("collection_index") / "index"
    main(["index", str(collection), "--out", str(folder), "--model", tiny_model_path])
    return folder


@pytest.fixture
def result(run: Run, collection: Path, tmp_path: Path) -> Callable[..., Result]:
    """Evaluate on the collection's split dev, and read what was printed and saved."""

    def evaluate(*options: object) -> Result:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.trec"
        split = () if "--split" in options else ("--split", "dev")
        ran = run("evaluate", collection, *split, *options, "--json", "--save-run", path)
        assert (ran.code, ran.err) == (0, "")
        return Result(json.loads(ran.out), read_run(path))

    return evaluate
