"""The report: tables, what was to be reached, where peers lead, and two plots.

Every sentence with a figure in it is made from the figures, so that it can't outlive them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.figures import Row
from pseudoquery.errors import ModelError

OURS = "pseudoquery"
NAMES = {
    "bm25s": "bm25s",
    "faiss": "Faiss",
    "lancedb": "LanceDB",
    "pseudoquery": "pseudoquery",
    "pylate": "PyLate",
    "qdrant_edge": "Qdrant Edge",
    "sentence_transformers": "sentence-transformers",
}
COLOURS = {peer: f"C{number}" for number, peer in enumerate(NAMES)}
YARDSTICK = "flat, vectors alone"
SHOWN = 4
LEAST_EVEN = 1.15
"""A run whose yardsticks differ by more than this was not left alone."""

Report = Mapping[str, Any]


def write_report(report: Report, out: Path) -> None:
    """Write report.json, report.md, latency.svg and bytes.svg."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "report.json").write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    (out / "report.md").write_text(markdown(report), "utf-8")
    plot(report, out)


def markdown(report: Report) -> str:
    """Write the report."""
    texts, random = report["sections"]["all"], report["sections"]["random"]
    few = report["sections"].get("few")
    parts = [
        "# Beside the peers",
        "",
        *_conditions(report),
        "",
        f"## {texts['facts']['name']}",
        "",
        *_about_texts(texts["facts"]),
        "",
        *_table(texts),
        "",
        "![Latency against quality and recall](latency.svg)",
        "",
        "![Quality against bytes](bytes.svg)",
        "",
        "### Where peers lead",
        "",
        *_leads(texts["rows"]),
        "",
    ]
    if few:
        parts += [
            f"## {few['facts']['name']}",
            "",
            "PyLate's fast-plaid computes in float16. A processor without instructions for it "
            "multiplies matrices at about a hundredth of its rate in float32, so it is asked about "
            "fewer documents, and some others about the same. It is made for a GPU.",
            "",
            *_table(few),
            "",
            "### Where peers lead, of fewer documents",
            "",
            *_leads(few["rows"]),
            "",
        ]
    parts += [
        f"## {random['facts']['name'].capitalize()}",
        "",
        "Random vectors, near each other within a document: the hardest case for any index.",
        "",
        *_table(random),
        "",
        "## To reach",
        "",
        *_checks(texts["rows"], random["rows"]),
        "",
        "## Settings",
        "",
        *_settings(_all_rows(report)),
    ]
    return "\n".join(parts) + "\n"


def _all_rows(report: Report) -> list[Row]:
    return [row for section in report["sections"].values() for row in section["rows"]]


def _conditions(report: Report) -> list[str]:
    machine = report["machine"]
    rules = [row["yardstick_ms"] for row in _all_rows(report)]
    spread = max(rules) / min(rules) if rules else 1.0
    even = (
        "the machine was left alone"
        if spread <= LEAST_EVEN
        else "**the machine was busy**, and only large differences mean anything"
    )
    lines = [
        f"`{report['command']}`, commit {report['commit']}, {report['date']}; "
        f"{machine['processor']}, {machine['cores']} cores, Python {machine['python']}, torch "
        f"{machine['torch']}. One run; all peers on the same vectors, one after the other, one "
        "query at a time, with the query's vectors given. Every peer also timed the same sum of 16 "
        f"million numbers: the slowest took {spread:.2f} times as long as the fastest, so {even}.",
    ]
    for section in report["sections"].values():
        for peer, reason in section["failed"].items():
            lines += ["", f"**{NAMES[peer]} failed on {section['facts']['name']}**: {reason}"]
    return lines


