from __future__ import annotations

import random
import threading
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import MultiVectorEncoder

from pseudoquery.encoding import embed
from pseudoquery.encoding import encode as encoding
from pseudoquery.encoding.encode import Encoded, encode_queries, encode_texts, read_texts
from pseudoquery.encoding.model import load_model
from pseudoquery.encoding.precision import in_precision
from pseudoquery.encoding.windows import OVERLAP, Long, Task, split
from pseudoquery.errors import ModelError
from pseudoquery.method.presets import preset
from pseudoquery.method.representation import Representation

LIMIT = 64
WORDS = "the king of city that was old book in water and who had not green fire bird moon an it"
SHORT = [
    "the king of the city",
    "who found the old book?",
    "a river",
    "Zürich & café 42!",
    "an unknown 😀 sign in the \u4e2d text",
]
STRANGE = {
    "empty": "",
    "whitespace": " \n\t  ",
    "nul": "the\x00king\x00",
    "only nul": "\x00",
    "emoji": "😀😀 the 👨‍👩‍👧 family",
    "right to left": "שלום the عالم",
    "combining": "e\u0301 the n\u0303",
    "one word": "x" * 300,
    "one huge word": "q" * 5000,
    "literal special tokens": "the [SEP] king [CLS] of [MASK] [PAD] [UNK]",
}


def words(n: int, seed: int = 0) -> str:
    return " ".join(random.Random(seed).choices(WORDS.split(), k=n))


def one(
    model: MultiVectorEncoder, text: str, task: Task = "document", long: Long = "windows"
) -> Encoded:
    return encode_texts(model, [text], task, long)[0]


def with_representation(path: str, **settings: Any) -> MultiVectorEncoder:
    return load_model(path, Representation(**{"k": 4, **settings}), device="cpu")


def assert_sound(encoded: Encoded, text: str, most: int) -> None:
    assert encoded.vectors.dtype == np.float32
    assert np.isfinite(encoded.vectors).all()
    assert len(encoded.vectors) <= most
    assert len(encoded.owners) == len(encoded.spans)
    assert encoded.owners.min() >= -1
    assert set(encoded.owners) - {-1} == set(range(len(encoded.vectors)))
    assert (encoded.spans[:, 0] <= encoded.spans[:, 1]).all()
    assert encoded.spans.max() <= len(text)
    if len(encoded.vectors):
        np.testing.assert_allclose(np.linalg.norm(encoded.vectors, axis=1), 1, rtol=1e-5)


# The same as sentence-transformers, for texts that it does not cut


@pytest.mark.parametrize("changes", [{}, {"special_tokens": True}, {"append": "cls"}])
@pytest.mark.parametrize(
    "documents", ["pseudo-queries", "cls", "mean", "first", "learnt", "random", "stretches"]
)
def test_documents_equal_sentence_transformers(
    tiny_model_path: str, documents: str, changes: dict[str, Any]
) -> None:
    model = with_representation(tiny_model_path, documents=documents, **changes)
    theirs = model.encode_document(SHORT, convert_to_numpy=True)
    for encoded, expected in zip(encode_texts(model, SHORT, "document"), theirs, strict=True):
        np.testing.assert_allclose(encoded.vectors, expected, atol=1e-5)


@pytest.mark.parametrize("query", ["cls", "mean", "tokens"])
def test_queries_equal_sentence_transformers(tiny_model_path: str, query: str) -> None:
    model = with_representation(tiny_model_path, query=query)
    theirs = model.encode_query(SHORT, convert_to_numpy=True)
    for ours, expected in zip(encode_queries(model, SHORT), theirs, strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-5)


@pytest.mark.parametrize("text", STRANGE.values(), ids=STRANGE)
def test_strange_texts_equal_sentence_transformers(
    tiny_model: MultiVectorEncoder, text: str
) -> None:
    theirs = tiny_model.encode_document([text], convert_to_numpy=True)[0]
    encoded = one(tiny_model, text, long="truncate")
    np.testing.assert_allclose(encoded.vectors, theirs, atol=1e-5)


def test_unknown_words_are_text(tiny_model: MultiVectorEncoder) -> None:
    encoded = one(tiny_model, "😀")
    assert encoded.vectors.shape == (1, 32)
    assert encoded.owners.tolist() == [-1, 0, -1]
    assert encoded.spans[1].tolist() == [0, 1]


# A text's result is its own


