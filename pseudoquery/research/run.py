"""Carry out an experiment: train its rows, judge them, and keep what came out.

Each row and seed is one file under OUT/runs; what is there already, from the same settings and
data, is not done again. So an experiment can be stopped after any row, and experiments share rows.
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
NOWHERE = np.iinfo(np.int64).min
"""Fills up a ranking that is too short; no document stands there."""


@dataclass(frozen=True, slots=True)
class ExperimentOptions:
    """What is to be done."""

    name: str
    data: Path
    """The folder with the collections."""
    out: Path
    model: str = "minilm"
    seeds: int = 1
    rows: tuple[str, ...] = ()
    """Only these; all of the experiment's if empty."""
    small: bool = False
    learning_rate: float | None = None
    """To be tried instead of the rows' own; nothing is reported."""
    report: bool = False
    """Train nothing: report what is there."""


def run_experiment(order: ExperimentOptions, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """Do what is still to be done; return the results of all rows and seeds, BM25 first."""
    experiment = find_experiment(order.name)
    rows = order.rows or experiment.rows
    if unknown := set(rows) - set(experiment.rows):
        raise QueryError(
            f"{order.name} has no row {min(unknown)!r}; it has {', '.join(experiment.rows)}."
        )
    bench = ExperimentRunner(order, experiment)
    results = [bench.by_words()]
    for row, seed in product(rows, range(order.seeds)):
        if (kept := bench.kept(row, seed)) is not None:
            results.append(kept)
        elif not order.report:
            tell(f"{ROWS[row].label}, seed {seed}")
            results.append(bench.trained(row, seed))
    return results


def find_experiment(name: str) -> Experiment:
    """Find an experiment by name."""
    if name not in EXPERIMENTS:
        raise QueryError(
            f"there is no experiment {name!r}; choose one of {', '.join(EXPERIMENTS)}."
        )
    return EXPERIMENTS[name]


class ExperimentRunner:
    """What the rows of an experiment share: tokenised texts, and BM25's rankings."""

    def __init__(self, order: ExperimentOptions, experiment: Experiment) -> None:
        self._order = order
        self._experiment = experiment
        self._checksums = {test: _checksum(order.data / test) for test in self._tests()}
        self._material: TokenisedSets | None = None
        self._exams: dict[str, ValidationSet] = {}
        self._words: dict[str, list[ScoredOrdinals]] = {}

    def by_words(self) -> dict[str, Any]:
        """Judge BM25 alone."""
        figures = {
            test: {"alone": _figures(self._ranked_by_words(test), self._exam(test))}
            for test in self._tests()
        }
        return {"row": "bm25", "label": "BM25 (SQLite FTS5)", "seed": 0, "figures": figures}

    def kept(self, row: str, seed: int) -> dict[str, Any] | None:
        """Look whether a row was trained with the same settings and data before."""
        path, told = self._path(row, seed), self._told(self._config(row, seed))
        if not path.exists():
            return None
        result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return result if {key: result.get(key) for key in told} == told else None

    def trained(self, row: str, seed: int) -> dict[str, Any]:
        """Train and judge a row, and keep the result."""
        config = self._config(row, seed)
        path, told = self._path(row, seed), self._told(config)
        # A training of other settings or data, begun before, must not be gone on with.
        name = f"{row}-{seed}-{hashlib.sha256(json.dumps(told).encode()).hexdigest()[:8]}"
        config = replace(config, output=str(self._order.out / "work" / self._kind() / name))
        started = time.perf_counter()
        if self._material is None:
            self._material = load_training_sets(config, load_starting_model(config), self._tokens())
        self._lay_out_negatives(config, self._material)
        folder = train(config, self._material).parent
        seconds = time.perf_counter() - started
        model = load_model(str(folder / "model"))
        result = {
            "row": row,
            "label": ROWS[row].label,
            "seed": seed,
            "figures": {test: self._judged(model, test) for test in self._tests()},
            "curve": _curve(json.loads((folder / "history.json").read_text(encoding="utf-8"))),
            "training_seconds": round(seconds, 1),
            "made_by": describe_origin(self._order),
            **told,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(result, indent=1).encode())
        return result

    def _lay_out_negatives(self, config: Config, material: TokenisedSets) -> None:
        """Give a training BM25's negatives: they are the same for all rows, and take minutes."""
        told = json.dumps([self._checksums, config.mine_depth])
        name = f"negatives-{hashlib.sha256(told.encode()).hexdigest()[:8]}.jsonl"
        kept = self._order.out / "work" / name
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_negatives(mine_by_words(material.lessons, config.mine_depth), kept)
        first = negatives_path(Path(config.output), 0)
        first.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(first, kept.read_bytes())

    def _told(self, config: Config) -> dict[str, Any]:
        return {"settings": _portable(config), "data": self._checksums}

    def _path(self, row: str, seed: int) -> Path:
        rate = self._order.learning_rate or ROWS[row].learning_rate
        return self._order.out / "runs" / self._kind() / f"{row}-{rate:.0e}-{seed}.json"

    def _kind(self) -> str:
        return f"{self._experiment.schedule}{'-small' if self._order.small else ''}"

    def _tests(self) -> Sequence[str]:
        """Judge by every collection that was learnt from, as other experiments share the rows."""
        learnt = SCHEDULES[self._experiment.schedule]["train"]
        return [name for name in COLLECTIONS if name in learnt]

    def _config(self, row: str, seed: int) -> Config:
        one = ROWS[row]
        schedule = dict(SCHEDULES[self._experiment.schedule])
        settings = one.representation.settings()
        if self._order.small:
            schedule |= SMALL
            settings["k"] = min(settings["k"], SMALL_K)
        schedule |= one.changes
        schedule["train"] = tuple(f"{self._order.data / name}:train" for name in schedule["train"])
        return Config(
            output="",  # named after all the other settings
            model=self._order.model,
            representation=settings,
            learning_rate=self._order.learning_rate or one.learning_rate,
            seed=seed,
            **schedule,
        )

    def _judged(self, model: MultiVectorEncoder, test: str) -> dict[str, dict[str, float]]:
        """Judge a model alone, and together with BM25."""
        exam = self._exam(test)
        given = rank_queries(model, exam)
        dense: list[ScoredOrdinals] = [
            list(zip(own[:FUSION_DEPTH], found[:FUSION_DEPTH], strict=True))
            for own, found in zip(given.places.tolist(), given.scores.tolist(), strict=True)
        ]
        figures = {"alone": _means(per_query_measures(given.places, exam.gains))}
        for fusion in get_args(Fusion):
            pairs = zip(dense, self._ranked_by_words(test), strict=True)
            fused = [fuse(own, words[:FUSION_DEPTH], fusion, 0.5) for own, words in pairs]
            figures[fusion] = _figures(fused, exam)
        return figures | {"size": {"vectors": given.vectors}}

    def _exam(self, test: str) -> ValidationSet:
        if test not in self._exams:
            model = load_model(self._order.model)
            self._exams[test] = make_validation_set(
                model, self._dataset(test), test, self._tokens()
            )
        return self._exams[test]

    def _ranked_by_words(self, test: str) -> list[ScoredOrdinals]:
        """Rank by BM25; kept in a file, as it takes minutes and changes only with the data."""
        if test in self._words:
            return self._words[test]
        path = self._order.out / "work" / f"bm25-{test}-{self._checksums[test]}.json"
        if path.exists():
            self._words[test] = json.loads(path.read_text(encoding="utf-8"))
            return self._words[test]
        dataset = self._dataset(test)
        texts = [document_text(document)[0] for document in dataset.documents()]
        queries = [query.text for query in judged_queries(dataset)]
        self._words[test] = list(rank_by_words(texts, queries, DEPTH))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(self._words[test]).encode())
        return self._words[test]

    def _tokens(self) -> Path:
        return self._order.out / "work" / "tokens"

    def _dataset(self, test: str) -> Dataset:
        return load_named_dataset(f"{self._order.data / test}:{COLLECTIONS[test]}")


