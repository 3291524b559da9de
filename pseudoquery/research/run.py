"""Run an experiment: train its rows, evaluate them, and store the results.

The result of each row and seed is a file under OUT/runs. A row that has been trained before with
the same settings and data is not trained again. So an experiment can be stopped after any row, and
experiments share rows.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import MultiVectorEncoder

from pseudoquery.corpus.datasets import Dataset
from pseudoquery.encoding.encode import document_text
from pseudoquery.encoding.model import load_model
from pseudoquery.errors import QueryError
from pseudoquery.files import write_atomically
from pseudoquery.research.provenance import describe_commit, hash_source
from pseudoquery.research.tables import COLLECTIONS, EXPERIMENTS, ROWS, SCHEDULES, SMALL, Experiment
from pseudoquery.search.bm25 import rank_by_words
from pseudoquery.search.fusion import FUSION_DEPTH, Fusion, ScoredOrdinals, fuse
from pseudoquery.training.batches import TokenisedSets
from pseudoquery.training.config import Config, load_named_dataset, short_name
from pseudoquery.training.mine import mine_by_words
from pseudoquery.training.negatives import write_negatives
from pseudoquery.training.refresh import negatives_path
from pseudoquery.training.train import load_starting_model, load_training_sets, train
from pseudoquery.training.validation import (
    DEPTH,
    ValidationSet,
    judged_queries,
    make_validation_set,
    per_query_measures,
    rank_queries,
)

SMALL_K = 4
"""The largest k of a small experiment."""
NO_DOCUMENT = np.iinfo(np.int64).min
"""The position that fills up a ranking that is too short; no document has it."""


@dataclass(frozen=True, slots=True)
class ExperimentOptions:
    """Which experiment to run, and how."""

    name: str
    """A name from EXPERIMENTS."""
    data: Path
    """The folder with the collections."""
    out: Path
    """The folder for the results."""
    model: str = "minilm"
    seeds: int = 1
    rows: tuple[str, ...] = ()
    """Run these rows only; all rows of the experiment if empty."""
    small: bool = False
    """Train on a short schedule for a CPU, which shows only that everything runs."""
    learning_rate: float | None = None
    """A learning rate to try instead of those of the rows; the tables are not written."""
    report: bool = False
    """Train nothing: report the results that are stored."""


def run_experiment(
    options: ExperimentOptions, on_row: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Train the rows that are not yet trained; return the results of all rows, BM25 first.

    `on_row` is called with the name of each row before it is trained.
    """
    experiment = find_experiment(options.name)
    rows = options.rows or experiment.rows
    if unknown := set(rows) - set(experiment.rows):
        raise QueryError(
            f"{options.name} has no row {min(unknown)!r}; it has {', '.join(experiment.rows)}."
        )
    runner = ExperimentRunner(options, experiment)
    results = [runner.evaluate_bm25()]
    for row, seed in product(rows, range(options.seeds)):
        if (stored := runner.load_result(row, seed)) is not None:
            results.append(stored)
        elif not options.report:
            on_row(f"{ROWS[row].label}, seed {seed}")
            results.append(runner.train_row(row, seed))
    return results


def find_experiment(name: str) -> Experiment:
    """Find an experiment by name."""
    if name not in EXPERIMENTS:
        raise QueryError(
            f"there is no experiment {name!r}; choose one of {', '.join(EXPERIMENTS)}."
        )
    return EXPERIMENTS[name]


