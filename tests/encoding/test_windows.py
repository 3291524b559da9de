"""Windows cover a long text, each token once."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import MultiVectorEncoder

from pseudoquery.encoding.windows import OVERLAP, split
from tests.support.texts import LIMIT, words


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