@settings(max_examples=12)
@given(order=st.permutations(range(8)), batch_tokens=st.sampled_from([1, 70, 200, 4096]))
def test_batches_and_order_change_nothing(
    tiny_model: MultiVectorEncoder, order: list[int], batch_tokens: int
) -> None:
    texts = [*SHORT, "", words(100), words(200, seed=1)]
    alone = [one(tiny_model, text) for text in texts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(embed.BATCH_TOKENS, "cpu", batch_tokens)
        together = encode_texts(tiny_model, [texts[i] for i in order], "document")
    for place, index in enumerate(order):
        np.testing.assert_allclose(together[place].vectors, alone[index].vectors, atol=1e-5)
        assert together[place].owners.tolist() == alone[index].owners.tolist()
        assert together[place].spans.tolist() == alone[index].spans.tolist()


def test_threads_change_nothing(
    tiny_model: MultiVectorEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(embed.BATCH_TOKENS, "cpu", 70)
    texts = [*SHORT, "", words(100), words(200, seed=1)]
    alone = encode_texts(tiny_model, texts, "document")
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        shared = encode_texts(tiny_model, texts, "document")
    finally:
        torch.set_num_threads(threads)
    for one_thread, several in zip(alone, shared, strict=True):
        np.testing.assert_allclose(several.vectors, one_thread.vectors, atol=1e-5)
        assert several.owners.tolist() == one_thread.owners.tolist()


def test_one_text_is_pooled_by_one_thread_and_a_question_by_this_one(
    tiny_model: MultiVectorEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = encoding._pool_batch
    seen = []

    def pool_and_look(*given: Any) -> Any:
        seen.append((torch.get_num_threads(), threading.current_thread() is here))
        return pool(*given)

    monkeypatch.setattr(encoding, "_pool_batch", pool_and_look)
    here, before = threading.current_thread(), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        encode_texts(tiny_model, ["the king of the river " * 20], "document")
        encode_texts(tiny_model, ["who is the king?"], "query")
    finally:
        torch.set_num_threads(before)
    assert seen == [(1, False), (2, True)]


def test_no_texts(tiny_model: MultiVectorEncoder) -> None:
    assert encode_texts(tiny_model, [], "document") == []
    assert encode_queries(tiny_model, []) == []


def test_repeated_texts(tiny_model: MultiVectorEncoder) -> None:
    first, second = encode_texts(tiny_model, ["the king"] * 2, "document")
    assert np.array_equal(first.vectors, second.vectors)


# Long texts


@settings(max_examples=30)
@given(n=st.integers(1, 400), seed=st.integers(0, 1000), glue=st.sampled_from([" ", "  \n", ""]))
def test_windows_cover_each_token_once(
    tiny_model: MultiVectorEncoder, n: int, seed: int, glue: str
) -> None:
    text = glue.join(words(n, seed).split(" "))
    whole = tiny_model.tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
    windows, cut = split(tiny_model, [text], "document", "windows")
    assert all(len(window.ids) <= LIMIT for window in windows)
    spans = [
        tuple(span)
        for window in windows
        for span in window.spans[window.kept & ~window.special].tolist()
    ]
    assert spans == whole["offset_mapping"]
    ids = [
        token
        for window in windows
        for token, kept in zip(window.ids, window.kept & ~window.special, strict=True)
        if kept
    ]
    assert ids == whole["input_ids"]
    covered = Counter(place for start, end in spans for place in range(start, end))
    assert set(covered.values()) == {1}
    assert set(covered) == {place for place, letter in enumerate(text) if not letter.isspace()}
    assert cut == set()


def test_windows_overlap_and_tokens_come_from_the_one_further_from_the_edge(
    tiny_model: MultiVectorEncoder,
) -> None:
    windows, _ = split(tiny_model, [words(150)], "document", "windows")
    overlap = int(LIMIT * OVERLAP)
    assert overlap == 8
    assert len(windows) == 3
    for before, after in pairwise(windows):
        assert before.ids[-1 - overlap : -1] == after.ids[1 : 1 + overlap]
        assert before.kept[-1 - overlap : -1].tolist() == [True] * 4 + [False] * 4
        assert after.kept[1 : 1 + overlap].tolist() == [False] * 4 + [True] * 4


@pytest.mark.skipif(tokenizers.__version__ in ("0.23.1", "0.23.2"), reason="they lose the ends")
@given(n=st.integers(0, 400), seed=st.integers(0, 1000), extra=st.lists(st.text(), max_size=2))
def test_windows_are_those_that_the_tokenizer_would_cut(
    tiny_model: MultiVectorEncoder, n: int, seed: int, extra: list[str]
) -> None:
    texts = [words(n, seed), *extra]
    theirs = tiny_model.tokenizer(
        texts,
        truncation=True,
        max_length=LIMIT,
        stride=int(LIMIT * OVERLAP),
        return_overflowing_tokens=True,
    )
    windows, _ = split(tiny_model, texts, "document", "windows")
    assert [window.ids for window in windows] == theirs["input_ids"]
    assert [window.text for window in windows] == theirs["overflow_to_sample_mapping"]


def test_end_of_a_long_text_counts(tiny_model: MultiVectorEncoder) -> None:
    start = words(300)
    ends = [one(tiny_model, f"{start} {end}") for end in ("horse", "moon")]
    assert not np.allclose(ends[0].vectors, ends[1].vectors, atol=1e-6)
    assert not any(end.cut for end in ends)
    assert ends[0].spans[-2].tolist() == [len(start) + 1, len(start) + 6]


def test_truncation_cuts_and_says_so(tiny_model: MultiVectorEncoder) -> None:
    start = words(300)
    ends = [one(tiny_model, f"{start} {end}", long="truncate") for end in ("horse", "moon")]
    assert np.array_equal(ends[0].vectors, ends[1].vectors)
    assert all(end.cut for end in ends)
    assert len(ends[0].spans) == LIMIT
    theirs = tiny_model.encode_document([start], convert_to_numpy=True)[0]
    np.testing.assert_allclose(ends[0].vectors, theirs, atol=1e-5)


@pytest.mark.parametrize(("n", "cut"), [(LIMIT - 2, False), (LIMIT - 1, True)])
def test_text_that_just_fits_is_not_cut(tiny_model: MultiVectorEncoder, n: int, cut: bool) -> None:
    encoded = one(tiny_model, words(n), long="truncate")
    assert encoded.cut == cut
    assert len(encoded.spans) == LIMIT
    windows, _ = split(tiny_model, [words(n)], "document", "windows")
    assert len(windows) == (2 if cut else 1)


def test_only_the_long_text_is_cut(tiny_model: MultiVectorEncoder) -> None:
    encoded = encode_texts(tiny_model, ["a river", words(100), ""], "document", "truncate")
    assert [one.cut for one in encoded] == [False, True, False]


def test_long_text_has_k_vectors_and_owners(tiny_model: MultiVectorEncoder) -> None:
    text = words(500)
    encoded = one(tiny_model, text)
    assert_sound(encoded, text, 4)
    assert len(encoded.vectors) == 4
    assert (encoded.owners[encoded.spans[:, 1] > 0] >= 0).all()


def test_mean_of_a_long_text_is_the_mean_of_its_tokens(tiny_model_path: str) -> None:
    mean = with_representation(tiny_model_path, documents="mean", normalise=False)
    tokens = with_representation(tiny_model_path, documents="tokens", normalise=False)
    text = words(200)
    every = one(tokens, text).vectors
    assert len(every) == 200
    np.testing.assert_allclose(one(mean, text).vectors, every.mean(0, keepdims=True), atol=1e-5)


@pytest.mark.parametrize("n", [20, 60, 300])
def test_locality_makes_stretches_of_the_text(tiny_model_path: str, n: int) -> None:
    text = words(n)
    plain, local = (
        one(with_representation(tiny_model_path, locality=locality), text)
        for locality in (0.0, 100.0)
    )
    assert_sound(local, text, 4)
    owners = local.owners[local.owners >= 0]
    assert len(owners) == n
    assert owners.tolist() == sorted(owners)
    # Each seed begins its stretch, and Lloyd stops before it has come to its middle.
    lengths = np.bincount(owners) * 4 / n
    assert lengths.min() >= 0.5
    assert lengths.max() <= 1.5
    assert plain.owners[plain.owners >= 0].tolist() != sorted(plain.owners[plain.owners >= 0])


# Folding


@pytest.fixture
def small_folds(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(encoding, "FOLD_ABOVE", 100)
    monkeypatch.setattr(encoding, "FOLD_BLOCK", 128)
    monkeypatch.setattr(encoding, "FOLD_TO", 8)
    return monkeypatch


def test_folded_text(tiny_model: MultiVectorEncoder, small_folds: pytest.MonkeyPatch) -> None:
    text = words(600)
    folded = one(tiny_model, text)
    assert_sound(folded, text, 4)
    assert len(folded.vectors) == 4
    assert (folded.owners[folded.spans[:, 1] > 0] >= 0).all()
    assert (folded.owners[folded.spans[:, 1] == 0] == -1).all()
    small_folds.setattr(encoding, "FOLD_ABOVE", 10_000)
    unfolded = one(tiny_model, text)
    assert folded.spans.tolist() == unfolded.spans.tolist()
    assert not np.allclose(folded.vectors, unfolded.vectors, atol=1e-6)


def test_folded_text_with_locality_has_stretches(
    tiny_model_path: str, small_folds: pytest.MonkeyPatch
) -> None:
    text = words(600)
    cuts = {}
    for locality in (0.0, 1.0, 100.0):
        folded = one(with_representation(tiny_model_path, locality=locality), text)
        assert_sound(folded, text, 4)
        owners = folded.owners[folded.owners >= 0]
        assert len(owners) == 600
        cuts[locality] = int((np.diff(owners) != 0).sum())
    assert cuts[0.0] > cuts[1.0] > cuts[100.0] == 3


@pytest.mark.parametrize(
    "changes",
    [{}, {"append": "cls"}, {"append": "mean", "mix_mean": 0.5}, {"locality": 1.0}],
)
def test_fold_without_reduction_changes_nothing(
    tiny_model_path: str, small_folds: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    model = with_representation(tiny_model_path, **changes)
    text = words(300)
    small_folds.setattr(encoding, "FOLD_TO", 200)
    folded = one(model, text)
    small_folds.setattr(encoding, "FOLD_ABOVE", 10_000)
    unfolded = one(model, text)
    np.testing.assert_allclose(folded.vectors, unfolded.vectors, atol=1e-4)
    assert folded.owners.tolist() == unfolded.owners.tolist()


@pytest.mark.parametrize("special_tokens", [True, False])
def test_folded_mean_is_exact(
    tiny_model_path: str, small_folds: pytest.MonkeyPatch, special_tokens: bool
) -> None:
    model = with_representation(tiny_model_path, documents="mean", special_tokens=special_tokens)
    text = words(300)
    folded = one(model, text).vectors
    small_folds.setattr(encoding, "FOLD_ABOVE", 10_000)
    np.testing.assert_allclose(folded, one(model, text).vectors, atol=1e-5)


def test_folded_cls_is_the_cls_token(tiny_model_path: str, small_folds: pytest.MonkeyPatch) -> None:
    text = words(300)
    cls = one(with_representation(tiny_model_path, documents="cls"), text).vectors[0]
    folded = one(with_representation(tiny_model_path, append="cls"), text)
    np.testing.assert_allclose(folded.vectors[-1], cls, atol=1e-5)
    assert folded.owners[0] == len(folded.vectors) - 1


@pytest.mark.parametrize("query", ["cls", "tokens"])
def test_queries_of_tokens_are_not_folded(
    tiny_model_path: str, small_folds: pytest.MonkeyPatch, query: str
) -> None:
    model = with_representation(tiny_model_path, query=query)
    folded = one(model, words(300), "query").vectors
    small_folds.setattr(encoding, "FOLD_ABOVE", 10_000)
    np.testing.assert_allclose(folded, one(model, words(300), "query").vectors, atol=1e-5)


@pytest.mark.parametrize("documents", ["first", "tokens", "random", "learnt", "stretches", "cls"])
def test_vectors_of_single_tokens_are_not_folded(
    tiny_model_path: str, small_folds: pytest.MonkeyPatch, documents: str
) -> None:
    model = with_representation(tiny_model_path, documents=documents)
    folded = one(model, words(300)).vectors
    small_folds.setattr(encoding, "FOLD_ABOVE", 10_000)
    assert np.array_equal(folded, one(model, words(300)).vectors)


def test_huge_text_beside_a_short_one(
    tiny_model: MultiVectorEncoder, small_folds: pytest.MonkeyPatch
) -> None:
    texts = ["the king", words(400), "", words(90)]
    for text, encoded in zip(texts, encode_texts(tiny_model, texts, "document"), strict=True):
        np.testing.assert_allclose(encoded.vectors, one(tiny_model, text).vectors, atol=1e-5)
        assert len(encoded.owners) == len(encoded.spans)


def test_folded_text_without_words(
    tiny_model: MultiVectorEncoder, small_folds: pytest.MonkeyPatch
) -> None:
    assert one(tiny_model, "[SEP] " * 300).vectors.shape == (0, 32)


# Strange texts


@pytest.mark.parametrize("task", ["query", "document"])
@pytest.mark.parametrize("text", STRANGE.values(), ids=STRANGE)
def test_strange_texts(tiny_model: MultiVectorEncoder, text: str, task: Task) -> None:
    assert_sound(one(tiny_model, text, task), text, 4)


@pytest.mark.parametrize("name", ["empty", "whitespace", "only nul"])
def test_text_without_words_has_no_document_vectors(
    tiny_model: MultiVectorEncoder, name: str
) -> None:
    encoded = one(tiny_model, STRANGE[name])
    assert encoded.vectors.shape == (0, 32)
    assert (encoded.owners == -1).all()
    assert not encoded.cut


def test_empty_question_still_has_a_vector(tiny_model: MultiVectorEncoder) -> None:
    assert encode_queries(tiny_model, [""])[0].shape == (1, 32)


def test_literal_special_tokens_are_no_text(tiny_model: MultiVectorEncoder) -> None:
    encoded = one(tiny_model, "the [SEP] king")
    assert encoded.owners.tolist() == [-1, 0, -1, 1, -1]


@settings(max_examples=60)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
def test_any_text(tiny_model: MultiVectorEncoder, text: str) -> None:
    encoded = one(tiny_model, text)
    assert_sound(encoded, text, 4)
    theirs = tiny_model.encode_document([text], convert_to_numpy=True)[0]
    if len(encoded.spans) <= LIMIT:
        np.testing.assert_allclose(encoded.vectors, theirs, atol=1e-4)


# Prompts, tokenizers, state


@pytest.fixture
def prompted_model(tiny_model_path: str) -> MultiVectorEncoder:
    model = load_model(tiny_model_path, preset("recommended", k=4), device="cpu")
    model.prompts = {"query": "question : ", "document": "document : "}
    return model


def test_prompt_is_read_and_spans_count_from_the_text(
    prompted_model: MultiVectorEncoder, tiny_model: MultiVectorEncoder
) -> None:
    text = "the king of the city"
    encoded = one(prompted_model, text)
    found = [text[start:end] for start, end in encoded.spans.tolist() if end > start]
    assert found == text.split()
    assert len(encoded.spans) == len(one(tiny_model, text).spans) + 2
    theirs = prompted_model.encode_document([text], convert_to_numpy=True)[0]
    np.testing.assert_allclose(encoded.vectors, theirs, atol=1e-5)
    assert not np.allclose(encoded.vectors[0], one(tiny_model, text).vectors[0], atol=1e-3)


def test_each_task_has_its_own_prompt(prompted_model: MultiVectorEncoder) -> None:
    theirs = prompted_model.encode_query(SHORT, convert_to_numpy=True)
    for ours, expected in zip(encode_queries(prompted_model, SHORT), theirs, strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_prompt_of_a_long_text(prompted_model: MultiVectorEncoder) -> None:
    text = words(200)
    spans = [(start, end) for start, end in one(prompted_model, text).spans.tolist() if end > start]
    whole = prompted_model.tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
    assert spans == whole["offset_mapping"]


def test_slow_tokenizer_is_refused(tiny_model: MultiVectorEncoder) -> None:
    class Slow:
        tokenizer = object()

    with pytest.raises(ModelError, match="fast tokenizer"):
        split(Slow(), ["text"], "document", "windows")  # type: ignore[arg-type]


def test_encoding_prints_nothing_and_keeps_the_random_state(
    tiny_model: MultiVectorEncoder, capfd: pytest.CaptureFixture[str]
) -> None:
    before = torch.get_rng_state()
    encode_texts(tiny_model, [*SHORT, words(300)], "document")
    assert torch.equal(torch.get_rng_state(), before)
    assert capfd.readouterr() == ("", "")


def test_encoding_gives_the_same_after_training_mode(tiny_model_path: str) -> None:
    model = with_representation(tiny_model_path)
    expected = one(model, "the king of the city").vectors
    model.train()
    assert np.array_equal(one(model, "the king of the city").vectors, expected)


def test_a_precision_leaves_the_model_as_it_was(tiny_model: MultiVectorEncoder) -> None:
    half = in_precision(tiny_model, "bfloat16")
    assert in_precision(half, "bfloat16") is half
    assert in_precision(tiny_model, "float32") is tiny_model
    assert [one.data_ptr() for one in half.parameters()] == [
        one.data_ptr() for one in tiny_model.parameters()
    ], "the weights are shared"
    text = "the king and the queen of the river city " * 9
    full, rough = (encode_texts(one, [text], "document")[0] for one in (tiny_model, half))
    again = encode_texts(in_precision(half, "float32"), [text], "document")[0]
    np.testing.assert_array_equal(full.vectors, again.vectors)
    assert not np.array_equal(full.vectors, rough.vectors)
    assert rough.vectors.dtype == np.float32
    lengths = np.linalg.norm(rough.vectors, axis=1)
    np.testing.assert_allclose(lengths, 1.0, rtol=1e-6, err_msg="vectors are in full precision")
    reading = read_texts(half, [text], "document")
    assert reading.digits == torch.bfloat16
    assert read_texts(tiny_model, [text], "document").digits is None
    tokens = reading.tokens[0].embeddings
    assert tokens.dtype == torch.float32