def _about_texts(facts: Mapping[str, Any]) -> list[str]:
    few = facts["representations"].get("tokens", {}).get("queries", 0)
    encoding = "; ".join(
        f"{name} took {own['ms_a_document']:.0f} ms a document and {own['ms_a_query']:.1f} ms a "
        "question, one at a time"
        for name, own in facts["encoding"].items()
    )
    return [
        f"{facts['documents']:,} documents, {facts['queries']:,} of their questions (all tokens: "
        f"{few:,} of these), drawn with a fixed seed. Encoder: {facts['model']}, the same for all, "
        f"reading every text whole, at commit {facts['commit']}; {encoding}. That is not part of "
        "the times below.",
        "",
        f"MRR@10 of few is of the {few:,} questions that all were asked. Recall is of a peer's own "
        "exact answer: by the largest dot product of a document's "
        "vectors, summed over the query's (MaxSim); for pseudoquery, by its own score. Bytes are "
        "what is kept on disk to search with, without the texts (with BM25: all). Times are "
        "medians; the ratio is to Faiss, flat, on the vectors of k = 8, without making documents "
        "of them. Of an approximate search, the table has the fastest point that finds 0.95 of its "
        "exact answer or, if none does, the best one; the JSON file has all.",
    ]


def _table(section: Mapping[str, Any]) -> list[str]:
    base = yardstick(section["rows"])
    judged = any("MRR@10" in row for row in section["rows"])
    quality = ["MRR@10", "nDCG@10", "MRR@10 of few"] if judged else []
    titles = [
        "peer",
        "search",
        "vectors a document",
        *quality,
        "recall@10",
        "recall@100",
        "ms",
        "95% within",
        "ratio",
        "bytes a document",
        "built in",
    ]
    lines = ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
    for row in chosen(section["rows"]):
        vectors = section["facts"]["vectors_per_document"].get(row["representation"])
        cells = [
            NAMES[row["peer"]],
            label(row),
            f"{vectors:.0f}" if vectors else "",
            *(f"{row[name]:.1f}" for name in quality),
            *(f"{row[name]:.3f}" if name in row else "" for name in ("recall@10", "recall@100")),
            f"{row['median_ms']:.2f}",
            f"{row['p95_ms']:.2f}",
            f"{row['median_ms'] / base['median_ms']:.2f}" if base else "",
            f"{row['bytes_per_document']:,.0f}",
            f"{row['build_seconds']:.1f} s",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def label(row: Row) -> str:
    """Say what a row is, in a few words."""
    effort = "" if row["effort"] is None else f", {row['effort']}"
    return f"{row['name']}{effort} ({made_of(row['representation'])})"


def made_of(representation: str) -> str:
    """Name a representation for readers."""
    kind, _, k = representation.partition("-")
    names = {"one": "one vector", "tokens": "all tokens", "words": "words"}
    return names.get(kind) or f"k = {k}{', trained' if kind == 'trained' else ''}"


def yardstick(rows: Iterable[Row], thread: str = "") -> Row | None:
    """Find Faiss' flat search, which the others are compared with."""
    for row in rows:
        if row["peer"] == "faiss" and row["name"] == YARDSTICK + thread:
            return row
    return None


def curves(rows: Iterable[Row]) -> dict[tuple[str, str, str], list[Row]]:
    """Put the points of each curve together; a search that is not approximate is one point."""
    found: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        found[row["peer"], row["representation"], row["name"]].append(row)
    return dict(found)


def chosen(rows: Sequence[Row], enough: float = 0.95) -> list[Row]:
    """Take a point of each curve: the fastest that finds enough, or the one that finds most."""
    picked = []
    for points in curves(rows).values():
        good = [row for row in points if row.get("recall@10", 1.0) >= enough]
        if good:
            picked.append(min(good, key=lambda row: float(row["median_ms"])))
        else:
            picked.append(max(points, key=lambda row: float(row["recall@10"])))
    return picked


def _leads(rows: Sequence[Row]) -> list[str]:
    """For each thing that matters, name the peers that are better than anything of ours."""
    points = [row for row in chosen(rows) if row["name"].split(", vectors alone")[0] == row["name"]]
    matters: list[tuple[str, str, Callable[[Row], float], str]] = [
        ("quality", "MRR@10 of few", lambda row: -row["MRR@10 of few"], ".1f"),
        ("latency", "ms", lambda row: row["median_ms"], ".2f"),
        ("size", "bytes a document", lambda row: row["bytes_per_document"], ",.0f"),
    ]
    lines = []
    for what, unit, cost, form in matters:
        ours = min((row for row in points if row["peer"] == OURS), key=cost, default=None)
        if ours is None:
            continue
        ahead = sorted(
            (row for row in points if row["peer"] != OURS and cost(row) < cost(ours)), key=cost
        )
        best = "; ".join(
            f"{NAMES[row['peer']]}, {label(row)}: {abs(cost(row)):{form}}" for row in ahead[:SHOWN]
        )
        best += f"; and {len(ahead) - SHOWN} more" if len(ahead) > SHOWN else ""
        mine = f"the best of pseudoquery is {abs(cost(ours)):{form}} {unit} ({label(ours)})"
        lines.append(f"- In {what}, {mine}. " + (f"Better: {best}." if best else "None is better."))
    return [*lines, *_beaten(points)]


def _beaten(points: Sequence[Row]) -> list[str]:
    """Say which ways of ours a peer beats in everything at once; by the best one, if by several."""
    told = []
    for mine in (row for row in points if row["peer"] == OURS):
        by = [
            row
            for row in points
            if row["peer"] != OURS
            and row["MRR@10 of few"] >= mine["MRR@10 of few"]
            and row["median_ms"] <= mine["median_ms"]
            and row["bytes_per_document"] <= mine["bytes_per_document"]
        ]
        if by:
            best = max(by, key=lambda row: float(row["MRR@10 of few"]))
            told.append(f"{label(mine)} by {NAMES[best['peer']]}, {label(best)}")
    if not told:
        return ["- No peer beats any way of pseudoquery in quality, latency and size at once."]
    return [f"- Beaten in quality, latency and size at once: {'; '.join(told)}."]


def _checks(texts: Sequence[Row], random: Sequence[Row]) -> list[str]:
    lines = ["| what | measured | to reach | |", "|---|---|---|---|"]
    proven = [row for row in random if row["peer"] == OURS and row["proven"]]
    for thread in ("", ", 1 thread"):
        base = yardstick(random, thread)
        for row in proven if base else ():
            value = row["median_ms"] / base["median_ms"]  # type: ignore[index]
            what = f"{label(row)} / Faiss, {YARDSTICK}{thread}"
            lines.append(_check(what, value, 0.5))
    graphs = [row for row in random if row["peer"] == OURS and row["effort"] is not None]
    for peer in ("qdrant_edge", "lancedb"):
        for row in (row for row in random if row["peer"] == peer and row["effort"] is not None):
            able = [graph for graph in graphs if graph["recall@10"] >= row["recall@10"]]
            theirs = f"{NAMES[peer]}, {label(row)}, recall {row['recall@10']:.3f}"
            if not able:
                lines.append(
                    f"| {theirs}: two steps at no lower recall | none | ≤ 1 | **missed** |"
                )
                continue
            best = min(able, key=lambda graph: float(graph["median_ms"]))
            what = f"{label(best)}, recall {best['recall@10']:.3f} / {theirs}"
            lines.append(_check(what, best["median_ms"] / row["median_ms"], 1.0))
    late = [row for row in texts if row["peer"] == "sentence_transformers"]
    late = [row for row in late if row["representation"] == "tokens"]
    for row in texts if late else ():
        if row["peer"] == OURS and row["proven"]:
            value = row["bytes_per_document"] / late[0]["bytes_per_document"]
            lines.append(_check(f"bytes of {label(row)} / all tokens in float16", value, 0.1))
    return lines


def _check(what: str, value: float, most: float) -> str:
    return f"| {what} | {value:.3f} | ≤ {most:g} | {'met' if value <= most else '**missed**'} |"


def _settings(rows: Sequence[Row]) -> list[str]:
    lines = []
    for peer in NAMES:
        own = [row for row in rows if row["peer"] == peer]
        if not own:
            continue
        versions = ", ".join(f"{name} {number}" for name, number in own[0]["versions"].items())
        told = {
            f"{row['name']}: {json.dumps(row['settings'])}": None for row in own if row["settings"]
        }
        efforts = sorted({row["effort"] for row in own if row["effort"] is not None})
        swept = f"; tried with {efforts}" if efforts else ""
        lines.append(f"- {NAMES[peer]} ({versions}){swept}" + "".join(f"; {one}" for one in told))
    return lines


def plot(report: Report, out: Path) -> None:
    """Draw latency against quality and recall, and quality against bytes."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise ModelError("plots need matplotlib; run: pip install 'pseudoquery[train]'") from error
    mpl.use("svg")
    # The same figures make the same file, byte for byte.
    mpl.rcParams.update({"svg.hashsalt": "pseudoquery", "font.size": 9, "figure.dpi": 100})
    import matplotlib.pyplot as plt

    sections = report["sections"]["all"], report["sections"]["random"]
    texts, random = (section["rows"] for section in sections)
    names = [section["facts"]["name"] for section in sections]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11.5, 4.6))
    _draw(left, texts, "median_ms", "MRR@10")
    _draw(right, random, "median_ms", "recall@10")
    for axis, name in zip((left, right), names, strict=True):
        axis.set_xlabel("milliseconds a query, the query's vectors given")
        axis.set_title(name)
    _save(plt, figure, out / "latency.svg", texts)
    figure, axis = plt.subplots(figsize=(7.5, 4.6))
    _draw(axis, chosen(texts), "bytes_per_document", "MRR@10")
    axis.set_xlabel("bytes a document")
    axis.set_title(names[0])
    _save(plt, figure, out / "bytes.svg", texts)


MARKERS = {"one": "o", "pseudo": "D", "trained": "*", "tokens": "s", "words": "^"}


def _draw(axis: Any, rows: Sequence[Row], across: str, upwards: str) -> None:
    for (peer, representation, _), points in curves(rows).items():
        line = sorted((row for row in points if upwards in row), key=lambda row: row["effort"] or 0)
        axis.plot(
            [row[across] for row in line],
            [row[upwards] for row in line],
            marker=MARKERS[representation.partition("-")[0]],
            color=COLOURS[peer],
            linewidth=1.0,
            markersize=7 if peer == OURS else 5,
            alpha=0.85,
        )
    axis.set_xscale("log")
    axis.set_ylabel(upwards)
    axis.grid(alpha=0.3)


def _save(plt: Any, figure: Any, path: Path, rows: Sequence[Row]) -> None:
    """Add one legend for colours and marks, and write the file."""
    from matplotlib.lines import Line2D

    peers = {row["peer"]: None for row in rows}
    kinds = {row["representation"].partition("-")[0]: None for row in rows}
    told = {
        "one": "one vector",
        "pseudo": "pseudo queries",
        "trained": "pseudo queries, trained",
        "tokens": "all tokens",
        "words": "words",
    }
    handles = [
        Line2D([], [], color=COLOURS[peer], linewidth=3, label=NAMES[peer]) for peer in peers
    ]
    handles += [
        Line2D([], [], color="grey", marker=MARKERS[one], linestyle="", label=told[one])
        for one in kinds
    ]
    columns = int(figure.get_figwidth() // 1.8)
    lines = -(-len(handles) // columns)
    figure.tight_layout(rect=(0, 0.02 + 0.06 * lines, 1, 1))
    figure.legend(handles=handles, loc="lower center", ncols=columns, frameon=False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
