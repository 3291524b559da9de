"""The comparison with peers: inputs, judging and the report, without any peer."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.peers import inputs as making
from benchmarks.peers.environments import PEERS, python_of
from benchmarks.peers.figures import figures, quality, recall
from benchmarks.peers.measure import DEEP, TOP, Inputs, Vectors, Way, distinct, measure
from benchmarks.peers.report import NAMES, chosen, made_of, markdown, write_report
from pseudoquery.corpus.datasets import Dataset
from pseudoquery.errors import CorpusError
from pseudoquery.records import Document, Qrel, Query


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    folder = tmp_path_factory.mktemp("peers") / "inputs"
    making.prepare_synthetic(folder, 130, 4, 16, 12)
    return Inputs(folder)


def slow_ranking(vectors: Vectors, query: int, score: str, scale: float) -> list[int]:
    """Rank by the definition, one document at a time."""
    scores = []
    for number in range(vectors.count):
        dots = scale * vectors.document(number).astype(float) @ vectors.query(query).astype(float).T
        if score == "max":
            scores.append(dots.max(axis=0).sum())
        else:
            weights = np.exp(dots) / np.exp(dots).sum(axis=0)
            scores.append((weights * dots).sum(axis=0).sum())
    return np.argsort(-np.array(scores), kind="stable")[:DEEP].tolist()  # type: ignore[no-any-return]


def ragged(several: bool) -> Vectors:
    """Documents of one to five vectors and queries of one vector, or of one to three."""
    generator = np.random.default_rng(3)

    def drawn(count: int, most: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        offsets = np.cumsum([0, *generator.integers(1, most + 1, count)])
        return generator.standard_normal((offsets[-1], 6)).astype(np.float32), offsets

    return Vectors(*drawn(120, 5), *drawn(9, 3 if several else 1))


def test_vectors_of_another_run_are_not_asked_about_again(tmp_path: Path) -> None:
    drawn = making.Drawn("set", ["a text", "b text"], ["which text?"], [])
    facts = {"encoding": {"minilm": {}}, "representations": {"tokens": {"queries": 1}}}
    with pytest.raises(CorpusError, match="holds no vectors of an earlier run"):
        making.check_inputs(drawn, tmp_path, ["minilm"], 100)
    (tmp_path / "facts.json").write_text(json.dumps(facts))
    (tmp_path / "documents.json").write_text(json.dumps(drawn.documents))
    (tmp_path / "queries.json").write_text(json.dumps(drawn.questions))
    making.check_inputs(drawn, tmp_path, ["a/folder/minilm"], 100)
    others = making.Drawn("set", ["a text", "c text"], ["which text?"], [])
    for told in ((others, ["minilm"], 100), (drawn, ["other"], 100), (drawn, ["minilm"], 0)):
        with pytest.raises(CorpusError, match="holds the vectors of another run"):
            making.check_inputs(told[0], tmp_path, told[1], told[2])


@pytest.mark.parametrize("score", ["max", "softmax"])
def test_exact_answers_are_those_of_the_definition(score: str) -> None:
    vectors = ragged(several=False)
    found = making.exact_few(vectors, score, 10.0)
    for query, ranking in enumerate(found.tolist()):
        assert ranking == slow_ranking(vectors, query, score, 10.0)


def test_exact_answers_of_many_query_vectors_are_those_of_the_definition() -> None:
    vectors = ragged(several=True)
    for query, ranking in enumerate(making.exact_tokens(vectors, "max", 1.0).tolist()):
        assert ranking == slow_ranking(vectors, query, "max", 1.0)


def peer_that_finds(inputs: Inputs, part: float, **more: Any) -> Way:
    """A peer that knows the exact answer, and tells only a part of it."""
    exact = np.load(inputs.folder / "pseudo-4.exact-max.npy")

    def search(query: int, top: int) -> Sequence[int]:
        found: list[int] = exact[query, : int(part * top)].tolist()
        return found

    return Way("HNSW", "pseudo-4", search, 1.5, 13_000, **more)


def test_a_peer_is_asked_all_queries_and_judged_by_its_exact_answer(
    inputs: Inputs, tmp_path: Path
) -> None:
    asked: list[tuple[int, int]] = []
    way = peer_that_finds(inputs, 0.5, effort=8)

    def counting(query: int, top: int) -> Sequence[int]:
        asked.append((query, top))
        return way.search(query, top)

    counted = Way(way.name, way.representation, counting, 1.5, 13_000, effort=8)
    rows = [measure(way, inputs, tmp_path / "faiss-0"), measure(counted, inputs, tmp_path / "b")]
    found = {"peer": "faiss", "versions": {"faiss": "1"}, "rows": rows[:1]}
    (tmp_path / "faiss.json").write_text(json.dumps(found))
    (row,) = figures(["faiss", "lancedb"], tmp_path, inputs)  # the second came to no end
    assert row["recall@10"] == row["recall@100"] == 0.5
    assert row["bytes_per_document"] == 100
    assert row["median_ms"] <= row["p95_ms"]
    assert "rankings" not in row
    for top in (TOP, DEEP):
        assert {query for query, wanted in asked if wanted == top} == set(range(12))


def test_quality_is_of_the_queries_that_were_asked() -> None:
    judgements = [(0, 7, 1), (1, 8, 1), (2, 9, 1)]
    found = np.array([[7, 8], [7, 8], [7, 8]])
    assert quality(found, judgements, "RR@10") == pytest.approx(100 * (1 + 0.5 + 0) / 3)
    assert quality(found[:1], judgements, "RR@10") == 100


def test_recall_counts_what_was_found_and_not_where() -> None:
    exact = np.array([[1, 2, 3], [4, 5, 6]])
    assert recall(np.array([[3, 1, -1]]), exact) == pytest.approx(2 / 3)
    assert recall(np.array([[2], [4]]), exact) == 0.5
    assert distinct([4, 4, 2, 4, 1], 2) == [4, 2]


def test_drawn_questions_can_be_answered_by_the_drawn_documents() -> None:
    documents = [Document(str(number), f"text {number}") for number in range(40)]
    queries = tuple(Query(f"q{number}", f"what {number}") for number in range(40))
    qrels = tuple(
        Qrel(f"q{number}", str(other), 1)
        for number in range(40)
        for other in (number, (number + 1) % 40)
    )
    dataset = Dataset("circle", "", lambda: iter(documents), queries, qrels)
    drawn = making.choose(dataset, 30, 5)
    assert len(drawn.documents) == 30
    assert len(drawn.questions) == 5
    assert len(drawn.judgements) == 10
    for query, document, _ in drawn.judgements:
        number = int(drawn.questions[query].removeprefix("what "))
        assert drawn.documents[document] in (f"text {number}", f"text {(number + 1) % 40}")
    assert making.choose(dataset, 30, 5) == drawn
    assert len(making.choose(dataset, None, 100).questions) == 40
    with pytest.raises(CorpusError, match="the 1 documents drawn answer none of its questions"):
        making.choose(dataset, 1, 5)


def test_every_peer_has_a_script_and_a_name() -> None:
    folder = Path(making.__file__).parent
    assert set(PEERS) == set(NAMES)
    for peer in PEERS:
        assert (folder / f"{peer}.py").is_file()


def test_an_environment_that_is_there_is_taken_as_it_is(tmp_path: Path) -> None:
    assert python_of("faiss", tmp_path) == Path(sys.executable)
    wanted = PEERS["lancedb"]
    assert wanted is not None
    (tmp_path / "lancedb").mkdir()
    (tmp_path / "lancedb" / "installed.txt").write_text("\n".join(wanted.packages))
    assert python_of("lancedb", tmp_path) == tmp_path / "lancedb" / "bin" / "python"


def row(peer: str, name: str, ms: float, **more: Any) -> dict[str, Any]:
    return {
        "peer": peer,
        "versions": {peer: "1.0"},
        "name": name,
        "representation": "pseudo-8",
        "score": "max",
        "effort": None,
        "proven": False,
        "settings": {},
        "queries": 10,
        "median_ms": ms,
        "p95_ms": 2 * ms,
        "build_seconds": 3.0,
        "bytes_per_document": 6144.0,
        "yardstick_ms": 5.0,
        "recall@10": 1.0,
        "recall@100": 1.0,
        **more,
    }


def report() -> dict[str, Any]:
    """A run in which each thing that the report tells occurs."""
    good = {"MRR@10": 60.0, "nDCG@10": 65.0, "MRR@10 of few": 61.0}
    better = {"MRR@10": 78.0, "nDCG@10": 80.0, "MRR@10 of few": 79.0}
    texts = [
        row("faiss", "flat, vectors alone", 10.0, **good),
        row("bm25s", "BM25", 0.5, representation="words", **better) | {"bytes_per_document": 900.0},
        row("sentence_transformers", "exact MaxSim", 900.0, representation="tokens", **good)
        | {"bytes_per_document": 400_000.0},
        row("pseudoquery", "proven exact, float16", 3.0, proven=True, **good),
    ]
    random = [
        row("faiss", "flat, vectors alone", 10.0),
        row("faiss", "flat, vectors alone, 1 thread", 5.0),
        row("pseudoquery", "proven exact, float16", 4.0, proven=True, yardstick_ms=9.0),
        row("pseudoquery", "two steps, hnsw", 2.0, effort=20, **{"recall@10": 0.8}),
        row("pseudoquery", "two steps, hnsw", 6.0, effort=200, **{"recall@10": 0.97}),
        row("qdrant_edge", "HNSW", 3.0, effort=64, **{"recall@10": 0.7}),
        row("qdrant_edge", "HNSW", 4.0, effort=512, **{"recall@10": 0.96}),
        row("lancedb", "IVF_HNSW_SQ", 9.0, effort=100, **{"recall@10": 0.99}),
    ]
    facts = {
        "name": "squad-documents",
        "documents": 5000,
        "queries": 1000,
        "model": "minilm",
        "representations": {"tokens": {"queries": 200}, "pseudo-8": {"queries": 1000}},
        "vectors_per_document": {"tokens": 500.0, "pseudo-8": 8.0},
        "encoding": {"minilm": {"ms_a_document": 90.0, "ms_a_query": 4.0}},
        "commit": "0123456",
    }
    synthetic = {"name": "synthetic 20,000 × 8 × 384", "vectors_per_document": {"pseudo-8": 8.0}}
    return {
        "command": "python -m benchmarks.peers squad-documents:dev",
        "commit": "abc",
        "date": "2026-11-15",
        "machine": {"processor": "a processor", "cores": 2, "python": "3.11", "torch": "2.13"},
        "sections": {
            "all": {"facts": facts, "rows": texts, "failed": {}},
            "few": {"facts": facts, "rows": texts[1:], "failed": {"pylate": "out of memory"}},
            "random": {"facts": synthetic, "rows": random, "failed": {}},
        },
    }


def test_of_each_curve_the_fastest_point_that_finds_enough_is_shown() -> None:
    points = chosen(report()["sections"]["random"]["rows"])
    shown = {(point["peer"], point["name"]): point["effort"] for point in points}
    assert shown["pseudoquery", "two steps, hnsw"] == 200
    assert shown["qdrant_edge", "HNSW"] == 512
    poor = [row("faiss", "HNSW", 1.0, effort=8, **{"recall@10": 0.2})]
    poor += [row("faiss", "HNSW", 2.0, effort=16, **{"recall@10": 0.3})]
    assert [point["effort"] for point in chosen(poor)] == [16]


def test_the_report_says_what_was_met_and_what_was_missed() -> None:
    text = markdown(report())
    lines = [line for line in text.splitlines() if "≤" in line]
    proven = "| proven exact, float16 (k = 8) / Faiss, flat, vectors alone"
    assert f"{proven} | 0.400 | ≤ 0.5 | met |" in lines
    assert f"{proven}, 1 thread | 0.800 | ≤ 0.5 | **missed** |" in lines
    met, missed = (line for line in lines if "/ Qdrant Edge" in line)
    assert "recall 0.800" in met  # the faster of our two, as it finds enough
    assert met.endswith("| 0.667 | ≤ 1 | met |")
    assert missed.endswith("| 1.500 | ≤ 1 | **missed** |")
    (none,) = (line for line in lines if "LanceDB" in line)
    assert none.endswith("| none | ≤ 1 | **missed** |")
    (size,) = (line for line in lines if "all tokens" in line)
    assert size.endswith("| 0.015 | ≤ 0.1 | met |")


def test_the_report_tells_what_is_against_us() -> None:
    text = markdown(report())
    assert "PyLate failed on squad-documents**: out of memory" in text
    assert "the machine was busy" in text
    assert "In quality, the best of pseudoquery is 61.0 MRR@10 of few" in text
    assert "Better: bm25s, BM25 (words): 79.0." in text
    beaten = "Beaten in quality, latency and size at once: proven exact, float16 (k = 8) by bm25s"
    assert beaten in text


def test_a_report_is_four_files(tmp_path: Path) -> None:
    write_report(report(), tmp_path)
    written = {path.name: path.read_text("utf-8") for path in tmp_path.iterdir()}
    assert sorted(written) == ["bytes.svg", "latency.svg", "report.json", "report.md"]
    assert json.loads(written["report.json"]) == report()
    assert written["report.md"] == markdown(report())
    for name in ("bytes.svg", "latency.svg"):
        assert f"]({name})" in written["report.md"]
        assert "</svg>" in written[name]


def test_representations_are_named_for_readers() -> None:
    assert made_of("one") == "one vector"
    assert made_of("pseudo-16") == "k = 16"
    assert made_of("trained-8") == "k = 8, trained"
