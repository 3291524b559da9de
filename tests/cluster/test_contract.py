"""What every store of an index promises, written once and tried on each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sentence_transformers import MultiVectorEncoder

from pseudoquery.encoding.encode import encode_queries
from pseudoquery.encoding.model import load_model
from pseudoquery.errors import PseudoqueryError
from pseudoquery.index import Index
from pseudoquery.method.presets import preset
from pseudoquery.method.representation import Representation
from pseudoquery.records import Document
from pseudoquery.search.settings import SearchSettings
from tests.cluster.conftest import Make
from tests.support.collection import DOCUMENTS, WORDS

QUERIES = ["the river and the king", "who saw the moon", "war peace", *WORDS[:12]]
NASTY = ['"', "\\", "\\\"' or 1 == 1 or '", "a\nb\tc", "é", "日本", "{x}", "%", "[0]", "\x01", " "]


@pytest.fixture(scope="session")
def index(make: Make, tiny_model: MultiVectorEncoder) -> Index:
    """An index of all documents that many tests ask; not to be changed."""
    return filled(make, tiny_model)


@pytest.fixture
def changing(make: Make, tiny_model: MultiVectorEncoder) -> Index:
    """An index of all documents, to be changed."""
    return filled(make, tiny_model)


def filled(make: Make, model: MultiVectorEncoder) -> Index:
    made = make(model=model, vector_type="float32", tokens="none")
    made.add(DOCUMENTS)
    return made


def brute_force(
    index: Index, query: str, documents: Sequence[Document] = DOCUMENTS
) -> list[tuple[str, float]]:
    """Score every document by the paper's formula, written out; best first, ties in order."""
    settings = index.representation
    asked = encode_queries(index.model, [query])[0].astype(np.float64)
    scored = []
    for document, vectors in zip(documents, encoded(index, documents), strict=True):
        total = 0.0
        for query_vector in asked:
            dots = [settings.scale * float(query_vector @ vector) for vector in vectors]
            if settings.score == "max":
                total += max(dots)
                continue
            weights = np.exp(np.array(dots) - max(dots))
            total += float(weights @ np.array(dots) / weights.sum())
        scored.append((document.id, total))
    return sorted(scored, key=lambda pair: -pair[1])


_encoded: dict[tuple[str, ...], list[NDArray[np.float32]]] = {}


def encoded(index: Index, documents: Sequence[Document]) -> list[NDArray[np.float32]]:
    """Encode documents, the same ones only once."""
    key = (
        index.settings.fingerprint,
        *(f"{document.id} {document.text}" for document in documents),
    )
    if key not in _encoded:
        _encoded[key] = [document.vectors for document in index.encode(documents)]
    return _encoded[key]


def same(found: Sequence[tuple[str, float]], wanted: Sequence[tuple[str, float]]) -> None:
    assert [id_ for id_, _ in found] == [id_ for id_, _ in wanted]
    assert [score for _, score in found] == pytest.approx([score for _, score in wanted], rel=1e-5)


def pairs(index: Index, query: str, top: int = 10, **how: Any) -> list[tuple[str, float]]:
    return [(hit.id, hit.score) for hit in index.search(query, top, **how).hits]


@pytest.mark.parametrize("top", [1, 7, 100])
def test_parity_with_brute_force(index: Index, top: int) -> None:
    answers = index.search_many(QUERIES, top, exact=True)
    for query, answer in zip(QUERIES, answers, strict=True):
        assert answer.certified
        same([(hit.id, hit.score) for hit in answer.hits], brute_force(index, query)[:top])


@pytest.mark.parametrize(
    "representation",
    [
        preset("late-interaction"),
        preset("paper-passage"),
        Representation(k=3, append="cls", score="max"),
    ],
)
def test_parity_of_other_representations(
    make: Make, tiny_model_path: str, representation: Representation
) -> None:
    model = load_model(tiny_model_path, representation, device="cpu")
    index = make(model=model, vector_type="float32", tokens="none")
    index.add(DOCUMENTS)
    for query in QUERIES[:4]:
        same(pairs(index, query, 5, exact=True), brute_force(index, query)[:5])


@pytest.mark.parametrize("recall", [1, 4, 12])
def test_a_certified_answer_is_the_exact_one(index: Index, recall: int) -> None:
    for settings in (SearchSettings(recall=recall), SearchSettings(recall_vectors=2 * recall)):
        answers = index.search_many(QUERIES, 2, settings=settings)
        for query, answer in zip(QUERIES, answers, strict=True):
            assert answer.candidates >= len(answer.hits)
            if answer.certified:
                found = [(hit.id, hit.score) for hit in answer.hits]
                same(found, brute_force(index, query)[:2])


