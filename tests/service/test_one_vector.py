"""Each document as one vector: the mean of its pseudo queries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import MultiVectorEncoder

from pseudoquery.encoding.encode import encode_queries
from pseudoquery.encoding.model import load_model
from pseudoquery.index import Index
from pseudoquery.method.presets import preset
from pseudoquery.records import Document
from pseudoquery.service.one_vector import search_one_vector
from pseudoquery.storage.store import folder_store

QUERY = "who was the king of the city"


def slow_ranking(index: Index, query: str) -> list[tuple[str, float]]:
    """The obvious way: one document at a time."""
    (asked,) = encode_queries(index.model, [query])
    scored = []
    with folder_store(index.store).snapshot() as snapshot:
        view = snapshot.view
        for place, ordinal in enumerate(view.ordinals.tolist()):
            own = view.vectors(view.offsets[place], view.offsets[place + 1]).astype(np.float64)
            if view.live[place] and len(own):
                mean = own.mean(axis=0)
                if index.representation.normalise:
                    mean /= np.linalg.norm(mean)
                score = float(mean @ asked.mean(axis=0).astype(np.float64))
                scored.append((snapshot.by_ordinal(ordinal).document.id, score))
    return sorted(scored, key=lambda one: -one[1])


@pytest.mark.parametrize("block", [1, 7, 256])
def test_ranks_as_one_document_at_a_time_does(
    served: Index, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pseudoquery.service.one_vector.BLOCK_DOCUMENTS", block)
    served.add([Document("nothing", ""), Document("id 2", "another text")])
    served.delete(["id 5", "id 6"])
    expected = slow_ranking(served, QUERY)
    answer = search_one_vector(served, QUERY, 100)
    assert [hit.id for hit in answer.hits] == [id_ for id_, _ in expected]
    assert [hit.score for hit in answer.hits] == pytest.approx([score for _, score in expected])
    assert answer.certified
    assert answer.candidates == len(expected) == 28
    assert search_one_vector(served, QUERY, 3).hits == answer.hits[:3]
    for hit in answer.hits:
        assert served.get(hit.id) == Document(hit.id, hit.text, hit.title, hit.metadata)


@pytest.mark.parametrize("name", ["paper-passage", "late-interaction", "single-vector"])
def test_any_representation_can_be_compared(
    name: str, tmp_path: Path, tiny_model_path: str
) -> None:
    model: MultiVectorEncoder = load_model(tiny_model_path, preset(name), device="cpu")
    index = Index.create(tmp_path / "index", model=model)
    index.add([Document(str(n), text) for n, text in enumerate(("red sun", "old king", "war"))])
    expected = slow_ranking(index, QUERY)
    answer = search_one_vector(index, QUERY, 10)
    assert [hit.id for hit in answer.hits] == [id_ for id_, _ in expected]
    assert [hit.score for hit in answer.hits] == pytest.approx([score for _, score in expected])


def test_equal_scores_go_to_the_document_that_was_added_first(served: Index) -> None:
    served.add([Document(name, "moon over the river") for name in ("z", "a", "m")])
    hits = search_one_vector(served, "moon over the river", 3).hits
    assert [hit.id for hit in hits] == ["z", "a", "m"]


def test_an_empty_index(tmp_path: Path, tiny_model: MultiVectorEncoder) -> None:
    answer = search_one_vector(Index.create(tmp_path / "empty", model=tiny_model), QUERY, 10)
    assert (answer.hits, answer.candidates) == ((), 0)
