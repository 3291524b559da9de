"""Which passages made a document's pseudo queries, and what of it a terminal shows."""

from __future__ import annotations

import io
import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from sentence_transformers import MultiVectorEncoder

from pseudoquery.cli import terminal
from pseudoquery.encoding.encode import document_text, encode_questions
from pseudoquery.encoding.model import load_model
from pseudoquery.encoding.windows import Long
from pseudoquery.errors import QueryError
from pseudoquery.index import Index
from pseudoquery.method.encoded import DocumentVectors, QuestionVectors
from pseudoquery.method.presets import preset
from pseudoquery.method.token_codes import pack_tokens
from pseudoquery.records import Answer, Document, Explanation, PseudoQuery, Span
from pseudoquery.search.explain import EncodedDocument, _join_spans, explain
from pseudoquery.search.settings import SearchSettings
from tests.support.texts import encoded_document

TEXT = (
    "The king of the old city found a red book in the river. Who was the woman with the black "
    "horse?\nThey saw the moon and the sun over the north bridge! 42 birds sang a song of war."
)
QUERY = "what did the king find in the water"


def words_of(explanation: Explanation) -> str:
    """Join the text of all spans, in order."""
    text = explanation.document.text
    spans = sorted(
        (span.start, span.end) for one in explanation.pseudo_queries for span in one.spans
    )
    return " ".join(text[start:end] for start, end in spans)


@pytest.fixture
def index(tmp_path: Path, tiny_model: MultiVectorEncoder) -> Index:
    made = Index.create(tmp_path / "index", model=tiny_model)
    made.add(
        [
            Document("plain", TEXT),
            Document("titled", TEXT, "A long title about the castle"),
            Document("long", TEXT * 8),
            Document("only a title", "", "A title"),
            Document("empty", ""),
        ]
    )
    return made


@pytest.mark.parametrize("id_", ["plain", "titled", "long"])
def test_weights_are_those_of_the_hit(index: Index, id_: str) -> None:
    explanation = index.explain(QUERY, id_)
    by_vectors = SearchSettings(rank_by="vectors")
    (hit,) = index.search(QUERY, where={"id": id_}, settings=by_vectors).hits
    weights = [one.weight for one in explanation.pseudo_queries]
    assert weights == sorted(weights, reverse=True)
    assert weights == pytest.approx(sorted(hit.weights, reverse=True), abs=0.01)
    assert sum(weights) == pytest.approx(1)
    assert explanation.score == pytest.approx(hit.score, rel=0.01)
    largest = max(one.similarity for one in explanation.pseudo_queries)
    assert explanation.pseudo_queries[0].similarity == pytest.approx(largest)


@pytest.mark.parametrize("id_", ["plain", "titled", "long"])
def test_spans_are_stretches_of_the_text(index: Index, id_: str) -> None:
    explanation = index.explain(QUERY, id_)
    text = explanation.document.text
    covered = np.zeros(len(text), dtype=int)
    for one in explanation.pseudo_queries:
        starts = [span.start for span in one.spans]
        assert starts == sorted(starts)
        for span in one.spans:
            assert 0 <= span.start < span.end <= len(text)
            covered[span.start : span.end] += 1
            assert text[span.start : span.end].strip(), "a passage has words"
    assert covered.max() == 1, "each token belongs to one pseudo query"
    letters = [position for position, letter in enumerate(text) if letter.isalnum()]
    assert covered[letters].all(), "every word takes part"


def test_spans_are_of_the_right_words(tiny_model_path: str) -> None:
    """With as many pseudo queries as tokens, each one is made of its own word."""
    model = load_model(tiny_model_path, preset("recommended", k=8))
    encoded = encoded_document(model, Document("a", "king moon  river", "the old"))
    (question,) = encode_questions(model, ["moon"])
    explanation = explain("moon", question, encoded, preset("recommended", k=8))
    text = "king moon  river"
    made_of = {
        text[span.start : span.end] for one in explanation.pseudo_queries for span in one.spans
    }
    assert made_of == {"king", "moon", "river"}
    assert sum(not one.spans for one in explanation.pseudo_queries) == 2, "those of the title"