def describe_origin(order: ExperimentOptions) -> dict[str, str]:
    """Describe the code, the machine and the libraries, to be kept beside a figure."""
    device = "cpu"
    if torch.cuda.is_available():
        device = torch.cuda.get_device_name()
    return {
        "command": _command(order),
        "commit": describe_commit(),
        "source": hash_source(),
        "device": device,
        "cores": str(os.cpu_count()),
        "machine": platform.machine(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "transformers", "sentence-transformers")},
    }


def _command(order: ExperimentOptions) -> str:
    """Write the command, without the places where folders lie on this machine."""
    parts = ["pseudoquery", "experiment", order.name, "--data", order.data.name]
    parts += ["--out", order.out.name, "--model", Path(order.model).name]
    parts += ["--seeds", str(order.seeds), *(part for row in order.rows for part in ("--row", row))]
    if order.learning_rate:
        parts += ["--learning-rate", f"{order.learning_rate:g}"]
    return " ".join([*parts, *(["--small"] if order.small else [])])


def _checksum(collection: Path) -> str:
    """Hash the files of a collection."""
    digest = hashlib.sha256()
    for path in sorted(path for path in collection.rglob("*") if path.is_file()):
        digest.update(path.relative_to(collection).as_posix().encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def _portable(config: Config) -> dict[str, Any]:
    """Return the settings without the names of this machine's folders."""
    settings = json.loads(json.dumps(asdict(config)))
    settings["train"] = [short_name(name) for name in config.train]
    settings["model"] = Path(config.model).name
    return {key: value for key, value in settings.items() if key != "output"}


def _curve(history: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """Pick the course of a training out of what was logged."""
    steps = [entry for entry in history if "loss" in entry]
    names = ("step", "loss", "max_r", "var_r")
    return {name: [round(float(entry[name]), 5) for entry in steps] for name in names}


def _figures(rankings: Sequence[ScoredOrdinals], exam: ValidationSet) -> dict[str, float]:
    """Average the measures of rankings that may be of any length."""
    places = np.full((len(rankings), DEPTH), NOWHERE)
    for row, ranking in enumerate(rankings):
        best = [place for place, _ in ranking[:DEPTH]]
        places[row, : len(best)] = best
    return _means(per_query_measures(places, exam.gains))


def _means(measures: Mapping[str, NDArray[np.float64]]) -> dict[str, float]:
    return {name: round(100 * float(own.mean()), 2) for name, own in measures.items()}
