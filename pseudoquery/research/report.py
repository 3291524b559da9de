"""Write down what an experiment found: a Markdown table, the same as JSON, and a plot."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from pseudoquery.errors import ModelError
from pseudoquery.files import write_atomically
from pseudoquery.research.tables import HEADLINE, ROWS, Experiment

Result = Mapping[str, Any]
NAMES = {"RR@10": "MRR@10", "RR@100": "MRR@100", "Success@20": "top-20", "R@1000": "Recall@1000"}
MORE = ("RR@100", "Success@20", "R@1000")
"""Measures that are shown beside the headline."""


def write_report(name: str, experiment: Experiment, results: Sequence[Result], out: Path) -> None:
    """Write OUT/NAME.md, .json and .svg."""
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / f"{name}.md", format_report(name, experiment, results).encode())
    shown = [_shown(experiment, result) for result in results]
    write_atomically(out / f"{name}.json", json.dumps(shown, indent=1).encode())
    draw_plot(experiment, results, out / f"{name}.svg")


def _shown(experiment: Experiment, result: Result) -> dict[str, Any]:
    """Leave out other collections' figures: a row is judged by all, for whoever shares it."""
    return {**result, "figures": {test: result["figures"][test] for test in experiment.tests}}


def format_report(name: str, experiment: Experiment, results: Sequence[Result]) -> str:
    """Write the table of each collection, and what is needed to repeat them."""
    parts = [f"# {experiment.title}", ""]
    for test in experiment.tests:
        parts += [f"## {test}", "", *_table(experiment, results, test), ""]
    if experiment.paper:
        parts += [
            f"The last column is the paper's own figure ({experiment.paper_data}): other data and "
            "another encoder, so that only the order of its rows can be compared.",
            "",
        ]
    parts += [f"![{experiment.title}]({name}.svg)", "", "## How it was made", ""]
    return "\n".join([*parts, *_provenance(results)]) + "\n"


def write_rates(out: Path) -> None:
    """Write OUT/rates.md: what each row came to with every learning rate that was tried."""
    parts = [
        "# Learning rates",
        "",
        "Every training that was kept: a row, a learning rate, and the measure by which each "
        "collection is judged. The tables have the rates in bold.",
        "",
    ]
    for schedule in sorted((out / "runs").glob("*/")):
        paths = sorted(schedule.glob("*.json"))
        kept = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
        kept = [result for result in kept if result["row"] in ROWS]
        if kept:
            parts += [f"## Schedule {schedule.name}", "", *_rates_table(kept), ""]
    write_atomically(out / "rates.md", "\n".join(parts).encode())


