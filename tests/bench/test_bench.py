"""The commands run, and their figures are consistent; how fast anything is decides no test."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans

from pseudoquery.bench.build import run_watched, write_speed
from pseudoquery.bench.compare import compare_reports
from pseudoquery.bench.encode import operations, synthetic_texts
from pseudoquery.bench.kmeans import (
    BY_POSITION,
    ENCODERS,
    HARD,
    LOCALITY,
    REPLAYED,
    cluster_tokens,
    encoder_job,
    hard_tokens,
    synthetic_tokens,
)
from pseudoquery.bench.kmeans import operations as bert_operations
from pseudoquery.bench.machine import bandwidth, floor, rate, synthetic_vectors, time_jobs
from pseudoquery.bench.report import Check, Report, Timing, format_duration
from pseudoquery.cli.bench import print_report
from pseudoquery.encoding.model import load_model
from pseudoquery.encoding.precision import available
from pseudoquery.encoding.windows import split
from pseudoquery.method import gpu
from pseudoquery.method.kmeans import seed_positions
from tests.support.command import Run

OPTIONS = ("--documents", 3, "--tokens", 20, "--dimension", 8, "--k", 2, "--repeats", 2)


def check_report(report: dict[str, Any], benchmark: str) -> None:
    """Assert that the figures of a report are possible, and fit together."""
    assert report["benchmark"] == benchmark
    assert report["machine"]["read_gb_per_s"] > 0
    assert report["rows"]
    names = [row["what"] for row in report["rows"]]
    assert len(set(names)) == len(names)
    for row in report["rows"]:
        assert row["seconds"] > 0
        assert row["floor"] > 0
        assert row["ratio"] == pytest.approx(row["seconds"] / row["floor"])
    for check in report["checks"]:
        assert math.isfinite(check["value"])
        within = check["value"] <= check["target"]
        assert check["met"] == (within if check["at_most"] else check["value"] >= check["target"])


def seconds(report: dict[str, Any], beginning: str) -> float:
    (seconds,) = (row["seconds"] for row in report["rows"] if row["what"] == beginning)
    return float(seconds)


def test_kmeans(run: Run) -> None:
    report = run("bench", "kmeans", *OPTIONS, "--json").json
    check_report(report, "kmeans")
    assert report["data"]["tokens"] == 20
    assert report["data"]["locality"] == LOCALITY == 2
    assert {HARD, BY_POSITION} <= {row["what"] for row in report["rows"]}
    shown = run("bench", "kmeans", *OPTIONS).out
    assert "K-means, one iteration" in shown
    assert "ratio" in shown


@pytest.mark.skipif(not gpu.runs_kernels(), reason="there is no GPU")
def test_kmeans_beside_encoders(run: Run) -> None:
    options = ("--documents", 3, "--tokens", 20, "--dimension", 64, "--k", 2, "--repeats", 2)
    report = run("bench", "kmeans", *options, "--device", "cuda", "--json").json
    check_report(report, "kmeans")
    shares = {check["what"]: check["value"] for check in report["checks"]}
    assert len(shares) == 2 * len(ENCODERS)
    for name in ENCODERS:
        forward = seconds(report, f"{name}, forward")
        for title, job in (("K-means", HARD), ("K-means by place", BY_POSITION)):
            share = seconds(report, f"{job}{REPLAYED}") / forward
            assert shares[f"{title} / {name}'s forward"] == pytest.approx(share)


def earlier(run: Run, path: Path, times: float) -> dict[str, Any]:
    """Write a report whose ratios were so many times larger."""
    report: dict[str, Any] = run("bench", "kmeans", *OPTIONS, "--json").json
    for row in report["rows"]:
        row["ratio"] *= times
    path.write_text(json.dumps(report))
    return report


def test_against_an_earlier_report(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "before.json"
    before = earlier(run, path, 1e6)
    compared = run("bench", "kmeans", *OPTIONS, "--against", path, "--json")
    assert compared.code == 0
    changes = {change["what"]: change for change in compared.json["against"]}
    assert set(changes) == {f"{row['what']} / its floor" for row in before["rows"]}
    for row in compared.json["rows"]:
        change = changes[f"{row['what']} / its floor"]
        assert change["now"] == row["ratio"]
        assert change["factor"] == pytest.approx(change["now"] / change["before"])
    shown = run("bench", "kmeans", *OPTIONS, "--against", path)
    assert shown.code == 0
    assert f"None of {len(changes)} ratios is worse" in shown.out
    earlier(run, path, 1e-6)
    shown = run("bench", "kmeans", *OPTIONS, "--against", path)
    assert shown.code == 1
    assert f"{len(changes)} of {len(changes)} ratios are worse" in shown.out


def test_only_ratios_are_compared_each_in_its_direction() -> None:
    def report(speed: float, share: float, growth: float) -> Report:
        checks = [
            Check("speed / another's", speed, 1, at_most=False),
            Check("share / the whole", share, 1),
            Check("growth", growth, 1, unit="MB"),
        ]
        data = {"documents": 3, "disk_gb_per_s": growth}
        return Report("build", data, [Timing("a", growth, growth)], checks, {})

    changes = compare_reports(report(1.0, 0.2, 7.0), report(4.0, 0.1, 90.0).as_json())
    assert [(change.what, change.factor) for change in changes] == [
        ("speed / another's", 4),
        ("share / the whole", 2),
        ("a / its floor", 1),
    ]
    assert [change.worse for change in changes] == [True, True, False]
    assert not any(
        change.worse for change in compare_reports(report(1, 1, 7), report(1.4, 0.7, 1).as_json())
    )


def test_what_can_not_be_compared(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "before.json"
    contents = ["{", "[]", "{}"]
    none: list[Any] = [1, [], [{"what": "a", "ratio": 0}], [{"what": "a", "ratio": "fast"}]]
    for rows in none:
        report = {"benchmark": "kmeans", "data": {}, "rows": rows, "checks": []}
        contents.append(json.dumps(report))
    for content in contents:
        path.write_text(content)
        refused = run("bench", "kmeans", *OPTIONS, "--against", path)
        assert (refused.code, refused.out) == (2, ""), "before anything is measured"
        assert f"{path} is not a report; write one with" in refused.err
    refused = run("bench", "kmeans", *OPTIONS, "--against", tmp_path / "nothing")
    assert "can't be read: No such file or directory." in refused.err
    earlier(run, path, 1)
    other = run("bench", "kmeans", *OPTIONS, "--tokens", 21, "--against", path)
    assert other.code == 2
    assert "compare runs of one command with the same options" in other.err
    assert "K-means, one iteration" in other.out, "what was measured is shown all the same"


def test_search(run: Run) -> None:
    options = ("--documents", 60, "--k", 3, "--dimension", 8, "--queries", 4, "--repeats", 2)
    report = run("bench", "search", *options, "--structure", "hnsw", "--json").json
    check_report(report, "search")
    assert report["data"]["vectors"] == 180
    assert len(report["checks"]) == 2
    for check in report["checks"]:
        theirs = seconds(report, check["what"].removeprefix("proven exact / "))
        ours = seconds(report, "proven exact, float16")
        assert check["value"] == pytest.approx(ours / theirs)
    names = " ".join(row["what"] for row in report["rows"])
    for expected in ("float32", "float16", "int8", "two steps, hnsw", "×4"):
        assert expected in names


def test_search_of_an_index(run: Run, template: Path) -> None:
    options = ("--index", template, "--queries", 3, "--repeats", 1, "--structure", "flat")
    report = run("bench", "search", *options, "--json").json
    check_report(report, "search")
    assert report["data"]["documents"] == 30
    notes = [row["note"] for row in report["rows"] if row["note"]]
    assert all("recall 1.000" in note for note in notes)


def test_encode(run: Run, tiny_model_path: str) -> None:
    options = ("--documents", 5, "--words", 30, "--k", 2, "--repeats", 1)
    report = run("bench", "encode", *options, "--model", tiny_model_path, "--json").json
    check_report(report, "encode")
    assert report["data"]["texts"] == 5
    values = {check["what"]: check["value"] for check in report["checks"]}
    assert values["throughput, bfloat16 / float32"] == pytest.approx(
        seconds(report, "pseudoquery index, float32")
        / seconds(report, "pseudoquery index, bfloat16")
    )
    for precision in available(load_model(tiny_model_path, device="cpu")):
        assert seconds(report, f"pseudoquery index, {precision}") > 0
        assert (f"throughput, {precision} / float32" in values) == ("float32" not in precision)


def test_encode_of_an_index(run: Run, template: Path) -> None:
    options = ("--index", template, "--documents", 4, "--repeats", 1)
    report = run("bench", "encode", *options, "--json").json
    check_report(report, "encode")
    assert report["data"]["texts"] == 4
    assert report["data"]["k"] == 4


def test_build(run: Run, tmp_path: Path) -> None:
    options = ("--documents", 50, "--documents", 90, "--k", 2, "--dimension", 8, "--batch", 20)
    report = run("bench", "build", *options, "--where", tmp_path, "--json").json
    check_report(report, "build")
    for size in (50, 90):
        assert f"building {size}" in [row["what"] for row in report["rows"]]
    assert len(report["checks"]) == 2
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


def test_a_number_of_nothing_is_refused(run: Run) -> None:
    ran = run("bench", "search", "--documents", 0)
    assert ran.code == 2
    assert "Traceback" not in ran.err


def hold(size: int) -> int:
    """Hold so many bytes for a moment."""
    held = np.ones(size, dtype=np.uint8)
    time.sleep(0.1)
    return int(held.sum())


def test_memory_is_seen() -> None:
    small, large = (run_watched(hold, size) for size in (1 << 10, 200 << 20))
    assert large.private - small.private > 100 << 20
    assert large.resident >= large.private
    assert large.bytes == 200 << 20


def test_floors_grow_with_the_work() -> None:
    assert 0 < floor(1000) < floor(10**9)
    assert floor(1000) < floor(1000, 10**12)
    assert floor(10**9) == 10**9 / bandwidth("cpu")
    for kind in ("float32", "bfloat16", "int8"):
        assert rate(kind, "cpu") > 0
    assert floor() > 0


def test_jobs_take_turns() -> None:
    done: list[str] = []
    taken = time_jobs({"a": lambda: done.append("a"), "b": lambda: done.append("b")}, 2)
    assert done == ["a", "b"] * 3
    assert set(taken) == {"a", "b"}


def test_synthetic_data_is_the_same_every_time(tiny_model_path: str) -> None:
    vectors = synthetic_vectors(5, 3, 8)
    assert vectors.shape == (5, 3, 8)
    np.testing.assert_array_equal(vectors, synthetic_vectors(5, 3, 8))
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=2), 1, rtol=1e-5)
    tokens = synthetic_tokens(2, 7, 8, 3)
    assert tokens.shape == (2, 7, 8)
    assert torch.equal(tokens, synthetic_tokens(2, 7, 8, 3))
    model = load_model(tiny_model_path, device="cpu")
    texts = synthetic_texts(model, 4, 10)
    assert texts == synthetic_texts(model, 4, 10)
    windows, _ = split(model, texts, "document", "windows")
    for text, window in zip(texts, windows, strict=True):
        assert len(window.ids) == len(text.split()) + 2, "a word is a token"


def test_operations_of_an_encoder(tiny_model_path: str) -> None:
    model = load_model(tiny_model_path, device="cpu")
    # Two layers of 32 dimensions: four projections, and two to and from 64.
    weights = 2 * (4 * 32 * 32 + 2 * 32 * 64)
    assert operations(model, [10]) == 2 * weights * 10 + 4 * 2 * 32 * 100
    assert operations(model, [10, 10]) == 2 * operations(model, [10])


def test_a_report_is_readable(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [Timing("something", 0.02, 0.004, "a note"), Timing("other", 2e-6, 1e-6)]
    checks = [Check("good", 0.4, 0.5), Check("bad", 0.4, 0.5, at_most=False)]
    print_report(Report("search", {"documents": 3}, rows, checks, {"cores": 2}))
    shown = capsys.readouterr().out
    for part in ("cores 2", "documents 3", "20.00 ms", "4.00 ms", "5.0", "a note", "2.00 µs"):
        assert part in shown
    assert "✓ good: 0.4  (goal: ≤ 0.5)" in shown
    assert "✗ bad: 0.4  (goal: ≥ 0.5)" in shown
    assert format_duration(75) == "75.00 s"


def test_the_disk_has_a_speed(tmp_path: Path) -> None:
    assert write_speed(tmp_path) > 0
    assert list(tmp_path.iterdir()) == []


def test_tokens_without_clusters_move_for_long() -> None:
    tokens, weights = hard_tokens(8, 512, 16), torch.ones(8, 512)
    runs = [cluster_tokens(tokens, weights, 8, n).assignments for n in (9, 10)]
    assert (runs[0] != runs[1]).any(dim=1).sum() > 4


def test_tokens_without_clusters_are_cut_by_place() -> None:
    tokens, weights = hard_tokens(2, 128, 16), torch.ones(2, 128)
    plain, placed = (
        cluster_tokens(tokens, weights, 4, 10, locality).assignments for locality in (0.0, LOCALITY)
    )
    borders = [(labels[:, 1:] != labels[:, :-1]).sum() for labels in (plain, placed)]
    assert borders[1] < borders[0] / 2


def test_an_iteration_is_what_scikit_learn_calls_one() -> None:
    (tokens,) = hard_tokens(1, 200, 6).double()
    seeds = seed_positions(torch.ones(1, 200, dtype=torch.bool), 4, "equal-interval")[0]
    for iterations in (1, 2, 5):
        theirs = KMeans(4, init=tokens[seeds].numpy(), n_init=1, tol=0, max_iter=iterations)
        ours = cluster_tokens(tokens[None], torch.ones(1, 200), 4, iterations)
        np.testing.assert_allclose(
            ours.centroids[0], theirs.fit(tokens.numpy()).cluster_centers_, atol=1e-4
        )


def test_operations_of_a_shape() -> None:
    """A forward of BERT's shape has two for each weight of its layers, and those of attention."""
    layers = 12 * (4 * 768**2 + 2 * 768 * 3072)
    assert bert_operations(0, **ENCODERS["BERT-base"]) == 2 * layers
    assert bert_operations(512, **ENCODERS["BERT-base"]) == 2 * (layers + 12 * 2 * 512 * 768)
    states = encoder_job("MiniLM-L6", 2, 3, "cpu")().last_hidden_state
    assert states.shape == (2, 3, ENCODERS["MiniLM-L6"]["hidden_size"])


def test_without_a_gpu_it_is_said(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "runs_kernels", lambda _: False)
    for name in ("kmeans", "search"):
        refused = run("bench", name, "--device", "cuda")
        assert refused.code == 2
        assert "this machine has no NVIDIA GPU" in refused.err
    refused = run("bench", "search", "--vector-type", "int8")
    assert "--vector-type has no effect without --device cuda" in refused.err
