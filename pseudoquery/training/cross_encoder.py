"""Scores of a cross-encoder, which reads a query and a document together, as a teacher's scores.

It is far too slow to score a batch while a training waits. So it scores what a training will meet,
each query with its right documents and with its hard negatives, once and into a file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from sentence_transformers import CrossEncoder

from pseudoquery.errors import ModelError
from pseudoquery.files import write_atomically
from pseudoquery.training.examples import TrainingSet, query_key
from pseudoquery.training.negatives import Negatives
from pseudoquery.training.teacher import Scores

PAIRS_AT_ONCE = 32


def load_cross_encoder(name: str) -> CrossEncoder:
    """Load a cross-encoder of sentence-transformers: a folder, or an id on the Hub."""
    try:
        model: CrossEncoder = CrossEncoder(name)
    except (AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
        reason = re.split(r"\.?\n|\. |\.$", str(error).strip())[0]
        raise ModelError(
            f"the cross-encoder {name!r} can't be loaded ({reason}); give a folder with a "
            "cross-encoder of sentence-transformers or the id of one on the Hub."
        ) from error
    if model.num_labels != 1:
        raise ModelError(
            f"the cross-encoder {name!r} gives {model.num_labels} numbers for a pair; one that "
            "ranks gives one."
        )
    return model


def score_pairs(model: CrossEncoder, training_set: TrainingSet, negatives: Negatives) -> Scores:
    """Score each query with the documents that answer it, and with its negatives.

    A document is read as far as the cross-encoder reads, often 512 tokens.
    """
    keys, documents, pairs = [], [], []
    for example in training_set.examples:
        key = query_key(training_set, example)
        wrong = [id_ for id_ in negatives.get(key, ()) if id_ in training_set.texts]
        for id_ in dict.fromkeys([*example.positives, *wrong]):
            keys.append(key)
            documents.append(id_)
            pairs.append((example.query, training_set.texts[id_]))
    values = model.predict(pairs, batch_size=PAIRS_AT_ONCE, show_progress_bar=False)
    scores: dict[str, dict[str, float]] = {}
    for key, id_, value in zip(keys, documents, values.tolist(), strict=True):
        scores.setdefault(key, {})[id_] = value
    return scores


def write_scores(scores: Mapping[str, Mapping[str, float]], path: Path) -> None:
    """Write scores as `teacher.read_scores` reads them; a reader sees all of them or none."""
    lines = (json.dumps({"query": key, "scores": dict(row)}) for key, row in scores.items())
    write_atomically(path, "".join(f"{line}\n" for line in lines).encode())
