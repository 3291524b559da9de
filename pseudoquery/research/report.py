"""The results of an experiment, as Markdown tables, as JSON and as a plot."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from pseudoquery.errors import ModelError
from pseudoquery.files import write_atomically
from pseudoquery.markdown import format_table
from pseudoquery.research.rows import SHOWN_AS_TRAINED
from pseudoquery.research.schedules import HEADLINE
from pseudoquery.research.tables import Experiment

Result = Mapping[str, Any]
"""What the file of one row and seed holds, under OUT/runs."""
NAMES = {"RR@10": "MRR@10", "RR@100": "MRR@100", "Success@20": "top-20", "R@1000": "Recall@1000"}
MORE = ("RR@100", "Success@20", "R@1000")
"""Measures that are shown beside the headline measure."""


def write_report(name: str, experiment: Experiment, results: Sequence[Result], out: Path) -> None:
    """Write OUT/NAME.md, .json and .svg."""
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / f"{name}.md", format_report(name, experiment, results).encode())
    selected = [_select_figures(experiment, result) for result in results]
    write_atomically(out / f"{name}.json", json.dumps(selected, indent=1).encode())
    draw_plot(experiment, results, out / f"{name}.svg")


def _select_figures(experiment: Experiment, result: Result) -> dict[str, Any]:
    """Leave out the figures of collections that only other experiments with this row show."""
    figures = {test: result["figures"][test] for test in _tests_of(experiment, [result])}
    return {**result, "figures": figures}


def _tests_of(experiment: Experiment, results: Sequence[Result]) -> list[str]:
    """List the tests for which there is a result: a training may be missing still."""
    return [
        test for test in experiment.tests if any(test in result["figures"] for result in results)
    ]


def format_report(name: str, experiment: Experiment, results: Sequence[Result]) -> str:
    """Write the table of each collection, and what is needed to repeat them."""
    parts = [f"# {experiment.title}", ""]
    tests = _tests_of(experiment, results)
    if len(experiment.schedules) > 1:
        parts += ["## Summary", "", _format_summary(results, tests), ""]
    for test in tests:
        judged = [result for result in results if test in result["figures"]]
        parts += [f"## {test}", "", _format_results(experiment, judged, test), ""]
    if experiment.paper:
        parts += [
            f"The last column is the paper's own figure ({experiment.paper_data}): other data and "
            "another encoder, so that only the order of its rows can be compared.",
            "",
        ]
    parts += [f"![{experiment.title}]({name}.svg)", "", "## How it was made", ""]
    return "\n".join([*parts, *_provenance(results)]) + "\n"


def write_rates(out: Path) -> None:
    """Write OUT/rates.md: the figures of each row with every learning rate that was tried."""
    parts = [
        "# Learning rates",
        "",
        "Every training that was kept: a row, a learning rate, and the measure by which each "
        "collection is judged. The tables have the rates in bold.",
        "",
    ]
    for schedule in sorted((out / "runs").glob("*/")):
        paths = sorted(schedule.glob("*.json"))
        results = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
        results = [result for result in results if result["row"] in SHOWN_AS_TRAINED]
        if results:
            parts += [f"## Schedule {schedule.name}", "", _format_rates(results), ""]
    write_atomically(out / "rates.md", "\n".join(parts).encode())


def _format_rates(results: Sequence[Result]) -> str:
    tests = list(results[0]["figures"])
    rates: dict[tuple[int, float], list[Result]] = defaultdict(list)
    for result in results:
        position = list(SHOWN_AS_TRAINED).index(result["row"])
        rates[position, result["settings"]["learning_rate"]].append(result)
    lines = []
    for (_, rate), seeds in sorted(rates.items(), key=lambda item: item[0]):
        row = SHOWN_AS_TRAINED[seeds[0]["row"]]
        figures = [
            [seed["figures"][test]["alone"][headline_measure(test)] for seed in seeds]
            for test in tests
        ]
        lines.append(
            (
                row.label,
                f"**{rate:g}**" if rate == row.learning_rate else f"{rate:g}",
                len(seeds),
                *map(_format_mean, figures),
            )
        )
    return format_table(("documents as", "learning rate", "seeds", *tests), lines)


def headline_measure(test: str) -> str:
    """Return the measure that a collection is usually judged by."""
    return HEADLINE.get(test, "RR@10")


def group_by_row(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Group the results by row; those of a row differ in their seeds."""
    rows: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        rows[result["row"]].append(result)
    return dict(rows)


def _format_summary(results: Sequence[Result], tests: Sequence[str]) -> str:
    """Write one table of all collections: a line each, and a column for each row."""
    rows = group_by_row(results)
    lines = []
    for test in tests:
        measure = headline_measure(test)
        figures = [
            [seed["figures"][test]["alone"][measure] for seed in seeds if test in seed["figures"]]
            for seeds in rows.values()
        ]
        lines.append((test, NAMES.get(measure, measure), *map(_format_mean, figures)))
    labels = [seeds[0]["label"] for seeds in rows.values()]
    return format_table(("left out", "measure", *labels), lines)