class ExperimentRunner:
    """Trains and evaluates rows, which share tokenised texts and BM25's rankings."""

    def __init__(self, options: ExperimentOptions, experiment: Experiment) -> None:
        self._options = options
        self._experiment = experiment
        self._checksums = {test: _checksum(options.data / test) for test in self._tests()}
        self._tokenised: TokenisedSets | None = None
        self._validation_sets: dict[str, ValidationSet] = {}
        self._bm25_rankings: dict[str, list[ScoredOrdinals]] = {}

    def evaluate_bm25(self) -> dict[str, Any]:
        """Evaluate BM25 alone."""
        figures = {
            test: {"alone": _compute_figures(self._rank_by_words(test), self._validation_set(test))}
            for test in self._tests()
        }
        return {"row": "bm25", "label": "BM25 (SQLite FTS5)", "seed": 0, "figures": figures}

    def load_result(self, row: str, seed: int) -> dict[str, Any] | None:
        """Load the result of a row if it was trained before with the same settings and data."""
        path, inputs = self._path(row, seed), self._describe_inputs(self._make_config(row, seed))
        if not path.exists():
            return None
        result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return result if {key: result.get(key) for key in inputs} == inputs else None

    def train_row(self, row: str, seed: int) -> dict[str, Any]:
        """Train and evaluate a row, and store the result."""
        config = self._make_config(row, seed)
        path, inputs = self._path(row, seed), self._describe_inputs(config)
        # A training that was begun with other settings or data must not be continued.
        name = f"{row}-{seed}-{hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:8]}"
        config = replace(config, output=str(self._options.out / "work" / self._kind() / name))
        started = time.perf_counter()
        if self._tokenised is None:
            self._tokenised = load_training_sets(
                config, load_starting_model(config), self._tokens()
            )
        self._lay_out_negatives(config, self._tokenised)
        folder = train(config, self._tokenised).parent
        seconds = time.perf_counter() - started
        model = load_model(str(folder / "model"))
        result = {
            "row": row,
            "label": ROWS[row].label,
            "seed": seed,
            "figures": {test: self._evaluate(model, test) for test in self._tests()},
            "curve": _curve(json.loads((folder / "history.json").read_text(encoding="utf-8"))),
            "training_seconds": round(seconds, 1),
            "made_by": describe_origin(self._options),
            **inputs,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(result, indent=1).encode())
        return result

    def _lay_out_negatives(self, config: Config, tokenised: TokenisedSets) -> None:
        """Give a training BM25's negatives: they are the same for all rows, and take minutes."""
        inputs = json.dumps([self._checksums, config.mine_depth])
        name = f"negatives-{hashlib.sha256(inputs.encode()).hexdigest()[:8]}.jsonl"
        mined = self._options.out / "work" / name
        if not mined.exists():
            mined.parent.mkdir(parents=True, exist_ok=True)
            write_negatives(mine_by_words(tokenised.training_sets, config.mine_depth), mined)
        first = negatives_path(Path(config.output), 0)
        first.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(first, mined.read_bytes())

    def _describe_inputs(self, config: Config) -> dict[str, Any]:
        return {"settings": _portable(config), "data": self._checksums}

    def _path(self, row: str, seed: int) -> Path:
        rate = self._options.learning_rate or ROWS[row].learning_rate
        return self._options.out / "runs" / self._kind() / f"{row}-{rate:.0e}-{seed}.json"

    def _kind(self) -> str:
        return f"{self._experiment.schedule}{'-small' if self._options.small else ''}"

    def _tests(self) -> Sequence[str]:
        """Return every collection of the training data, as other experiments share the rows."""
        trained_on = SCHEDULES[self._experiment.schedule]["train"]
        return [name for name in COLLECTIONS if name in trained_on]

    def _make_config(self, row: str, seed: int) -> Config:
        table_row = ROWS[row]
        schedule = dict(SCHEDULES[self._experiment.schedule])
        settings = table_row.representation.settings()
        if self._options.small:
            schedule |= SMALL
            settings["k"] = min(settings["k"], SMALL_K)
        schedule |= table_row.changes
        schedule["train"] = tuple(
            f"{self._options.data / name}:train" for name in schedule["train"]
        )
        return Config(
            output="",  # `train_row` names it after all other settings
            model=self._options.model,
            representation=settings,
            learning_rate=self._options.learning_rate or table_row.learning_rate,
            seed=seed,
            **schedule,
        )

    def _evaluate(self, model: MultiVectorEncoder, test: str) -> dict[str, dict[str, float]]:
        """Evaluate a model alone, and together with BM25."""
        validation_set = self._validation_set(test)
        rankings = rank_queries(model, validation_set)
        dense: list[ScoredOrdinals] = [
            list(zip(positions[:FUSION_DEPTH], scores[:FUSION_DEPTH], strict=True))
            for positions, scores in zip(
                rankings.positions.tolist(), rankings.scores.tolist(), strict=True
            )
        ]
        measures = per_query_measures(rankings.positions, validation_set.gains)
        figures = {"alone": _average_percent(measures)}
        for fusion in get_args(Fusion):
            pairs = zip(dense, self._rank_by_words(test), strict=True)
            fused = [fuse(ranking, words[:FUSION_DEPTH], fusion, 0.5) for ranking, words in pairs]
            figures[fusion] = _compute_figures(fused, validation_set)
        return figures | {"size": {"vectors": rankings.vectors}}

    def _validation_set(self, test: str) -> ValidationSet:
        if test not in self._validation_sets:
            model = load_model(self._options.model)
            self._validation_sets[test] = make_validation_set(
                model, self._dataset(test), test, self._tokens()
            )
        return self._validation_sets[test]

    def _rank_by_words(self, test: str) -> list[ScoredOrdinals]:
        """Rank by BM25; a file caches the rankings, which take minutes."""
        if test in self._bm25_rankings:
            return self._bm25_rankings[test]
        path = self._options.out / "work" / f"bm25-{test}-{self._checksums[test]}.json"
        if path.exists():
            self._bm25_rankings[test] = json.loads(path.read_text(encoding="utf-8"))
            return self._bm25_rankings[test]
        dataset = self._dataset(test)
        texts = [document_text(document)[0] for document in dataset.documents()]
        queries = [query.text for query in judged_queries(dataset)]
        self._bm25_rankings[test] = list(rank_by_words(texts, queries, DEPTH))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(self._bm25_rankings[test]).encode())
        return self._bm25_rankings[test]

    def _tokens(self) -> Path:
        return self._options.out / "work" / "tokens"

    def _dataset(self, test: str) -> Dataset:
        return load_named_dataset(f"{self._options.data / test}:{COLLECTIONS[test]}")


