"""Hard negatives: documents that are ranked high for a query, and are wrong.

The first ones can come from BM25, and later ones from the model in training, which thus learns from
what it would get wrong now (ANCE).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

from pseudoquery.errors import CorpusError
from pseudoquery.evaluation.answer_match import contains_answer
from pseudoquery.files import write_atomically
from pseudoquery.training.examples import Example, TrainingSet, read_lines

Negatives = Mapping[str, Sequence[str]]
"""For each query's key, the ids of documents that look right and are wrong."""


def select_hard_negatives(
    example: Example, ranked: Iterable[str], texts: Mapping[str, str], most: int
) -> list[str]:
    """Select the best-ranked documents that are not known to be right, nor contain the answer."""
    negatives: list[str] = []
    for document in ranked:
        if len(negatives) == most:
            break
        if document in example.positives:
            continue
        if example.answers and contains_answer(texts[document], example.answers):
            continue
        negatives.append(document)
    return negatives


def write_negatives(negatives: Negatives, path: Path) -> None:
    """Write negatives so that a reader sees all of them or none."""
    lines = (json.dumps({"query": key, "negatives": list(ids)}) for key, ids in negatives.items())
    write_atomically(path, "".join(f"{line}\n" for line in lines).encode())


def read_negatives(path: Path) -> Negatives:
    """Read what `write_negatives` wrote."""
    negatives = {}
    for number, line in enumerate(read_lines(path), start=1):
        try:
            row = json.loads(line)
            negatives[str(row["query"])] = [str(document) for document in row["negatives"]]
        except (ValueError, KeyError, TypeError) as error:
            raise CorpusError(
                f'{path} line {number}: expected {{"query": id, "negatives": [ids]}}.'
            ) from error
    return negatives


def draw_negatives(
    examples: Sequence[Example],
    mined: Sequence[Sequence[str]],
    count: int,
    training_set: TrainingSet,
    seed: str,
) -> list[str]:
    """Choose `count` negatives for queries with the same positive, always the same for a seed.

    The queries take turns. Where too few negatives were mined, random documents fill the gap.
    """
    chance = random.Random(f"{seed} {training_set.name} {examples[0].query_id}")  # noqa: S311
    right = {document for example in examples for document in example.positives}
    wrong = [
        [document for document in ids if document in training_set.texts and document not in right]
        for ids in mined
    ]
    turns = [chance.sample(ids, min(count, len(ids))) for ids in wrong if ids]
    chance.shuffle(turns)
    distinct = dict.fromkeys(
        document for turn in zip_longest(*turns) for document in turn if document is not None
    )
    drawn = list(distinct)[:count]
    while len(drawn) < count:
        document = chance.choice(training_set.ids)
        if document not in right or len(training_set.ids) <= len(right):
            drawn.append(document)
    return drawn
