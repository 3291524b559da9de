"""What the benchmark of token codes computes, beside slow and obvious twins; then every table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import MultiVectorEncoder

from benchmarks.token_codes import codes, fewer, fusion, projection, ranking
from benchmarks.token_codes.__main__ import BY_COLLECTION, OVER_ALL, main
from benchmarks.token_codes.codes import Code, Floats
from benchmarks.token_codes.collection import Collection, Texts
from benchmarks.token_codes.judged import Judged
from benchmarks.token_codes.learning import Training, count_matches
from benchmarks.token_codes.ranking import Kept
from pseudoquery.method.presets import preset
from pseudoquery.method.scores import similarity_matrix

DIM = 16
WORDS = [
    "river",
    "bridge",
    "castle",
    "garden",
    "winter",
    "summer",
    "horse",
    "music",
    "bread",
    "wine",
]


def draw_texts(generator: np.random.Generator, lengths: list[int], dim: int = DIM) -> Texts:
    total = sum(lengths)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Texts(
        generator.standard_normal((total, dim)).astype(np.float32),
        offsets,
        generator.integers(0, 20, total).astype(np.int32),
        generator.random(total) < 0.2,
        generator.standard_normal((total, dim)).astype(np.float32),
        offsets,
    )


def slow_score(
    question: Floats,
    special: Kept,
    weights: Floats,
    document: Floats,
    code: Code,
    digits: int | None,
) -> float:
    """The definition, one pair of tokens at a time."""
    asked = [row for row in range(len(question)) if weights[row] > 0]
    if not asked:
        return 0.0
    if not len(document):
        return -np.inf
    numbers = code.question(question).astype(np.float64)
    if digits is not None:
        step = np.float32(max(np.abs(numbers[~special]).max(initial=0), 1e-30) / digits)
        numbers = np.rint(numbers.astype(np.float32) / step).clip(-digits, digits) * float(step)
    tokens = code.document(document) * (code.step or 1)
    total = 0.0
    for row in asked:
        total += float(weights[row]) * max(float(numbers[row] @ token) for token in tokens)
    return total / float(weights.sum())


@given(
    st.integers(0, 10_000),
    st.lists(st.integers(0, 5), min_size=1, max_size=6),
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.sampled_from([None, 3, 31, 127]),
    st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_scores_are_those_of_the_definition(
    seed: int, documents: list[int], questions: list[int], digits: int | None, signs: bool
) -> None:
    generator = np.random.default_rng(seed)
    corpus, asked = draw_texts(generator, documents), draw_texts(generator, questions)
    kept = generator.random(len(corpus.ids)) < 0.7
    weights = (generator.random(len(asked.ids)) * (generator.random(len(asked.ids)) < 0.8)).astype(
        np.float32
    )
    code = codes.plain_signs(DIM) if signs else codes.float16(DIM)
    candidates = generator.permuted(np.tile(np.arange(-1, len(corpus)), (len(asked), 1)), axis=1)
    matches = ranking.token_matches(corpus, asked, candidates, code, kept, digits)
    scores = ranking.average_matches(matches, asked, weights)
    for row in range(len(asked)):
        for slot, document in enumerate(candidates[row]):
            if document < 0:
                assert np.isneginf(matches[asked.rows(row), slot]).all()
                continue
            rows = corpus.rows(document)
            expected = slow_score(
                asked.tokens[asked.rows(row)],
                asked.special[asked.rows(row)],
                weights[asked.rows(row)],
                corpus.tokens[rows][kept[rows]],
                code,
                digits,
            )
            assert scores[row, slot] == pytest.approx(expected, abs=1e-5)


def test_the_first_step_scores_as_the_product() -> None:
    generator = np.random.default_rng(1)
    corpus = draw_texts(generator, [3, 1, 4])
    asked = draw_texts(generator, [1] * 20)
    settings_ = preset("recommended", k=4)
    scores = ranking.first_step(corpus, asked, settings_)
    for row in range(20):
        for document in range(3):
            expected = similarity_matrix(
                torch.from_numpy(asked.vectors[row])[None, None],
                torch.from_numpy(corpus.vectors[corpus.rows(document)])[None],
                score=settings_.score,
                scale=settings_.scale,
            )
            assert scores[row, document] == pytest.approx(float(expected), rel=1e-5)


@given(st.integers(0, 10_000), st.integers(1, 15))
@settings(deadline=None, max_examples=30)
def test_measures_are_those_of_ir_measures(seed: int, documents: int) -> None:
    generator = np.random.default_rng(seed)
    ranked = np.stack([generator.permutation(documents) for _ in range(3)])
    relevant = [
        frozenset(
            generator.choice(
                documents, generator.integers(1, documents + 1), replace=False
            ).tolist()
        )
        for _ in range(3)
    ]
    run = [
        ir_measures.ScoredDoc(str(row), str(document), -float(rank))
        for row in range(3)
        for rank, document in enumerate(ranked[row])
    ]
    qrels = [
        ir_measures.Qrel(str(row), str(document), 1)
        for row in range(3)
        for document in relevant[row]
    ]
    names = {"nq-qed": "RR@10", "scifact": "nDCG@10"}
    for collection, name in names.items():
        wanted = ir_measures.parse_measure(name)
        expected = ir_measures.calc_aggregate([wanted], qrels, run)[wanted]
        got = ranking.measure(collection, ranked, relevant)
        assert got == pytest.approx(100 * expected, abs=0.0051)


def test_magnitudes_are_what_a_number_is_on_average_given_its_sign() -> None:
    generator = np.random.default_rng(2)
    sample = generator.standard_normal((4000, DIM)).astype(np.float32) * np.arange(1, DIM + 1)
    code = codes.with_magnitudes(codes.plain_signs(DIM), sample.astype(np.float32))
    scaled = code.question(np.eye(DIM, dtype=np.float32)).diagonal()
    unit = codes.normalise(sample)
    assert scaled == pytest.approx(np.abs(unit).mean(0), rel=0.1)


@pytest.mark.parametrize(
    "make",
    [
        codes.few_levels,
        lambda sample, bits: codes.in_levels(
            sample, codes.principal_axes(sample, DIM), bits, "all axes"
        ),
    ],
)
def test_more_levels_are_nearer(make: Any) -> None:
    sample = np.random.default_rng(3).standard_normal((2000, DIM)).astype(np.float32)
    errors = []
    for bits in (1, 2, 3):
        code = make(sample, bits)
        errors.append(((code.document(sample) - code.question(sample)) ** 2).sum())
        assert code.bytes == DIM * bits / 8
    assert errors[0] > errors[1] > errors[2]


def test_a_learnt_rotation_brings_tokens_nearer_to_signs() -> None:
    sample = np.random.default_rng(4).standard_normal((500, DIM)).astype(np.float32)
    sample[:, 0] *= 8
    sample = codes.normalise(sample)
    learnt, drawn = codes.balanced_rotation(sample), codes.random_rotation(DIM)
    assert learnt.T @ learnt == pytest.approx(np.eye(DIM), abs=1e-5)

    def closeness(rotation: Floats) -> float:
        return float(np.abs(sample @ rotation).sum())

    assert closeness(learnt) > closeness(drawn)


def test_a_decoder_finds_the_numbers_behind_a_code() -> None:
    generator = np.random.default_rng(5)
    sample = generator.standard_normal((5000, DIM)).astype(np.float32)
    plain = codes.plain_signs(DIM)
    decoded = codes.with_decoder(plain, sample)
    axes = np.eye(DIM, dtype=np.float32)
    truth = codes.normalise(sample)

    def error(code: Code) -> float:
        numbers = code.document(sample) * (code.step or 1)
        return float(((numbers @ code.question(axes).T - truth) ** 2).sum())

    assert error(decoded) < error(plain)


@given(st.integers(0, 1000), st.lists(st.integers(0, 6), min_size=1, max_size=4))
@settings(deadline=None, max_examples=30)
def test_repeats_are_found_as_by_hand(seed: int, lengths: list[int]) -> None:
    texts = draw_texts(np.random.default_rng(seed), lengths, 4)
    last, any_before = fewer.repeats(texts, 0.75)
    for text in range(len(texts)):
        tokens = codes.signs(texts.tokens[texts.rows(text)])
        for row in range(len(tokens)):
            alike = [(tokens[row] == tokens[other]).mean() >= 0.75 for other in range(row)]
            assert any_before[texts.offsets[text] + row] == any(alike)
            assert last[texts.offsets[text] + row] == (alike[-1] if alike else False)


def test_merged_tokens_are_fewer_and_nothing_is_lost() -> None:
    tokens = np.random.default_rng(6).standard_normal((7, DIM)).astype(np.float32)
    for merge in (fewer.merge_neighbours, fewer.merge_alike):
        merged = merge(tokens, 2)
        assert len(merged) == 4
        assert merged.sum(0) == pytest.approx(tokens.sum(0), abs=1e-4)
    assert fewer.merge_alike(tokens[:1], 2) == pytest.approx(tokens[:1])


def test_stretched_scores_and_ranks() -> None:
    scores = np.array([[2, np.nan, 4, 3], [5, 5, np.nan, np.nan]], np.float32)
    stretched = ranking.stretch(scores)
    assert stretched[0, [0, 2, 3]].tolist() == [0, 1, 0.5]
    assert stretched[1, :2].tolist() == [1, 1]
    assert (1 / fusion.reciprocal_ranks(scores)[0]).round().tolist() == [63, 64, 61, 62]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two collections of random words; a question has words of the document that answers it."""
    folder = tmp_path_factory.mktemp("collections")
    generator = np.random.default_rng(8)
    for name, splits in (("first", ("train", "dev")), ("second", ("train",))):
        (folder / name / "qrels").mkdir(parents=True)
        documents = [
            {"_id": f"d{row}", "title": "", "text": " ".join(generator.choice(WORDS, 25))}
            for row in range(12)
        ]
        queries = [
            {"_id": f"q{row}", "text": " ".join(documents[row]["text"].split()[:6])}
            for row in range(12)
        ]
        for file, lines in (("corpus", documents), ("queries", queries)):
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (folder / name / f"{file}.jsonl").write_text(text)
        for part, split in enumerate(splits):
            judgements = [f"q{row}\td{row}\t1\n" for row in range(12) if row % len(splits) == part]
            heading = "query-id\tcorpus-id\tscore\n"
            (folder / name / "qrels" / f"{split}.tsv").write_text(heading + "".join(judgements))
    return folder


