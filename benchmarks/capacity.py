"""What many documents take: bytes, machines, hours and the cost of a query, by arithmetic.

    python benchmarks/capacity.py --documents 1e8 --k 16 --dimension 384 --tokens-per-second 4000

Every figure can be replaced by your own; the defaults were measured, one core at a time, and
`docs/research/capacity.md` says how. `--page` writes the tables of that page anew.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent.parent / "docs" / "research" / "capacity.md"
SIZES = (1e7, 1e8, 1e9)
HOUR = 3600.0
DAY = 24 * HOUR
BYTES_OF_A_NUMBER = {"float32": 4, "float16": 2, "int8": 1}
SCALE_BYTES = 4
"""Beside each vector in int8: what it is multiplied by."""
CODE_BYTES = 8
"""Beside each code of the scan: its scale, and its distance from the real vector."""
GRAPH_VECTORS = 2**31 - 1
"""Faiss numbers the vectors of a graph in 32 bits."""
SCANNED_VECTORS = 2_000_000
"""Up to here, a search scans all vectors unless told otherwise."""
PATIENCE = 0.1
"""Seconds that someone waits for an answer."""


def given(default: float, source: str) -> Any:
    """Give a default, and say where it is from."""
    return field(default=default, metadata={"source": source})


@dataclass(frozen=True, slots=True)
class Plan:
    """A corpus, what one core does, and the machines there are; each default with its source."""

    documents: float = 1e8
    k: float = given(16, "the recommended preset: vectors per document, at most")
    dimension: float = given(384, "the bundled model")
    tokens: float = given(621, "per document: the mean of the 535 of `squad-dev`")
    text_bytes: float = given(3014, "per document: the mean of `squad-dev`, titles included")
    text_factor: float = given(2.08, "`index.sqlite` of `make demo` / the bytes of its texts")
    tokens_per_second: float = given(
        2700, "one core, float32: `bench encode`, half of what two cores did ([speed](speed.md))"
    )
    seconds_to_write: float = given(
        1.1e-3, "one writer, a short document, k = 8: `bench build` ([speed](speed.md))"
    )
    bytes_per_second: float = given(5.7e9, "one core that scans: `benchmarks/structures.py`")
    graph_bytes: float = given(272, "per vector, beside its 8 bits: `benchmarks/structures.py`")
    graph_vectors_per_second: float = given(
        3400, "one core that builds HNSW: `benchmarks/structures.py`"
    )
    graph_seconds: float = given(
        8.7e-3, "per query through HNSW, scoring included: `benchmarks/structures.py`"
    )
    graph_measured: float = given(200_000, "vectors in the HNSW of the two rows above")
    encoders: float = given(16, "chosen: cores or GPUs that encode")
    cores: float = given(16, "chosen: cores per machine that searches")
    memory: float = given(100e9, "chosen: bytes for vectors per machine, out of 128 GB")
    disk: float = given(4e12, "chosen: bytes per disk")


# --- bytes


def vectors(plan: Plan) -> float:
    """Count the vectors of all documents; short documents have fewer than k."""
    return plan.documents * plan.k


def vector_bytes(plan: Plan, kind: str) -> float:
    """Count the bytes of all vectors in their segments."""
    scale = SCALE_BYTES if kind == "int8" else 0
    return vectors(plan) * (plan.dimension * BYTES_OF_A_NUMBER[kind] + scale)


def scan_bytes(plan: Plan) -> float:
    """Count the bytes of the codes that a scan reads."""
    return vectors(plan) * (plan.dimension + CODE_BYTES)


def graph_bytes(plan: Plan) -> float:
    """Count the bytes of HNSW in 8 bits."""
    return vectors(plan) * (plan.dimension + plan.graph_bytes)


def text_bytes(plan: Plan) -> float:
    """Count the bytes of SQLite: the documents, and their full text for BM25."""
    return plan.documents * plan.text_bytes * plan.text_factor


def disk_bytes(plan: Plan, kind: str) -> float:
    """Count what an index folder has on disk, with HNSW."""
    return text_bytes(plan) + vector_bytes(plan, kind) + graph_bytes(plan)


def machines(plan: Plan, held: float) -> int:
    """Count the machines whose memory holds so many bytes."""
    return max(1, math.ceil(held / plan.memory))


# --- time


def encode_seconds(plan: Plan) -> float:
    """Time all encoders at once, if reading and writing keep up."""
    return plan.documents * plan.tokens / (plan.tokens_per_second * plan.encoders)


def write_seconds(plan: Plan) -> float:
    """Time the one process that writes into an index folder."""
    return plan.documents * plan.seconds_to_write


def graph_build_seconds(plan: Plan) -> float:
    """Time building HNSW, each machine its own part with all its cores."""
    count = machines(plan, graph_bytes(plan))
    part = vectors(plan) / count
    return part * depth(plan, part) / (plan.graph_vectors_per_second * plan.cores)


def scan_work(plan: Plan) -> float:
    """Core seconds of a query that is compared with all vectors."""
    return scan_bytes(plan) / plan.bytes_per_second


def scan_wait(plan: Plan) -> float:
    """Seconds until such a query is answered, by all cores of all machines that hold the codes."""
    return scan_work(plan) / (machines(plan, scan_bytes(plan)) * plan.cores)


def graph_wait(plan: Plan) -> float:
    """Seconds of a query through HNSW: all machines search their part at once, a core each."""
    part = vectors(plan) / machines(plan, graph_bytes(plan))
    return plan.graph_seconds * depth(plan, part)


def graph_work(plan: Plan) -> float:
    """Core seconds of such a query: every machine has to be asked."""
    return graph_wait(plan) * machines(plan, graph_bytes(plan))


def depth(plan: Plan, count: float) -> float:
    """How much longer a path through so many vectors is than one through those measured.

    Paths grow as the logarithm. Memory that is further away makes the steps slower, too: this is a
    lower bound.
    """
    return max(1.0, math.log(max(count, 2)) / math.log(plan.graph_measured))


def queries_a_second(plan: Plan, work: float, held: float) -> float:
    """Count the queries that the machines which hold so many bytes answer in a second."""
    return machines(plan, held) * plan.cores / work


# --- what breaks, and when


def until(plan: Plan, need: Callable[[Plan], float], limit: float) -> float:
    """Find the most documents whose need, which is proportional to them, is within a limit."""
    return limit / need(replace(plan, documents=1.0))


def limits(plan: Plan) -> list[tuple[float, str, str]]:
    """List what breaks: at how many documents, what, and what to change; the first comes first."""

    def wait_of_one_machine(plan: Plan) -> float:
        return scan_work(plan) / plan.cores

    return sorted(
        [
            (
                until(plan, vectors, SCANNED_VECTORS),
                "scanned and proven by default",
                "`--structure flat8` scans any number; else `--exact` where proof matters",
            ),
            (
                until(plan, wait_of_one_machine, PATIENCE),
                "a scan by one machine answers in 0.1 s",
                "`--structure hnsw8`, the default by then; fewer k; more machines",
            ),
            (
                until(plan, scan_bytes, plan.memory),
                "the codes of the scan fit in a machine",
                "fewer k; Milvus over several machines",
            ),
            (
                until(plan, graph_bytes, plan.memory),
                "HNSW fits in a machine",
                "fewer k; `ivf8`, which has no links; Milvus over several machines",
            ),
            (
                until(plan, vectors, GRAPH_VECTORS),
                "Faiss can number the vectors of one HNSW",
                "fewer k; `ivf8`; Milvus, which has many small graphs",
            ),
            (
                until(plan, encode_seconds, 7 * DAY),
                "encoding takes a week at most",
                "GPUs; `--precision bfloat16`; several machines with Ray (`--on`)",
            ),
            (
                until(plan, write_seconds, 7 * DAY),
                "the one writer takes a week at most",
                "Milvus, which has many writers",
            ),
            (
                until(plan, lambda plan: disk_bytes(plan, "float16"), plan.disk),
                "float16 vectors, HNSW and texts fit on a disk",
                "`--vector-type int8`; fewer k; a larger disk",
            ),
        ]
    )


# --- tables


def sizes_table(plan: Plan, sizes: Sequence[float]) -> str:
    """Show what each number of documents takes."""
    rows: list[tuple[str, Callable[[Plan], str]]] = [
        ("vectors", lambda plan: count(vectors(plan))),
        ("vectors on disk, float16", lambda plan: size(vector_bytes(plan, "float16"))),
        ("vectors on disk, int8", lambda plan: size(vector_bytes(plan, "int8"))),
        ("documents and full text on disk", lambda plan: size(text_bytes(plan))),
        ("**scan:** codes in memory", lambda plan: size(scan_bytes(plan))),
        ("machines", lambda plan: f"{machines(plan, scan_bytes(plan)):,}"),
        ("a query: processor time", lambda plan: duration(scan_work(plan))),
        ("a query: wait", lambda plan: duration(scan_wait(plan))),
        (
            "queries per second, all machines",
            lambda plan: count(queries_a_second(plan, scan_work(plan), scan_bytes(plan))),
        ),
        ("**HNSW, 8 bits:** in memory", lambda plan: size(graph_bytes(plan))),
        ("machines", lambda plan: f"{machines(plan, graph_bytes(plan)):,}"),
        ("building it, all machines at once", lambda plan: duration(graph_build_seconds(plan))),
        ("a query: processor time", lambda plan: duration(graph_work(plan))),
        ("a query: wait, at least", lambda plan: duration(graph_wait(plan))),
        (
            "queries per second, all machines",
            lambda plan: count(queries_a_second(plan, graph_work(plan), graph_bytes(plan))),
        ),
        (
            f"**building:** encoding, {plan.encoders:g} cores",
            lambda plan: duration(encode_seconds(plan)),
        ),
        ("encoding, 1 core", lambda plan: duration(encode_seconds(replace(plan, encoders=1)))),
        ("writing, by the one writer", lambda plan: duration(write_seconds(plan))),
    ]
    plans = [replace(plan, documents=documents) for documents in sizes]
    head = ["documents", *(count(documents) for documents in sizes)]
    return markdown(head, [[name, *map(show, plans)] for name, show in rows])


def limits_table(plan: Plan) -> str:
    """Show what breaks first."""
    rows = [[count(documents), what, change] for documents, what, change in limits(plan)]
    return markdown(["up to this many documents", "this holds", "beyond that"], rows)


def changes_table(plan: Plan) -> str:
    """Show what fewer vectors change."""
    rows = []
    for k in (16, 8, 4, 1):
        own = replace(plan, k=k)
        rows.append(
            [
                f"{k}",
                size(disk_bytes(own, "float16")),
                size(disk_bytes(own, "int8")),
                f"{machines(own, scan_bytes(own)):,}",
                duration(scan_wait(own)),
                f"{machines(own, graph_bytes(own)):,}",
                duration(graph_work(own)),
            ]
        )
    head = [
        "k",
        "folder, float16",
        "folder, int8",
        "machines, scan",
        "wait",
        "machines, HNSW",
        "processor time of a query",
    ]
    return markdown(head, rows)


def defaults_table() -> str:
    """Show every default, and where it is from."""
    rows = [[f"`{name}`", plain(default), source] for name, default, source in options()]
    return markdown(["option", "default", "from"], rows)


def options() -> list[tuple[str, float, str]]:
    """List the options but the number of documents: names, defaults, and where these are from."""
    return [
        (
            f"--{setting.name.replace('_', '-')}",
            getattr(Plan(), setting.name),
            setting.metadata["source"],
        )
        for setting in fields(Plan)
        if setting.name != "documents"
    ]


def tables() -> dict[str, str]:
    """Make the tables of the page, by their names there."""
    plan = Plan()
    return {
        "sizes": sizes_table(plan, SIZES),
        "limits": limits_table(plan),
        "changes": changes_table(plan),
        "defaults": defaults_table(),
    }


def filled(page: str) -> str:
    """Put the tables into the text of the page, between the marks that name them."""
    for name, table in tables().items():
        marks = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
        page, replaced = re.subn(marks, rf"\g<1>\n{table}\n\n\g<2>", page, flags=re.DOTALL)
        if replaced != 1:
            raise ValueError(f"the page has {replaced} places for the table {name!r}, not one.")
    return page


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def count(number: float) -> str:
    """Write a number with two or three digits that count."""
    for unit, name in ((1e12, " trillion"), (1e9, " billion"), (1e6, " million")):
        if number >= unit:
            return f"{_short(number / unit)}{name}"
    return _short(number)


def size(number: float) -> str:
    """Write a number of bytes."""
    for unit, name in ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if number >= unit:
            return f"{_short(number / unit)} {name}"
    return f"{_short(number)} bytes"


def duration(seconds: float) -> str:
    """Write a time in the unit that fits."""
    for unit, name in ((365.25 * DAY, "years"), (DAY, "days"), (HOUR, "hours"), (60.0, "minutes")):
        if seconds >= 2 * unit:
            return f"{_short(seconds / unit)} {name}"
    return f"{_short(seconds)} s" if seconds >= 1 else f"{_short(1e3 * seconds)} ms"


def plain(number: float) -> str:
    """Write a number as an option takes it."""
    return re.sub(r"e\+0*", "e", f"{number:g}")


def _short(number: float) -> str:
    if number >= 100:
        digits = 2 - math.floor(math.log10(number))
        return f"{round(number, digits):,.0f}"
    return f"{number:.2g}" if number < 10 else f"{number:.0f}"


def positive(text: str) -> float:
    """Read a number that a plan can be made of."""
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number above zero")
    return number


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables, or write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--page", action="store_true", help="write docs/research/capacity.md anew")
    parser.add_argument("--documents", type=positive, nargs="+", default=SIZES, help="how many")
    for name, default, source in options():
        description = f"{source} (default: {plain(default)})"
        parser.add_argument(name, type=positive, default=default, help=description)
    chosen = vars(parser.parse_args(arguments))
    if chosen.pop("page"):
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return
    sizes = chosen.pop("documents")
    plan = Plan(**chosen)
    print(f"{sizes_table(plan, sizes)}\n\n{limits_table(plan)}")


if __name__ == "__main__":
    main()