def _rates_table(results: Sequence[Result]) -> list[str]:
    tests = list(results[0]["figures"])
    titles = ["documents as", "learning rate", "seeds", *tests]
    lines = ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
    rates: dict[tuple[int, float], list[Result]] = defaultdict(list)
    for result in results:
        place = list(ROWS).index(result["row"])
        rates[place, result["settings"]["learning_rate"]].append(result)
    for (_, rate), seeds in sorted(rates.items(), key=lambda item: item[0]):
        row = ROWS[seeds[0]["row"]]
        figures = [
            [seed["figures"][test]["alone"][headline_measure(test)] for seed in seeds]
            for test in tests
        ]
        cells = [
            row.label,
            f"**{rate:g}**" if rate == row.learning_rate else f"{rate:g}",
            str(len(seeds)),
            *map(_over_seeds, figures),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def headline_measure(test: str) -> str:
    """Name the measure by which a collection is judged."""
    return HEADLINE.get(test, "RR@10")


def group_by_row(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Put the seeds of each row together."""
    rows: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        rows[result["row"]].append(result)
    return dict(rows)


def _table(experiment: Experiment, results: Sequence[Result], test: str) -> list[str]:
    first = headline_measure(test)
    measures = [first, *(one for one in MORE if one != first)]
    titles = [
        "documents as",
        "vectors",
        *(NAMES.get(one, one) for one in measures),
        "+ BM25, weighted",
        "+ BM25, RRF",
        *(["paper"] if experiment.paper else []),
    ]
    lines = ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
    for row, seeds in group_by_row(results).items():
        figures = [seed["figures"][test] for seed in seeds]
        size = figures[0].get("size", {}).get("vectors")
        cells = [
            seeds[0]["label"],
            f"{size:.0f}" if size else "",
            *(_over_seeds([own["alone"][one] for own in figures]) for one in measures),
            *(
                _over_seeds([own[fusion][first] for own in figures if fusion in own])
                for fusion in ("weighted", "rrf")
            ),
            *([experiment.paper.get(row, "")] if experiment.paper else []),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _over_seeds(values: Sequence[float]) -> str:
    if not values:
        return ""
    spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
    return f"{mean(values):.1f}{spread}"


def _provenance(results: Sequence[Result]) -> list[str]:
    """Tell the command, the code, the machine and the settings; each thing once."""
    trained = [result for result in results if "settings" in result]
    lines = []
    for made in {json.dumps(result["made_by"], sort_keys=True) for result in trained}:
        facts = json.loads(made)
        lines.append(
            f"- `{facts['command']}`, commit {facts['commit']} (source {facts['source']}), "
            f"{facts['device']}, {facts['cores']} cores, torch {facts['torch']}, "
            f"sentence-transformers {facts['sentence-transformers']}"
        )
    settings = [result["settings"] for result in trained]
    shared = {
        key: value
        for key, value in (settings[0] if settings else {}).items()
        if all(one.get(key) == value for one in settings)
    }
    return [
        *sorted(lines),
        "- " + _trainings([len(seeds) for seeds in group_by_row(trained).values()]),
        f"- settings of every row: `{json.dumps(shared)}`; the JSON file has those that differ",
        "- a hybrid fuses the best 100 of each part: with equal weights after scaling scores to "
        "0..1 (weighted), or by reciprocal ranks (RRF)",
    ]


def _trainings(counts: Sequence[int]) -> str:
    """Say how many trainings the rows rest on, from the number of each row's seeds."""
    several = sorted({count for count in counts if count > 1})
    if not several:
        return "one training a row"
    said = (
        f"± is the standard deviation over {' or '.join(map(str, several))} trainings with "
        "different seeds, of which the figure before it is the mean"
    )
    return said + ("; a row without ± is one training" if 1 in counts else "")


def draw_plot(experiment: Experiment, results: Sequence[Result], path: Path) -> None:
    """Draw how good each row is or, for curves, the course of the trainings."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise ModelError("plots need matplotlib; run: pip install 'pseudoquery[train]'") from error
    mpl.use("svg")
    # The same figures make the same file, byte for byte.
    mpl.rcParams.update({"svg.hashsalt": "pseudoquery", "font.size": 9, "figure.dpi": 100})
    import matplotlib.pyplot as plt

    panels = len(CURVES) if experiment.curves else len(experiment.tests)
    height = 4.2 if experiment.curves else 1.2 + 0.26 * len(group_by_row(results))
    width = 4.8 * panels + (0.0 if experiment.curves else 2.2)
    figure, axes = plt.subplots(
        1, panels, figsize=(width, height), squeeze=False, sharey=not experiment.curves
    )
    if experiment.curves:
        _draw_curves(axes[0], results)
    else:
        for axis, test in zip(axes[0], experiment.tests, strict=True):
            _draw_quality(axis, results, test)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


CURVES = {"loss": "loss", "max_r": "largest r(c_j)", "var_r": "variance of r(c_j)"}


def _draw_curves(axes: Any, results: Sequence[Result]) -> None:
    for axis, (key, title) in zip(axes, CURVES.items(), strict=True):
        for seeds in group_by_row([result for result in results if "curve" in result]).values():
            curve = seeds[0]["curve"]
            axis.plot(curve["step"], curve[key], label=seeds[0]["label"], linewidth=1.3)
        axis.set_title(title)
        axis.set_xlabel("step")
        axis.grid(alpha=0.3)
    axes[0].legend(frameon=False)


def _draw_quality(axis: Any, results: Sequence[Result], test: str) -> None:
    """Draw a line for each row: the representation alone, and with BM25."""
    first = headline_measure(test)
    rows = group_by_row(results)
    for place, seeds in enumerate(rows.values()):
        figures = [seed["figures"][test] for seed in seeds]
        values = [own["alone"][first] for own in figures]
        axis.errorbar(
            mean(values),
            place,
            xerr=stdev(values) if len(values) > 1 else None,
            fmt="o",
            color="C0",
        )
        hybrid = [own["weighted"][first] for own in figures if "weighted" in own]
        if hybrid:
            axis.plot(mean(hybrid), place, "o", color="C1", fillstyle="none")
        if seeds[0]["row"] == "bm25":
            axis.axvline(mean(values), color="grey", linestyle="--", linewidth=1)
    axis.set_yticks(range(len(rows)), [seeds[0]["label"] for seeds in rows.values()])
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_xlabel(f"{NAMES.get(first, first)} (filled: alone; hollow: with BM25, weighted)")
    axis.set_title(test)
    axis.grid(alpha=0.3)
