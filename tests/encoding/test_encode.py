from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import MultiVectorEncoder

from pseudoquery.encoding import embed
from pseudoquery.encoding import encode as encoding
from pseudoquery.encoding.encode import encode_queries, encode_texts, read_texts
from pseudoquery.encoding.model import load_model
from pseudoquery.encoding.precision import in_precision
from pseudoquery.encoding.windows import Task, split
from pseudoquery.errors import ModelError
from pseudoquery.method.presets import preset
from tests.support.texts import (
    LIMIT,
    SHORT,
    STRANGE,
    assert_sound,
    encode_one,
    with_representation,
    words,
)

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
    encoded = encode_one(tiny_model, text, long="truncate")
    np.testing.assert_allclose(encoded.vectors, theirs, atol=1e-5)


def test_unknown_words_are_text(tiny_model: MultiVectorEncoder) -> None:
    encoded = encode_one(tiny_model, "😀")
    assert encoded.vectors.shape == (1, 32)
    assert encoded.owners.tolist() == [0]
    assert encoded.spans.tolist() == [[0, 1]]


# A text's result is its own


@settings(max_examples=12)
@given(order=st.permutations(range(8)), batch_tokens=st.sampled_from([1, 70, 200, 4096]))
def test_batches_and_order_change_nothing(
    tiny_model: MultiVectorEncoder, order: list[int], batch_tokens: int
) -> None:
    texts = [*SHORT, "", words(100), words(200, seed=1)]
    alone = [encode_one(tiny_model, text) for text in texts]
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


def test_end_of_a_long_text_counts(tiny_model: MultiVectorEncoder) -> None:
    start = words(300)
    ends = [encode_one(tiny_model, f"{start} {end}") for end in ("horse", "moon")]
    assert not np.allclose(ends[0].vectors, ends[1].vectors, atol=1e-6)
    assert not any(end.cut for end in ends)
    assert ends[0].spans[-1].tolist() == [len(start) + 1, len(start) + 6]


def test_truncation_cuts_and_says_so(tiny_model: MultiVectorEncoder) -> None:
    start = words(300)
    ends = [encode_one(tiny_model, f"{start} {end}", long="truncate") for end in ("horse", "moon")]
    assert np.array_equal(ends[0].vectors, ends[1].vectors)
    assert all(end.cut for end in ends)
    assert len(ends[0].spans) == LIMIT - 2, "[CLS] and [SEP] stand for no text"
    theirs = tiny_model.encode_document([start], convert_to_numpy=True)[0]
    np.testing.assert_allclose(ends[0].vectors, theirs, atol=1e-5)


@pytest.mark.parametrize(("n", "cut"), [(LIMIT - 2, False), (LIMIT - 1, True)])
def test_text_that_just_fits_is_not_cut(tiny_model: MultiVectorEncoder, n: int, cut: bool) -> None:
    encoded = encode_one(tiny_model, words(n), long="truncate")
    assert encoded.cut == cut
    assert len(encoded.spans) == LIMIT - 2
    windows, _ = split(tiny_model, [words(n)], "document", "windows")
    assert len(windows) == (2 if cut else 1)


def test_only_the_long_text_is_cut(tiny_model: MultiVectorEncoder) -> None:
    encoded = encode_texts(tiny_model, ["a river", words(100), ""], "document", "truncate")
    assert [one.cut for one in encoded] == [False, True, False]


def test_long_text_has_k_vectors_and_owners(tiny_model: MultiVectorEncoder) -> None:
    text = words(500)
    encoded = encode_one(tiny_model, text)
    assert_sound(encoded, text, 4)
    assert len(encoded.vectors) == 4
    assert len(encoded.owners) == 500
    assert (encoded.owners >= 0).all()


def test_mean_of_a_long_text_is_the_mean_of_its_tokens(tiny_model_path: str) -> None:
    mean = with_representation(tiny_model_path, documents="mean", normalise=False)
    tokens = with_representation(tiny_model_path, documents="tokens", normalise=False)
    text = words(200)
    every = encode_one(tokens, text).vectors
    assert len(every) == 200
    np.testing.assert_allclose(
        encode_one(mean, text).vectors, every.mean(0, keepdims=True), atol=1e-5
    )


@pytest.mark.parametrize("n", [20, 60, 300])
def test_locality_makes_stretches_of_the_text(tiny_model_path: str, n: int) -> None:
    text = words(n)
    plain, local = (
        encode_one(with_representation(tiny_model_path, locality=locality), text)
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


# Strange texts


@pytest.mark.parametrize("task", ["query", "document"])
@pytest.mark.parametrize("text", STRANGE.values(), ids=STRANGE)
def test_strange_texts(tiny_model: MultiVectorEncoder, text: str, task: Task) -> None:
    assert_sound(encode_one(tiny_model, text, task), text, 4)


@pytest.mark.parametrize("name", ["empty", "whitespace", "only nul"])
def test_text_without_words_has_no_document_vectors(
    tiny_model: MultiVectorEncoder, name: str
) -> None:
    encoded = encode_one(tiny_model, STRANGE[name])
    assert encoded.vectors.shape == (0, 32)
    assert len(encoded.owners) == len(encoded.spans) == 0
    assert not encoded.cut


def test_empty_question_still_has_a_vector(tiny_model: MultiVectorEncoder) -> None:
    assert encode_queries(tiny_model, [""])[0].shape == (1, 32)


def test_literal_special_tokens_are_no_text(tiny_model: MultiVectorEncoder) -> None:
    encoded = encode_one(tiny_model, "the [SEP] king")
    assert encoded.owners.tolist() == [0, 1]
    assert encoded.spans.tolist() == [[0, 3], [10, 14]]


@settings(max_examples=60)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
def test_any_text(tiny_model: MultiVectorEncoder, text: str) -> None:
    encoded = encode_one(tiny_model, text)
    assert_sound(encoded, text, 4)
    theirs = tiny_model.encode_document([text], convert_to_numpy=True)[0]
    if not encode_one(tiny_model, text, long="truncate").cut:
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
    encoded = encode_one(prompted_model, text)
    found = [text[start:end] for start, end in encoded.spans.tolist() if end > start]
    assert found == text.split()
    assert len(encoded.spans) == len(encode_one(tiny_model, text).spans) + 2
    theirs = prompted_model.encode_document([text], convert_to_numpy=True)[0]
    np.testing.assert_allclose(encoded.vectors, theirs, atol=1e-5)
    assert not np.allclose(encoded.vectors[0], encode_one(tiny_model, text).vectors[0], atol=1e-3)


def test_each_task_has_its_own_prompt(prompted_model: MultiVectorEncoder) -> None:
    theirs = prompted_model.encode_query(SHORT, convert_to_numpy=True)
    for ours, expected in zip(encode_queries(prompted_model, SHORT), theirs, strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_prompt_of_a_long_text(prompted_model: MultiVectorEncoder) -> None:
    text = words(200)
    spans = [
        (start, end)
        for start, end in encode_one(prompted_model, text).spans.tolist()
        if end > start
    ]
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
    expected = encode_one(model, "the king of the city").vectors
    model.train()
    assert np.array_equal(encode_one(model, "the king of the city").vectors, expected)


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
