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
from typing import Any

import torch
from sentence_transformers import MultiVectorEncoder

from pseudoquery.encoding.model import load_model, representation_for
from pseudoquery.errors import QueryError
from pseudoquery.files import write_atomically
from pseudoquery.research.judge import Figures, Judge
from pseudoquery.research.provenance import describe_commit, hash_source
from pseudoquery.research.rows import NO_CHANGE, ROWS, TRAINED, Use
from pseudoquery.research.schedules import ALL_COLLECTIONS, SCHEDULES, SMALL, judged_collections
from pseudoquery.research.tables import EXPERIMENTS, Experiment
from pseudoquery.research.token_ranking import TokenScores
from pseudoquery.training.average import mix_weights
from pseudoquery.training.batches import TokenisedSets
from pseudoquery.training.config import (
    Config,
    describe_settings,
    short_name,
    trained_representation,
)
from pseudoquery.training.mine import mine_by_words
from pseudoquery.training.negatives import write_negatives
from pseudoquery.training.refresh import negatives_path
from pseudoquery.training.train import load_starting_model, load_training_sets, train

SMALL_K = 4
"""The largest k of a small experiment."""


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
    results: list[dict[str, Any]] = []
    for schedule in experiment.schedules:
        runner = ExperimentRunner(options, schedule)
        where = f" ({schedule})" if len(experiment.schedules) > 1 else ""
        results.append(runner.judge_bm25())
        for row, seed in product(rows, range(options.seeds)):
            if seed and not ROWS[row].trained:
                continue
            if (stored := runner.load_result(row, seed)) is not None:
                results.append(stored)
            elif not options.report:
                on_row(f"{ROWS[row].label}, seed {seed}{where}")
                results.append(runner.run_row(row, seed))
    return merge_results(results)