def _format_results(experiment: Experiment, results: Sequence[Result], test: str) -> str:
    headline = headline_measure(test)
    measures = [headline, *(measure for measure in MORE if measure != headline)]
    sized = any("bytes" in result["figures"][test].get("size", {}) for result in results)
    titles = [
        "documents as",
        "vectors",
        *(["bytes"] if sized else []),
        *(NAMES.get(measure, measure) for measure in measures),
        "+ BM25, weighted",
        "+ BM25, RRF",
        *(["paper"] if experiment.paper else []),
    ]
    lines = []
    for row, seeds in group_by_row(results).items():
        figures = [seed["figures"][test] for seed in seeds]
        size = figures[0].get("size", {})
        alone = [seed["alone"] for seed in figures]
        fused = [
            [seed[fusion][headline] for seed in figures if fusion in seed]
            for fusion in ("weighted", "rrf")
        ]
        lines.append(
            (
                seeds[0]["label"],
                f"{size['vectors']:.0f}" if size.get("vectors") else "",
                *([f"{size['bytes']:,}" if "bytes" in size else ""] if sized else []),
                *(_format_mean([seed[measure] for seed in alone]) for measure in measures),
                *map(_format_mean, fused),
                *([experiment.paper.get(row, "")] if experiment.paper else []),
            )
        )
    return format_table(titles, lines)


def _format_mean(values: Sequence[float]) -> str:
    if not values:
        return ""
    spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
    return f"{mean(values):.1f}{spread}"


def _provenance(results: Sequence[Result]) -> list[str]:
    """List the command, the code, the machine and the settings; each thing once."""
    trained = [result for result in results if "settings" in result]
    lines = []
    origins = [
        origin
        for result in trained
        for origin in (
            result["made_by"] if isinstance(result["made_by"], list) else [result["made_by"]]
        )
    ]
    for origin in {json.dumps(origin, sort_keys=True) for origin in origins}:
        facts = json.loads(origin)
        lines.append(
            f"- `{facts['command']}`, commit {facts['commit']} (source {facts['source']}), "
            f"{facts['device']}, {facts['cores']} cores, torch {facts['torch']}, "
            f"sentence-transformers {facts['sentence-transformers']}"
        )
    settings = [result["settings"] for result in trained]
    shared = {
        key: value
        for key, value in (settings[0] if settings else {}).items()
        if all(other.get(key) == value for other in settings)
    }
    return [
        *sorted(lines),
        "- " + _describe_trainings([len(seeds) for seeds in group_by_row(trained).values()]),
        f"- settings of every row: `{json.dumps(shared)}`; the JSON file has those that differ",
        "- a hybrid fuses the best 100 of each part: with equal weights after scaling scores to "
        "0..1 (weighted), or by reciprocal ranks (RRF)",
    ]


def _describe_trainings(counts: Sequence[int]) -> str:
    """Say how many trainings the figures are averages of, from the number of each row's seeds."""
    several = sorted({count for count in counts if count > 1})
    if not several:
        return "one training a row"
    spread = (
        f"± is the standard deviation over {' or '.join(map(str, several))} trainings with "
        "different seeds, of which the figure before it is the mean"
    )
    return spread + ("; a row without ± is one training" if 1 in counts else "")


def draw_plot(experiment: Experiment, results: Sequence[Result], path: Path) -> None:
    """Draw the figures of each row or, for an experiment with curves, how its trainings went."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise ModelError("plots need matplotlib; run: pip install 'pseudoquery[train]'") from error
    mpl.use("svg")
    # The same figures make the same file, byte for byte.
    mpl.rcParams.update({"svg.hashsalt": "pseudoquery", "font.size": 9, "figure.dpi": 100})
    import matplotlib.pyplot as plt

    tests = _tests_of(experiment, results)
    panels = len(CURVES) if experiment.curves else len(tests)
    columns = min(panels, COLUMNS)
    lines = -(-panels // columns)
    height = 4.2 if experiment.curves else 1.2 + 0.26 * len(group_by_row(results))
    width = 4.8 * columns + (0.0 if experiment.curves else 2.2)
    figure, axes = plt.subplots(
        lines,
        columns,
        figsize=(width, lines * height),
        squeeze=False,
        sharey=not experiment.curves,
    )
    if experiment.curves:
        _draw_curves(axes[0], results)
    else:
        for axis, test in zip(axes.flat, tests, strict=False):
            _draw_quality(axis, results, test)
        for axis in axes.flat[panels:]:
            axis.set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


COLUMNS = 3
"""Panels of a plot beside each other, at most."""
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
    headline = headline_measure(test)
    rows = group_by_row([result for result in results if test in result["figures"]])
    for height, seeds in enumerate(rows.values()):
        figures = [seed["figures"][test] for seed in seeds]
        values = [seed["alone"][headline] for seed in figures]
        axis.errorbar(
            mean(values),
            height,
            xerr=stdev(values) if len(values) > 1 else None,
            fmt="o",
            color="C0",
        )
        hybrid = [seed["weighted"][headline] for seed in figures if "weighted" in seed]
        if hybrid:
            axis.plot(mean(hybrid), height, "o", color="C1", fillstyle="none")
        if seeds[0]["row"] == "bm25":
            axis.axvline(mean(values), color="grey", linestyle="--", linewidth=1)
    axis.set_yticks(range(len(rows)), [seeds[0]["label"] for seeds in rows.values()])
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_xlabel(f"{NAMES.get(headline, headline)} (filled: alone; hollow: with BM25, weighted)")
    axis.set_title(test)
    axis.grid(alpha=0.3)