def test_truncation_leaves_the_rest_unexplained(tiny_model: MultiVectorEncoder) -> None:
    document = Document("a", TEXT * 8)
    (question,) = encode_questions(tiny_model, [QUERY])
    longs: tuple[Long, ...] = ("truncate", "windows")
    cut, whole = (
        explain(
            QUERY,
            question,
            encoded_document(tiny_model, document, long),
            preset("recommended", k=4),
        )
        for long in longs
    )
    end = max(span.end for one in cut.pseudo_queries for span in one.spans)
    assert end < len(document.text) / 4
    assert max(s.end for one in whole.pseudo_queries for s in one.spans) == len(document.text)


def test_the_winning_passage_is_a_sentence(index: Index) -> None:
    passage = index.explain(QUERY, "plain").passage
    assert passage
    assert TEXT[passage.start : passage.end] in (
        "The king of the old city found a red book in the river.",
        "Who was the woman with the black horse?",
        "They saw the moon and the sun over the north bridge!",
        "42 birds sang a song of war.",
    )


def pretended(words: dict[str, list[float]], title: str = "", k: int = 2) -> EncodedDocument:
    """Pretend that these words of TEXT are its tokens, with these embeddings.

    Each word belongs to the pseudo query that it points to most.
    """
    document = Document("a", TEXT, title)
    start = document_text(document)[1]
    spans = [(TEXT.index(word) + start, TEXT.index(word) + len(word) + start) for word in words]
    embeddings = np.array(list(words.values()), np.float32).reshape(-1, k)
    encoded = DocumentVectors(
        np.eye(k, dtype=np.float32),
        embeddings.argmax(axis=1),
        np.array(spans, np.int64).reshape(-1, 2),
        pack_tokens("float16", embeddings),
    )
    return EncodedDocument(document, encoded, "float16", start)


def asked(*tokens: list[float], query: str = "moon") -> QuestionVectors:
    """Pretend that a question has these tokens, and is the first of them."""
    vectors = np.array(tokens, np.float32)
    spans = [match.span() for match in re.finditer(r"\w+", query)][: len(tokens)]
    return QuestionVectors(vectors[:1], vectors, np.array(spans, np.int64))


def winner(words: dict[str, list[float]], *tokens: list[float], title: str, codes: bool) -> str:
    encoded = pretended(words, title)
    if not codes:
        encoded = replace(encoded, token_type="none")
    passage = explain("moon", asked(*tokens), encoded, preset("recommended", k=2)).passage
    assert passage
    return TEXT[passage.start : passage.end]


@pytest.mark.parametrize("title", ["", "A title"])
def test_the_winning_passage_scores_best_by_itself(title: str) -> None:
    def won(words: dict[str, list[float]], *tokens: list[float]) -> str:
        return winner(words, *tokens, title=title, codes=True)

    assert "king" in won({"king": [1.0, 0.1], "moon": [1.0, 0.9]}, [1.0, 0.0])
    assert "moon" in won({"king": [1.0, 0.9], "moon": [1.0, 0.1]}, [1.0, 0.0])
    # Direction counts, not length; and a word that matches nothing does no harm.
    assert "moon" in won({"king": [9.0, 9.0], "moon": [0.1, 0.0]}, [1.0, 0.0])
    assert "king" in won({"king": [1.0, 0.0], "city": [0.0, 5.0], "moon": [1.0, 1.0]}, [1.0, 0.0])
    # Every word of the question counts.
    both = {"king": [1.0, 0.0], "moon": [1.0, 0.2], "sun": [0.0, 1.0]}
    assert "moon" in won(both, [1.0, 0.0], [0.0, 1.0])


