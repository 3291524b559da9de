"""The words that tell a pseudo query from the others of its document."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pseudoquery.records import Span
from pseudoquery.service.labels import WORD, WORDS_IN_LABEL, labels


def spans_of(text: str, *groups: str) -> list[list[Span]]:
    """Give each group the words of the text that it lists, once each, from the left."""
    return [
        [Span(text.index(word), text.index(word) + len(word)) for word in group.split()]
        for group in groups
    ]


def test_words_that_others_have_tell_less() -> None:
    text = "stones, skin, bone and hair; stones, iron, gold and salt"
    halves = [[Span(0, 28)], [Span(28, len(text))]]
    assert labels(text, halves) == ["skin · bone · hair", "iron · gold · salt"]


def test_words_that_come_often_tell_more() -> None:
    text = "moon star moon bird moon king bird ship"
    assert labels(text, [[Span(0, len(text))]]) == ["moon · star · bird"]


def test_long_words_tell_more_than_short_ones() -> None:
    text = "It is a photosynthetic reaction of an organism"
    (label,) = labels(text, [[Span(0, len(text))]])
    assert label == "photosynthetic · reaction · organism"


def test_a_word_is_whose_first_letter_it_is() -> None:
    text = "phagocytes eat"
    assert labels(text, [[Span(0, 5)], [Span(5, 14)]]) == ["phagocytes", "eat"]


def test_a_word_that_nobody_has_is_in_no_label() -> None:
    text = "one two three"
    assert labels(text, spans_of(text, "one", "three")) == ["one", "three"]


def test_without_text_there_is_no_label() -> None:
    assert labels("", [[], []]) == ["", ""]
    assert labels("... !", [[Span(0, 5)]]) == [""]
    assert labels("anything", []) == []


def test_hyphens_and_apostrophes_belong_to_a_word() -> None:
    text = "Ludwig's well-known d’Artagnan"
    assert labels(text, [[Span(0, len(text))]]) == ["ludwig's · well-known · d’artagnan"]


@given(st.text(st.sampled_from("ab é-'. \n中"), max_size=60), st.data())
def test_labels_hold_own_words_once_in_order(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=6)))
    pieces = [Span(*pair) for pair in pairwise([0, *cuts, len(text)])]
    owners = data.draw(st.lists(st.integers(0, 2), min_size=len(pieces), max_size=len(pieces)))
    spans = [
        [piece for piece, owner in zip(pieces, owners, strict=True) if owner == number]
        for number in range(3)
    ]
    for own, label in zip(spans, labels(text, spans), strict=True):
        mine = [
            match.group().casefold()
            for match in WORD.finditer(text)
            if any(span.start <= match.start() < span.end for span in own)
        ]
        words = label.split(" · ") if label else []
        distinct = list(dict.fromkeys(mine))
        assert len(words) == min(WORDS_IN_LABEL, len(distinct))
        assert words == [word for word in distinct if word in words]
