"""Answers in texts: DPR's definition, and the same said slowly."""

from __future__ import annotations

import unicodedata

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from pseudoquery.evaluation.answer_match import contains_answer, top_accuracy

DPR_TOKEN = regex.compile(r"([\p{L}\p{N}\p{M}]+)|([^\p{Z}\p{C}])")


def words(text: str) -> list[str]:
    """Cut a text into tokens as DPR defines them, each lowered on its own."""
    tokens = DPR_TOKEN.finditer(unicodedata.normalize("NFD", text))
    return [token.group().lower() for token in tokens]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \t\n\0\u200b\u00a0", []),  # separators and characters that can't be seen
        ("Who was it?", ["who", "was", "it", "?"]),
        ("1,000", ["1", ",", "000"]),
        ("don't", ["don", "'", "t"]),
        ("snake_case", ["snake", "_", "case"]),
        ("...", [".", ".", "."]),
        ("x²", ["x²"]),
        ("caf\u00e9", ["cafe\u0301"]),  # a letter and its accent are one word
        ("漢字 😀", ["漢字", "😀"]),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("It is in Paris.", "Paris"),
        ("It is in PARIS.", "paris"),
        ("Paris", "PARIS"),
        ("the caf\u00e9 there", "cafe\u0301"),
        ("the cafe\u0301 there", "CAF\u00c9"),
        ("over 1,000 men", "1,000"),
        ("over 1,000 men", "1 , 000"),  # tokens are compared, not the spaces between them
        ("over 1,000 men", "000"),
        ("the River\n\tNile flows", "river nile"),
        ("the well-known man", "well known".replace(" ", "-")),
        ("a 'quoted' word", "'quoted'"),
        ("wow!", "!"),
        ("U.S. law", "u.s."),
        ("ΟΔΟΣ.Α", "οδος"),  # the small letter of a final sigma is its word's own affair
        ("οδος", "ΟΔΟΣ"),
        ("soft\u00adhyphen", "hyphen"),
    ],
)
def test_contained(text: str, answer: str) -> None:
    assert contains_answer(text, [answer])
    assert contains_answer(text, ["certainly not", answer])


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("a party", "art"),
        ("art", "party"),
        ("a cafe", "caf\u00e9"),  # an accent counts
        ("10000", "1,000"),
        ("1000", "100"),
        ("the Nile river", "river Nile"),
        ("the river of the Nile", "river Nile"),
        ("well known", "well-known"),
        ("river", "river Nile"),
        ("", "Nile"),
        ("Nile", ""),
        ("", ""),
        ("Nile", " \n\u200b\0"),
        ("Nile\0River", "Nile\0\0Riverside"),
    ],
)
def test_not_contained(text: str, answer: str) -> None:
    assert not contains_answer(text, [answer])


def test_no_answers() -> None:
    assert not contains_answer("anything", [])
    assert contains_answer("anything", iter(["", "anything"]))


@pytest.mark.parametrize("text", ["Nile", "", "the river Nile " * 1000])
def test_a_text_is_prepared_once(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = ("Nile", "Niger", "", "river nile")
    first = [contains_answer(text, [answer]) for answer in answers]
    monkeypatch.setattr("pseudoquery.evaluation.answer_match._TOKEN", None)
    assert [contains_answer(text, [answer]) for answer in answers] == first


def slowly(text: str, answers: list[str]) -> bool:
    """Compare the answer's tokens with every stretch of the text's."""
    tokens = words(text)
    for answer in answers:
        wanted = words(answer)
        for start in range(len(tokens)):
            if wanted and tokens[start : start + len(wanted)] == wanted:
                return True
    return False


pieces = st.sampled_from(
    [
        "a",
        "A",
        "b",
        "ab",
        "1",
        ",",
        ".",
        "'",
        " ",
        "\n",
        "\0",
        "é",
        "e\u0301",
        "e",
        "Σ",
        "ς",
        "İ",
        "ß",
        "_",
        "\u0301",
        "\u00ad",
        "\u2028",
    ]
)
scraps = st.lists(pieces, max_size=10).map("".join)


@given(text=scraps | st.text(), answers=st.lists(scraps | st.text(max_size=3), max_size=3))
def test_agrees_with_the_slow_way(text: str, answers: list[str]) -> None:
    assert contains_answer(text, answers) == slowly(text, answers)


@given(before=st.text(), answer=st.text(), after=st.text())
def test_an_answer_between_spaces_is_found(before: str, answer: str, after: str) -> None:
    # A mark at the start would join the letter that is before it, were there no space.
    text = f"{before} {answer} {after}"
    assert contains_answer(text, [answer]) == bool(words(answer))
    for form in ("NFC", "NFD"):
        same = unicodedata.normalize(form, text)
        assert contains_answer(same, [answer]) == bool(words(answer))


def test_top_accuracy_by_hand() -> None:
    texts = {"a": "In Paris.", "b": "In a party.", "c": "The Nile."}
    run = {
        "second": [("b", 2.0), ("a", 1.0)],
        "never": [("a", 3.0), ("b", 2.0), ("c", 1.0)],
        "nothing found": [],
        "no answers asked": [("a", 1.0)],
    }
    answers = {
        "second": ("Rome", "paris"),
        "never": ("art",),
        "nothing found": ("Paris",),
        "missing": ("Paris",),
    }
    second_only = dict.fromkeys(answers, 0.0) | {"second": 1.0}
    assert top_accuracy(run, texts, answers, 1) == dict.fromkeys(answers, 0.0)
    assert top_accuracy(run, texts, answers, 2) == second_only
    assert top_accuracy(run, texts, answers, 100) == second_only
    assert top_accuracy({}, {}, answers, 5) == dict.fromkeys(answers, 0.0)
    assert top_accuracy(run, texts, {}, 5) == {}