def test_what_was_encoded_is_read_again(
    data: Path, tmp_path: Path, tiny_model: MultiVectorEncoder
) -> None:
    made, again = (Collection(data / "first", tmp_path, tiny_model) for _ in range(2))
    assert made.splits == ("train", "dev")
    assert len(made.documents) == 12
    assert np.array_equal(made.documents.tokens, again.documents.tokens)
    assert np.array_equal(made.documents.ids, again.documents.ids)
    sampled = made.questions("train", 4)
    assert len(sampled.texts) == len(sampled.encoded) == 4
    assert sampled.texts == again.questions("train", 4).texts
    assert made.training_documents.tolist() == [0, 2, 4, 6, 8, 10]


def test_matches_add_up_to_the_tokens_of_the_questions(
    data: Path, tmp_path: Path, tiny_model: MultiVectorEncoder
) -> None:
    collection = Collection(data / "first", tmp_path, tiny_model)
    judged = Judged(collection, "train", 100)
    rates = count_matches(judged)
    documents = collection.documents
    assert np.isnan(rates[documents.special]).all()
    candidates = judged.candidates(10)
    asked = np.bincount(candidates.ravel(), minlength=len(documents))
    totals = np.bincount(documents.owners, np.nan_to_num(rates), minlength=len(documents)) * asked
    assert totals.sum() == pytest.approx(10 * judged.regular_weights.sum())
    training = Training((collection,), 50)
    assert len(training.sample) == 50
    assert training.direction.shape == (documents.tokens.shape[1],)