def describe_origin(options: ExperimentOptions) -> dict[str, str]:
    """Describe the code, the machine and the libraries that have produced a figure."""
    device = "cpu"
    if torch.cuda.is_available():
        device = torch.cuda.get_device_name()
    return {
        "command": _command(options),
        "commit": describe_commit(),
        "source": hash_source(),
        "device": device,
        "cores": str(os.cpu_count()),
        "machine": platform.machine(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "transformers", "sentence-transformers")},
    }


def _command(options: ExperimentOptions) -> str:
    """Return the command, with the names of folders instead of their paths on this machine."""
    parts = ["pseudoquery", "experiment", options.name, "--data", options.data.name]
    parts += ["--out", options.out.name, "--model", Path(options.model).name]
    parts += [
        "--seeds",
        str(options.seeds),
        *(part for row in options.rows for part in ("--row", row)),
    ]
    if options.learning_rate:
        parts += ["--learning-rate", f"{options.learning_rate:g}"]
    return " ".join([*parts, *(["--small"] if options.small else [])])


def _checksum(collection: Path) -> str:
    """Hash the files of a collection."""
    digest = hashlib.sha256()
    for path in sorted(path for path in collection.rglob("*") if path.is_file()):
        digest.update(path.relative_to(collection).as_posix().encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def _portable(config: Config) -> dict[str, Any]:
    """Return the settings without the paths of this machine."""
    settings = json.loads(json.dumps(asdict(config)))
    settings["train"] = [short_name(name) for name in config.train]
    settings["model"] = Path(config.model).name
    return {key: value for key, value in settings.items() if key != "output"}


def _curve(history: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """Select from the log of a training what its curves show, step by step."""
    steps = [entry for entry in history if "loss" in entry]
    names = ("step", "loss", "max_r", "var_r")
    return {name: [round(float(entry[name]), 5) for entry in steps] for name in names}


def _compute_figures(
    rankings: Sequence[ScoredOrdinals], validation_set: ValidationSet
) -> dict[str, float]:
    """Average the measures of rankings that may be of any length."""
    positions = np.full((len(rankings), DEPTH), NO_DOCUMENT)
    for row, ranking in enumerate(rankings):
        best = [position for position, _ in ranking[:DEPTH]]
        positions[row, : len(best)] = best
    return _average_percent(per_query_measures(positions, validation_set.gains))


def _average_percent(measures: Mapping[str, NDArray[np.float64]]) -> dict[str, float]:
    return {name: round(100 * float(values.mean()), 2) for name, values in measures.items()}
