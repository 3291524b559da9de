"""Hard negatives: documents that are ranked high for a query, and are wrong.

The first ones can come from BM25; later ones from the model in training, by its own vectors and its
own score, so that it learns from what it would get wrong now (ANCE).
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
    """Keep the best-ranked documents that are neither known to be right nor contain the answer."""
    kept: list[str] = []
    for document in ranked:
        if len(kept) == most:
            break
        if document in example.positives:
            continue
        if example.answers and contains_answer(texts[document], example.answers):
            continue
        kept.append(document)
    return kept


def write_negatives(negatives: Negatives, path: Path) -> None:
    """Write negatives so that a reader sees all of them or none."""
    lines = (
        json.dumps({"query": query, "negatives": list(own)}) for query, own in negatives.items()
    )
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
    lesson: TrainingSet,
    seed: str,
) -> list[str]:
    """Choose `count` negatives for queries with the same positive, always the same for a seed.

    The queries take turns. Where too few negatives were mined, random documents take their place.
    """
    chance = random.Random(f"{seed} {lesson.name} {examples[0].query_id}")  # noqa: S311
    right = {document for example in examples for document in example.positives}
    usable = [[one for one in own if one in lesson.texts and one not in right] for own in mined]
    turns = [chance.sample(own, min(count, len(own))) for own in usable if own]
    chance.shuffle(turns)
    taken = dict.fromkeys(one for turn in zip_longest(*turns) for one in turn if one is not None)
    drawn = list(taken)[:count]
    while len(drawn) < count:
        document = chance.choice(lesson.ids)
        if document not in right or len(lesson.ids) <= len(right):
            drawn.append(document)
    return drawn