def test_a_projection_learns_to_tell_documents_apart(
    data: Path, tmp_path: Path, tiny_model: MultiVectorEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training((Collection(data / "second", tmp_path, tiny_model),), 200)
    judged = Judged(training.collections[0], "train", 100)
    values = {}
    for steps in (1, 150):
        monkeypatch.setattr(projection, "STEPS", steps)
        code = projection.train_projection(training, 8, seed=steps)
        candidates = judged.candidates(12)
        ranked = ranking.rank_again(candidates, judged.scores(candidates, code))
        values[steps] = ranking.measure("second", ranked, judged.questions.relevant)
    assert values[150] > values[1]


@pytest.mark.parametrize("table", [*BY_COLLECTION, *OVER_ALL])
def test_every_table_is_made(
    data: Path, tmp_path: Path, tiny_model_path: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projection, "STEPS", 3)
    command = [
        str(data),
        "first",
        "second",
        "--table",
        table,
        "--learn-from",
        "first",
        "--cache",
        str(tmp_path / "cache"),
        "--out",
        str(tmp_path / "out"),
        "--model",
        tiny_model_path,
        "--precision",
        "float32",
        "--threads",
        "1",
    ]
    main(command)
    rows = json.loads((tmp_path / "out" / f"{table}.json").read_text())["rows"]
    if table == "fusion":
        assert all(0 <= row["first"] <= 100 for row in rows if "mean" in row)
        fused = [row["mean"] for row in rows if row.get("scores") == "dense, BM25"]
        assert len(set(fused)) > 1, "the settings make a difference"
        return
    assert {"first", "second"} <= {row["collection"] for row in rows}
    assert all(0 <= row["MRR@10"] <= 100 for row in rows)
    main([*command[:2], *command[3:]])
    again = json.loads((tmp_path / "out" / f"{table}.json").read_text())["rows"]
    assert any(row["collection"] == "second" for row in again), "another collection's rows stay"