@pytest.mark.parametrize("title", ["", "A title"])
def test_without_codes_the_passage_is_of_the_best_pseudo_query(title: str) -> None:
    def won(words: dict[str, list[float]], *tokens: list[float]) -> str:
        return winner(words, *tokens, title=title, codes=False)

    words = {"king": [1.0, 0.0], "moon": [0.0, 1.0], "sun": [1.0, 0.0]}
    assert "king" in won(words, [1.0, 0.0])
    assert "moon" in won(words, [0.0, 1.0])


def test_no_tokens_have_no_passage() -> None:
    explanation = explain("moon", asked([1.0, 0.0]), pretended({}), preset("recommended", k=2))
    assert explanation.passage is None


def test_documents_without_text(index: Index) -> None:
    nothing = index.explain(QUERY, "empty")
    assert (nothing.pseudo_queries, nothing.passage, nothing.score) == ((), None, -math.inf)
    titled = index.explain(QUERY, "only a title")
    assert titled.pseudo_queries
    assert all(one.spans == () for one in titled.pseudo_queries)
    assert titled.passage is None


def test_bad_questions(index: Index) -> None:
    with pytest.raises(QueryError, match="no document with the id 'nobody'"):
        index.explain(QUERY, "nobody")
    with pytest.raises(QueryError, match="the query is empty"):
        index.explain(" ", "plain")
    with pytest.raises(QueryError, match="not valid Unicode"):
        index.explain(QUERY, "\udcff")


@given(
    tokens=st.lists(st.tuples(st.integers(-20, 60), st.integers(0, 12)), max_size=12),
    text=st.text(alphabet="ab \n", max_size=50),
)
def test_joined_spans_cover_the_tokens_and_no_more(
    tokens: list[tuple[int, int]], text: str
) -> None:
    spans = np.array([(start, start + size) for start, size in tokens]).reshape(-1, 2)
    joined = _join_spans(spans, text)
    inside = {position for start, size in tokens for position in range(start, start + size)}
    inside &= set(range(len(text)))
    covered = {position for span in joined for position in range(span.start, span.end)}
    assert inside <= covered
    for position in covered - inside:
        assert text[position].isspace()
        assert {position - 1, position + 1} <= inside
    for one, other in pairwise(joined):
        assert one.end < other.start, "what touches is joined"