def merge_results(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put together what the schedules of an experiment give for the same row and seed.

    Each schedule is judged on collections of its own. Of the settings, those that all share stay.
    """
    merged: dict[tuple[str, int], dict[str, Any]] = {}
    for result in results:
        key = result["row"], result["seed"]
        if key not in merged:
            merged[key] = result
            continue
        earlier = merged[key]
        merged[key] = {**earlier, "figures": {**earlier["figures"], **result["figures"]}}
        if "settings" in earlier:
            merged[key]["settings"] = {
                name: value
                for name, value in earlier["settings"].items()
                if result["settings"].get(name) == value
            }
        if "made_by" in earlier:
            origins = earlier["made_by"]
            origins = origins if isinstance(origins, list) else [origins]
            merged[key]["made_by"] = [*origins, result["made_by"]]
    return list(merged.values())


def find_experiment(name: str) -> Experiment:
    """Find an experiment by name."""
    if name not in EXPERIMENTS:
        raise QueryError(
            f"there is no experiment {name!r}; choose one of {', '.join(EXPERIMENTS)}."
        )
    return EXPERIMENTS[name]


class ExperimentRunner:
    """Trains and judges rows on one schedule; they share tokenised texts and BM25's rankings."""

    def __init__(self, options: ExperimentOptions, schedule: str) -> None:
        self._options = options
        self._schedule = schedule
        self._tests = judged_collections(schedule)
        used = {*SCHEDULES[schedule]["train"], *self._tests}
        self._checksums = {
            name: _checksum(options.data / name) for name in ALL_COLLECTIONS if name in used
        }
        self._work = options.out / "work"
        self._judge = Judge(options.data, self._work, options.model, self._checksums)
        self._tokenised: TokenisedSets | None = None
        self._token_scores: tuple[Any, dict[str, TokenScores]] = (None, {})

    def judge_bm25(self) -> dict[str, Any]:
        """Judge BM25 alone."""
        figures = {test: self._judge.judge_bm25(test) for test in self._tests}
        return {"row": "bm25", "label": "BM25 (SQLite FTS5)", "seed": 0, "figures": figures}

    def load_result(self, row: str, seed: int) -> dict[str, Any] | None:
        """Load the result of a row if it was judged before with the same settings and data."""
        path, inputs = self._path(row, seed), self._describe_inputs(row, seed)
        if not path.exists():
            return None
        result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return result if {key: result.get(key) for key in inputs} == inputs else None

    def run_row(self, row: str, seed: int) -> dict[str, Any]:
        """Train the model of a row unless that is done, judge it, and store the result."""
        training = self._train(row, seed) if ROWS[row].trained else {}
        model = self._load_model(row, seed)
        result = {
            "row": row,
            "label": ROWS[row].label,
            "seed": seed,
            "figures": self._judge_uses(model, row, seed),
            **training,
            "made_by": describe_origin(self._options),
            **self._describe_inputs(row, seed),
        }
        path = self._path(row, seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(result, indent=1).encode())
        return result

    def _train(self, row: str, seed: int) -> dict[str, Any]:
        """Train a model unless another row has; return how it went."""
        config = self._make_config(row, seed)
        config = replace(config, output=str(self._folder(row, seed)))
        started = time.perf_counter()
        if not (Path(config.output) / "model").exists():
            if self._tokenised is None:
                self._tokenised = load_training_sets(
                    config, load_starting_model(config), self._work / "tokens"
                )
            self._lay_out_negatives(config, self._tokenised)
            train(config, self._tokenised)
        history = (Path(config.output) / "history.json").read_text(encoding="utf-8")
        seconds = time.perf_counter() - started
        return {"curve": _curve(json.loads(history)), "training_seconds": round(seconds, 1)}

    def _load_model(self, row: str, seed: int) -> MultiVectorEncoder:
        """Load the model of a row, as the row uses it."""
        config, use = self._make_config(row, seed), self._use(row)
        if not ROWS[row].trained:
            return load_model(self._options.model, trained_representation(config))
        path = str(self._folder(row, seed) / "model")
        changes = {} if use.k is None else {"k": use.k}
        model = load_model(path, representation_for(path, **changes))
        if use.start_share:
            mix_weights(model, load_starting_model(config), use.start_share)
        return model

    def _judge_uses(self, model: MultiVectorEncoder, row: str, seed: int) -> dict[str, Figures]:
        """Judge a model on all tests; rows of one model share the scores of its tokens."""
        use = self._use(row)
        key = row if not ROWS[row].trained else (_training_of(row), seed, use.start_share)
        if self._token_scores[0] != key:
            self._token_scores = key, {}
        scores = self._token_scores[1]
        figures = {}
        for test in self._tests:
            if use.tokens != "none" and test not in scores:
                scores[test] = self._judge.score_tokens(model, test)
            figures[test] = self._judge.judge(model, test, use, scores.get(test))
        return figures

    def _lay_out_negatives(self, config: Config, tokenised: TokenisedSets) -> None:
        """Give a training BM25's negatives: they are the same for all rows, and take minutes."""
        first = negatives_path(Path(config.output), 0)
        first.parent.mkdir(parents=True, exist_ok=True)
        lines = []
        for training_set in tokenised.training_sets:
            checksum = self._checksums[training_set.name]
            name = f"negatives-{training_set.name}-{checksum}-{config.mine_depth}.jsonl"
            mined = self._work / name
            if not mined.exists():
                mined.parent.mkdir(parents=True, exist_ok=True)
                write_negatives(mine_by_words([training_set], config.mine_depth), mined)
            lines.append(mined.read_bytes())
        write_atomically(first, b"".join(lines))

    def _describe_inputs(self, row: str, seed: int) -> dict[str, Any]:
        """Describe all that decides a result."""
        inputs = {"settings": _portable(self._make_config(row, seed)), "data": self._checksums}
        use = self._use(row)
        return inputs if use == NO_CHANGE else {**inputs, "use": asdict(use)}

    def _folder(self, row: str, seed: int) -> Path:
        """Return the folder of a training; one with other settings or data has another."""
        inputs = {"settings": _portable(self._make_config(row, seed)), "data": self._checksums}
        digest = hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:8]
        return self._work / self._kind() / f"{_training_of(row)}-{seed}-{digest}"

    def _path(self, row: str, seed: int) -> Path:
        rate = self._options.learning_rate or ROWS[row].learning_rate
        return self._options.out / "runs" / self._kind() / f"{row}-{rate:.0e}-{seed}.json"

    def _kind(self) -> str:
        return f"{self._schedule}{'-small' if self._options.small else ''}"

    def _use(self, row: str) -> Use:
        use = ROWS[row].use
        if self._options.small and use.k is not None:
            return replace(use, k=min(use.k, SMALL_K))
        return use

    def _make_config(self, row: str, seed: int) -> Config:
        """Make the settings of the training that a row uses."""
        table_row = TRAINED.get(_training_of(row), ROWS[row])
        schedule = dict(SCHEDULES[self._schedule])
        settings = table_row.representation.settings()
        changes = dict(table_row.changes)
        if self._options.small:
            schedule |= SMALL
            settings["k"] = min(settings["k"], SMALL_K)
            if budgets := changes.get("loss", {}).get("budgets"):
                fewer = sorted({min(budget, SMALL_K) for budget in budgets})
                changes["loss"] = {**changes["loss"], "budgets": fewer}
        schedule |= changes
        schedule["train"] = tuple(
            f"{self._options.data / name}:train" for name in schedule["train"]
        )
        return Config(
            output="",  # `_folder` names it after all other settings
            model=self._options.model,
            representation=settings,
            learning_rate=self._options.learning_rate or table_row.learning_rate,
            seed=seed,
            **schedule,
        )


def _training_of(row: str) -> str:
    """Name the row whose training a row uses."""
    return ROWS[row].trained_as or row


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
    settings = json.loads(json.dumps(describe_settings(config)))
    settings["train"] = [short_name(name) for name in config.train]
    settings["model"] = Path(config.model).name
    return {key: value for key, value in settings.items() if key != "output"}


def _curve(history: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """Select from the log of a training what its curves show, step by step."""
    steps = [entry for entry in history if "loss" in entry]
    names = ("step", "loss", "max_r", "var_r")
    return {name: [round(float(entry[name]), 5) for entry in steps] for name in names}