def test_hits_say_what_each_vector_weighs(index: Index) -> None:
    hit = index.search("the river", 1).hits[0]
    document = next(document for document in DOCUMENTS if document.id == hit.id)
    assert len(hit.weights) == len(encoded(index, [document])[0])
    assert sum(hit.weights) == pytest.approx(1)


def test_documents_come_back_as_they_went_in(index: Index) -> None:
    assert len(index) == len(DOCUMENTS)
    assert list(index.documents()) == DOCUMENTS
    for document in DOCUMENTS[:3]:
        assert index.get(document.id) == document
    assert index.get("nobody") is None
    hit = index.search("the river", 1).hits[0]
    found = index.get(hit.id)
    assert found
    assert (hit.title, hit.text, hit.metadata) == (found.title, found.text, found.metadata)


def test_updates(changing: Index) -> None:
    first = DOCUMENTS[0]
    changed = replace(first, text="a bridge over the winter garden", metadata={"n": 100})
    added = changing.add([first, changed, Document("new", "the castle")])
    assert (added.added, added.updated, added.unchanged) == (1, 1, 1)
    assert len(changing) == len(DOCUMENTS) + 1
    assert changing.get(first.id) == changed
    documents = [*DOCUMENTS[1:], changed, Document("new", "the castle")]
    assert list(changing.documents()) == documents
    for query in (changed.text, "the castle", *QUERIES[:3]):
        same(pairs(changing, query, 50, exact=True), brute_force(changing, query, documents))
    assert [document.id for document in changing.documents({"n": 100})] == [first.id]
    assert not list(changing.documents({"n": 0}))


def test_deletes(changing: Index) -> None:
    gone = [document.id for document in DOCUMENTS[::2]]
    assert changing.delete([*gone, "nobody"]) == gone
    assert changing.delete(gone) == []
    assert len(changing) == len(DOCUMENTS) - len(gone)
    for query in QUERIES[:3]:
        same(pairs(changing, query, 50, exact=True), brute_force(changing, query, DOCUMENTS[1::2]))
    changing.add([DOCUMENTS[0]])
    assert changing.get(DOCUMENTS[0].id) == DOCUMENTS[0]
    changing.compact()
    assert list(changing.documents()) == [*DOCUMENTS[1::2], DOCUMENTS[0]]


FILTERS: list[tuple[dict[str, Any], Callable[[Document], bool]]] = [
    ({"n": 3}, lambda document: document.metadata["n"] == 3),
    ({"n": [3, 4.0, "5"]}, lambda document: document.metadata["n"] in (3, 4)),
    ({"n": {">=": 5, "<": 9}}, lambda document: 5 <= document.metadata["n"] < 9),
    ({"n": {">": 5.5}}, lambda document: document.metadata["n"] > 5.5),
    ({"n": {"!=": 3}}, lambda document: document.metadata["n"] != 3),
    ({"even": True}, lambda document: document.metadata["even"]),
    ({"even": 1}, lambda document: False),
    ({"even": {"!=": True}, "n": {"<=": 6}}, lambda document: document.metadata["n"] in (1, 3, 5)),
    ({"tags": "all"}, lambda document: True),
    (
        {"tags": ["king", "queen"]},
        lambda document: document.metadata["tags"][0] in ("king", "queen"),
    ),
    ({"tags": {"<": "b"}}, lambda document: True),
    ({"tags": {">=": "t"}}, lambda document: document.metadata["tags"][0] >= "t"),
    ({"missing": 1}, lambda document: False),
    ({"missing": {"!=": 1}}, lambda document: True),
    ({"missing": None}, lambda document: False),
    ({"id": ["id 3", "id 4", "nobody"]}, lambda document: document.id in ("id 3", "id 4")),
    ({"id": {"!=": "id 3"}}, lambda document: document.id != "id 3"),
    ({"id": {">=": "id 28"}}, lambda document: document.id >= "id 28"),
    ({"n": []}, lambda document: False),
    ({"id": []}, lambda document: False),
    ({"n": {"<": float("inf")}}, lambda document: True),
]


@pytest.mark.parametrize(("where", "holds"), FILTERS, ids=[str(where) for where, _ in FILTERS])
def test_filters(index: Index, where: dict[str, Any], holds: Callable[[Document], bool]) -> None:
    wanted = [document for document in DOCUMENTS if holds(document)]
    assert list(index.documents(where)) == wanted
    answer = index.search("the king", 5, where=where, exact=True)
    assert answer.certified
    expected = brute_force(index, "the king", wanted)[:5]
    same([(hit.id, hit.score) for hit in answer.hits], expected)
    few = SearchSettings(recall=2)
    found = index.search("the king", 2, where=where, settings=few)
    assert len(found.hits) == min(2, len(wanted))
    assert {hit.id for hit in found.hits} <= {document.id for document in wanted}