# --- in a terminal


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A wide terminal with colours, whose content can be read."""
    shown = io.StringIO()
    made = Console(file=shown, width=400, force_terminal=True, color_system="truecolor")
    monkeypatch.setattr(terminal, "console", made)
    return shown


def styled(screen: io.StringIO, style: str) -> list[str]:
    """Find what is shown in a style, given as the numbers of its escape sequence."""
    return re.findall(rf"\x1b\[{style}m(.*?)\x1b\[0m", screen.getvalue())


LINES = "the king\r\nof the\x07 city\r\nhad a red \x1b[31mhorse"


def test_an_explanation_is_coloured_where_its_words_stand(screen: io.StringIO) -> None:
    def span(words: str) -> Span:
        start = LINES.index(words)
        return Span(start, start + len(words))

    terminal.show_explanation(
        Explanation(
            "q",
            Document("an id", LINES),
            1.25,
            (
                PseudoQuery(0.75, 0.9, (span("king"), span("city"))),
                PseudoQuery(0.25, 0.1, (span("horse"),)),
                PseudoQuery(0.0, 0.0, ()),
            ),
        )
    )
    shown = screen.getvalue()
    assert styled(screen, "30;48;5;40") == ["king", "city"]
    assert styled(screen, "30;46") == ["horse"]
    assert "an id" in shown
    assert "0.750" in shown
    assert "king · city" in shown
    assert "(the document as a whole)" in shown
    assert "score by vectors 1.2500" in shown
    assert shown.count("█") == terminal.BAR


def test_what_a_pseudo_query_is_made_of_is_told_in_whole_words(screen: io.StringIO) -> None:
    text = "An obliging man. According to all."
    stretches = (Span(0, 8), Span(8, 14), Span(15, 21), Span(33, 34))
    parts = tuple(PseudoQuery(0.25, 0.5, (one,)) for one in stretches)
    terminal.show_explanation(Explanation("q", Document("id", text), 1.0, parts))
    lines = re.sub(r"\x1b\[[\d;]*m", "", screen.getvalue()).splitlines()
    told = [line.split(" 0.500 ")[1].strip() for line in lines if " 0.500 " in line]
    assert told == ["An obliging", "obliging man", "According", "."]


def test_an_answer_highlights_the_winning_passage(screen: io.StringIO, index: Index) -> None:
    windows = TEXT.replace(". ", ".\r\n").replace("? ", "?\r\n").replace("\n", "\r\n")
    index.add([Document("windows", windows, "with carriage\rreturns \x1b[2J")])
    passages = {query: index.explain(query, "windows").passage for query in TEXT.split()}
    # One with carriage returns before it.
    query, passage = next((q, one) for q, one in passages.items() if one and one.start)
    answer = index.search(query, where={"id": "windows"})
    terminal.show_answer(index, answer, "dense")
    assert styled(screen, "1;32") == [windows[passage.start : passage.end].strip()]
    assert "Proven exact; 1 document was scored." in screen.getvalue()


@pytest.mark.parametrize("mode", ["dense", "bm25"])
def test_a_document_can_t_command_the_terminal(
    screen: io.StringIO, index: Index, mode: Any
) -> None:
    evil = "moon \x1b]0;title\x07\x1b[2J\x9b2J\x08 [bold]moon[/bold] [/] \u202e"
    index.add([Document("evil\x1b[2J", evil, "evil\x1b[2J\x9b")])
    answer = index.search("moon", 1, where={"id": "evil\x1b[2J"}, mode=mode)
    terminal.show_answer(index, answer, mode)
    terminal.show_explanation(index.explain("moon", "evil\x1b[2J"))
    own = re.sub(r"\x1b\[[\d;]*m", "", screen.getvalue())
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", own)
    assert "[bold]moon[/bold] [/]" in own, "nor is its text taken for markup"


def test_facts_are_shown_as_they_are(screen: io.StringIO) -> None:
    terminal.show_facts({"some_folder": "[bold]folder[/x]", "count": 12345, "nested": {"k": 3}})
    own = re.sub(r"\x1b\[[\d;]*m", "", screen.getvalue())
    assert "some folder  [bold]folder[/x]" in own
    assert "12,345" in own
    assert "k=3" in own


def test_verdicts(screen: io.StringIO, index: Index) -> None:
    answer = index.search(QUERY, 2, settings=SearchSettings(structure="flat", rank_by="vectors"))
    few = index.search(QUERY, 2, settings=SearchSettings(token_depth=3))
    hybrid = replace(few, ranked_by="tokens and words")
    ranked = "Ranked by tokens: the 3 best documents by vectors"
    cases: dict[str, tuple[Answer, str]] = {
        "Proven exact; 4 documents were scored.": (answer, "dense"),
        "Not proven exact": (replace(answer, certified=False), "dense"),
        f"{ranked} (proven); use --exact to rank all documents.": (few, "dense"),
        f"{ranked} (not proven);": (replace(few, candidates_proven=False), "dense"),
        "Ranked by tokens and words: 3 documents, the best by vectors (proven) or by words; use "
        "--exact to rank all documents by tokens.": (hybrid, "hybrid"),
        "Ranked by words alone (BM25).": (answer, "bm25"),
        "Nothing was found.": (replace(answer, hits=()), "hybrid"),
    }
    for sentence, (shown, mode) in cases.items():
        screen.truncate(0)
        terminal.show_answer(index, shown, mode)
        assert sentence in screen.getvalue()
