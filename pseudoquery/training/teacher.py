"""A teacher, whose scores a model learns from besides judgements: another model, or a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import MultiVectorEncoder
from torch import Tensor

from pseudoquery.encoding.model import representation_of
from pseudoquery.errors import CorpusError
from pseudoquery.training.distributed import gather_padded
from pseudoquery.training.examples import read_lines
from pseudoquery.training.score_pairs import TASKS, embed_features, score_all

Scores = Mapping[str, Mapping[str, float]]
"""For each query's key, the teacher's scores of some documents."""


def read_scores(path: Path) -> Scores:
    """Read a teacher's scores: {"query": id, "scores": {document id: score}} a line."""
    scores = {}
    for number, line in enumerate(read_lines(path), start=1):
        try:
            row = json.loads(line)
            scores[str(row["query"])] = {
                str(document): float(score) for document, score in row["scores"].items()
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorpusError(
                f'{path} line {number}: expected {{"query": id, "scores": {{id: number}}}}.'
            ) from error
    return scores


class Teacher:
    """A model that scores the documents of a batch, for another one to learn from."""

    def __init__(self, model: MultiVectorEncoder, precision: torch.dtype = torch.float32) -> None:
        self.model = model.eval().requires_grad_(requires_grad=False)
        self.settings = representation_of(model)
        self.precision = precision
        """What its encoder computes in; the trainer sets this for the model in training only."""

    def scores(self, features: Sequence[Mapping[str, Any]], texts_at_once: int) -> Tensor:
        """Score every pair, from the features of both: (queries, documents of all processes)."""
        device = features[0]["input_ids"].device
        self.model.to(device)
        mixed = self.precision != torch.float32
        with torch.inference_mode():
            with torch.autocast(device.type, self.precision if mixed else None, enabled=mixed):
                queries, documents = (
                    embed_features(self.model, texts, task, texts_at_once)
                    for texts, task in zip(features, TASKS, strict=True)
                )
            documents = gather_padded(*documents)
            scores = score_all(queries, documents, self.settings)
        return scores.clone()  # a tensor made in inference mode can't be used in training