def test_nothing_in_a_name_or_value_is_taken_for_an_expression(
    make: Make, tiny_model: MultiVectorEncoder
) -> None:
    index = make(model=tiny_model)
    documents = [Document(text, "the king", text, {text: text, "all": text}) for text in NASTY]
    index.add(documents)
    assert list(index.documents()) == documents
    for document in documents:
        text = document.id
        assert index.get(text) == document
        for where in ({text: text}, {"all": text}, {"id": text}):
            assert list(index.documents(where)) == [document]
            assert [hit.id for hit in index.search("king", where=where).hits] == [text]
    assert sorted(index.delete(NASTY[:3])) == sorted(NASTY[:3])
    assert list(index.documents()) == documents[3:]


def test_an_empty_index(make: Make, tiny_model: MultiVectorEncoder) -> None:
    index = make(model=tiny_model)
    for exact in (False, True):
        answer = index.search("the river", exact=exact)
        assert (answer.hits, answer.certified, answer.candidates) == ((), True, 0)
    assert (len(index), list(index.documents()), index.delete(["a"])) == (0, [], [])
    assert index.search_many([]) == []


def test_a_document_without_text_is_kept_and_never_found(
    make: Make, tiny_model: MultiVectorEncoder
) -> None:
    index = make(model=tiny_model)
    empty, full = Document("empty", "", metadata={"n": 1}), Document("full", "the river")
    index.add([empty, full])
    assert list(index.documents()) == [empty, full]
    for exact in (False, True):
        answer = index.search("the river", exact=exact)
        assert [hit.id for hit in answer.hits] == ["full"]
        assert answer.certified


def test_ties_go_to_the_document_that_was_added_first(
    make: Make, tiny_model: MultiVectorEncoder
) -> None:
    index = make(model=tiny_model)
    names = ["z", "b", "y", "a", "x", "c"]
    for name in names:
        index.add([Document(name, "the river and the sun")])
    index.add([Document("y", "the river and the sun", "")])  # unchanged: it keeps its place
    for exact in (False, True):
        for top in (3, 6):
            answer = index.search("the moon", top, exact=exact)
            assert [hit.id for hit in answer.hits] == names[:top]
            assert len({hit.score for hit in answer.hits}) == 1


def test_long_texts_are_kept_whole(make: Make, tiny_model: MultiVectorEncoder) -> None:
    index = make(model=tiny_model)
    text = "日本 " + "the river and the king; " * 5000
    document = Document("long", text, "title", {"about": "water", "all": text})
    index.add_vectors([document], index.encode([Document("long", "the river")]))
    assert index.get("long") == document
    for where in ({"about": "water"}, {"all": text}, {"all": {">": text[:-1]}}):
        assert list(index.documents(where)) == [document]
    for where in ({"all": text[:-1]}, {"all": {">": text}}):
        assert not list(index.documents(where))
    assert index.search("river", exact=True).hits[0].text == text


def test_rankings_without_documents(index: Index) -> None:
    for query, ranking in zip(QUERIES, index.rank_many(QUERIES, 5, exact=True), strict=True):
        same(ranking, brute_force(index, query)[:5])


def test_explanations(index: Index) -> None:
    explained = index.explain("the river", "id 3")
    assert explained.document == DOCUMENTS[3]
    assert sum(pseudo_query.weight for pseudo_query in explained.pseudo_queries) == pytest.approx(1)
    with pytest.raises(PseudoqueryError, match="no document with the id 'nobody'"):
        index.explain("the river", "nobody")


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"query": " "}, "the query is empty"),
        ({"query": "a", "top": 0}, "top is 0"),
        ({"query": "a", "where": {"n": {"~": 1}}}, "uses '~'"),
        ({"query": "a", "where": {"n": object()}}, "compares with <object"),
        ({"query": "a", "mode": "words"}, "no mode 'words'"),
        ({"query": "a", "settings": SearchSettings(recall=0)}, "recall is 0"),
    ],
)
def test_bad_questions_get_a_sentence(index: Index, wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PseudoqueryError, match=sentence):
        index.search(**wrong)


def test_vectors_of_another_shape_are_refused(index: Index) -> None:
    with pytest.raises(PseudoqueryError, match=r"have the shape \(2, 5\)"):
        index.add_vectors([Document("a", "text")], [np.ones((2, 5), dtype=np.float32)])
    assert list(index.documents()) == DOCUMENTS
