"""The arithmetic of the capacity page: units, proportions, and the page itself."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import capacity
from benchmarks.capacity import BYTES_OF_A_NUMBER, PAGE, Plan
from pseudoquery.bench.machine import synthetic_vectors
from pseudoquery.bench.search import fill_store
from pseudoquery.search.structures import FLAT8_BELOW, Structures
from pseudoquery.storage.segments import VECTOR_TYPES

ROOT = Path(__file__).parents[2]
documents = st.floats(1, 1e10)
factors = st.floats(1, 1e3)
GROWING = (
    capacity.vectors,
    capacity.scan_bytes,
    capacity.graph_bytes,
    capacity.text_bytes,
    capacity.encode_seconds,
    capacity.write_seconds,
    capacity.scan_work,
)
NEVER_FALLING = (capacity.graph_work,)


def test_the_page_shows_what_the_script_computes() -> None:
    written = PAGE.read_text()
    assert capacity.filled(written) == written, (
        "docs/research/capacity.md is not what is computed now; "
        "run: python benchmarks/capacity.py --page"
    )


def test_a_page_without_a_place_for_a_table_is_noticed() -> None:
    with pytest.raises(ValueError, match="0 places for the table 'sizes'"):
        capacity.filled("# Capacity\n")


def test_bytes_by_hand() -> None:
    plan = Plan(documents=1000, k=2, dimension=10, text_bytes=100, text_factor=3, graph_bytes=5)
    assert capacity.vectors(plan) == 2000
    assert capacity.vector_bytes(plan, "float32") == 80_000
    assert capacity.vector_bytes(plan, "float16") == 40_000
    assert capacity.vector_bytes(plan, "int8") == 28_000
    assert capacity.scan_bytes(plan) == 36_000
    assert capacity.graph_bytes(plan) == 30_000
    assert capacity.text_bytes(plan) == 300_000
    assert capacity.disk_bytes(plan, "int8") == 358_000
    assert capacity.machines(replace(plan, memory=10_000), 30_000) == 3
    assert capacity.machines(replace(plan, memory=10_000), 30_001) == 4


def test_seconds_by_hand() -> None:
    plan = Plan(
        documents=1000,
        k=2,
        dimension=12,
        tokens=50,
        tokens_per_second=100,
        encoders=5,
        seconds_to_write=0.5,
        bytes_per_second=400,
        graph_bytes=8,
        graph_vectors_per_second=10,
        graph_seconds=3,
        graph_measured=500,
        cores=4,
        memory=10_000,
    )
    assert capacity.encode_seconds(plan) == 100
    assert capacity.write_seconds(plan) == 500
    assert capacity.scan_work(plan) == 100  # 40,000 bytes
    assert capacity.scan_wait(plan) == 100 / 16  # 4 machines
    assert capacity.queries_a_second(plan, 100, 40_000) == 16 / 100
    assert capacity.graph_wait(plan) == 3  # 4 machines with 500 vectors each
    assert capacity.graph_work(plan) == 12
    assert capacity.graph_build_seconds(plan) == 500 / 40
    deeper = replace(plan, memory=1e9)  # all 2,000 in one
    assert capacity.graph_wait(deeper) == pytest.approx(3 * np.log(2000) / np.log(500))


@given(documents, factors)
def test_twice_the_documents_take_twice_as_much(number: float, factor: float) -> None:
    few, many = Plan(documents=number), Plan(documents=number * factor)
    for need in GROWING:
        assert need(many) == pytest.approx(factor * need(few))
    for need in NEVER_FALLING:
        assert need(many) >= need(few) * (1 - 1e-9)


@given(documents, st.floats(1.01, 100))
def test_better_figures_never_cost_more(number: float, factor: float) -> None:
    plan = Plan(documents=number)
    memory = replace(plan, memory=plan.memory * factor)
    faster = replace(
        plan,
        tokens_per_second=plan.tokens_per_second * factor,
        bytes_per_second=plan.bytes_per_second * factor,
    )
    assert capacity.machines(memory, 1e12) <= capacity.machines(plan, 1e12)
    assert capacity.encode_seconds(faster) < capacity.encode_seconds(plan)
    assert capacity.scan_wait(faster) < capacity.scan_wait(plan)
    fewer = replace(plan, k=plan.k / factor)
    assert capacity.graph_bytes(fewer) < capacity.graph_bytes(plan)
    assert capacity.graph_work(fewer) <= capacity.graph_work(plan) * (1 + 1e-9)


@given(factors)
def test_every_limit_holds_until_it_does_not(factor: float) -> None:
    plan = Plan(memory=1e9 * factor, disk=1e10 * factor)
    found = capacity.limits(plan)
    assert [number for number, _, _ in found] == sorted(number for number, _, _ in found)
    at = {what: number for number, what, _ in found}
    just = replace(plan, documents=at["HNSW fits in a machine"])
    assert capacity.graph_bytes(just) == pytest.approx(plan.memory)
    just = replace(plan, documents=at["encoding takes a week at most"])
    assert capacity.encode_seconds(just) == pytest.approx(7 * 24 * 3600)
    just = replace(plan, documents=at["float16 vectors, HNSW and texts fit on a disk"])
    assert capacity.disk_bytes(just, "float16") == pytest.approx(plan.disk)


def test_an_index_takes_the_bytes_that_are_computed(tmp_path: Path) -> None:
    plan = Plan(documents=300, k=4, dimension=64)
    made = synthetic_vectors(300, 4, 64)
    for kind in VECTOR_TYPES:
        store = fill_store(tmp_path / kind, made, kind)
        with store.snapshot() as snapshot:
            held = sum(
                segment.vectors.nbytes + (0 if segment.scales is None else segment.scales.nbytes)
                for segment in snapshot.view.segments
            )
            assert held == capacity.vector_bytes(plan, kind)
            for structure in ("flat8", "hnsw8"):
                Structures(store.folder).get(structure, snapshot.view)
        derived = store.folder / "derived"
        codes = sum(path.stat().st_size for path in derived.glob("*.codes.*"))
        expected = 0.0 if kind == "int8" else capacity.scan_bytes(plan)  # int8 is scanned as it is
        assert codes == pytest.approx(expected, rel=0.01)
        graph = (derived / "hnsw8.faiss").stat().st_size
        assert graph == pytest.approx(capacity.graph_bytes(plan), rel=0.05)


def test_it_knows_the_library() -> None:
    assert BYTES_OF_A_NUMBER.keys() == set(VECTOR_TYPES)
    assert capacity.SCANNED_VECTORS == FLAT8_BELOW


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (capacity.count(1.6e9), "1.6 billion"),
        (capacity.count(134_217_727), "134 million"),
        (capacity.count(1534), "1,530"),
        (capacity.size(1.2288e12), "1.2 TB"),
        (capacity.size(62.7e9), "63 GB"),
        (capacity.size(10), "10 bytes"),
        (capacity.duration(0.0101), "10 ms"),
        (capacity.duration(1.3), "1.3 s"),
        (capacity.duration(155_000), "43 hours"),
        (capacity.duration(15.5e6), "179 days"),
        (capacity.duration(2.5e8), "7.9 years"),
    ],
)
def test_how_figures_are_written(shown: str, expected: str) -> None:
    assert shown == expected


def test_every_figure_can_be_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    def printed(*arguments: str) -> str:
        capacity.main(arguments)
        return capsys.readouterr().out

    plain = printed("--documents", "1e8")
    assert "| documents | 100 million |" in plain
    for one in fields(Plan):
        if one.name != "documents":
            option = f"--{one.name.replace('_', '-')}"
            changed = str(3 * getattr(Plan(), one.name))
            assert printed("--documents", "1e8", option, changed) != plain, option
    assert "| documents | 5 million | 20 million |" in printed("--documents", "5e6", "2e7")


def test_the_script_runs_alone_and_refuses_nonsense() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "capacity.py"), "--memory"]
    done = subprocess.run([*command, "1e12"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("| documents | 10 million | 100 million | 1 billion |")
    for wrong in ("0", "-5", "nan", "much"):
        failed = subprocess.run([*command, wrong], capture_output=True, text=True, check=False)
        assert failed.returncode == 2
        assert "Traceback" not in failed.stderr
