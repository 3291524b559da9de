"""Train a projection for signs: the encoder stays as it is, two small matrices are learnt.

Questions of the training collections should score their documents above others by MaxSim over the
signs of projected tokens. The gradient passes the signs as if they were a soft threshold.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from benchmarks.token_codes.codes import Code, normalise, principal_axes, signs
from benchmarks.token_codes.judged import Judged
from benchmarks.token_codes.learning import Training
from benchmarks.token_codes.ranking import Positions

STEPS = 900
QUESTIONS_A_STEP = 8
NEGATIVES = 7
"""for each question, of its first candidates"""
CANDIDATES = 50
LEARNING_RATE = 1e-3
TEMPERATURE = 30.0


@cache
def train_projection(training: Training, count: int, seed: int = 0) -> Code:
    """Learn a projection to `count` numbers, of which documents keep the signs."""
    generator = np.random.default_rng(seed)
    axes = torch.from_numpy(principal_axes(training.sample, count))
    document, question = (torch.nn.Parameter(axes.clone()) for _ in range(2))
    temperature = torch.nn.Parameter(torch.tensor(TEMPERATURE).log())
    optimiser = torch.optim.Adam([document, question, temperature], LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.05, STEPS)
    sets = [
        Judged(collection, collection.splits[0], training.questions)
        for collection in training.collections
    ]
    candidates = [judged.candidates(CANDIDATES) for judged in sets]
    for step in range(STEPS):
        chosen = step % len(sets)
        loss = _loss(sets[chosen], candidates[chosen], document, question, generator, temperature)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
    of_documents, of_questions = (part.detach().numpy() for part in (document, question))
    return Code(
        f"{count} trained axes, signs",
        count / 8,
        lambda tokens: signs(normalise(tokens) @ of_documents),
        lambda tokens: normalise(tokens) @ of_questions,
        count**-0.5,
    )


def _loss(
    judged: Judged,
    candidates: Positions,
    document: Tensor,
    question: Tensor,
    generator: np.random.Generator,
    temperature: Tensor,
) -> Tensor:
    """Tell each question's document from all others of the batch."""
    count = len(judged.questions.texts)
    asked = generator.choice(count, min(QUESTIONS_A_STEP, count), replace=False)
    positions: list[int] = []
    for row in asked:
        relevant = judged.questions.relevant[row]
        others = [hit for hit in candidates[row].tolist() if hit not in relevant]
        positions.append(int(generator.choice(sorted(relevant))))
        positions += generator.choice(others, min(NEGATIVES, len(others)), replace=False).tolist()
    shown = list(dict.fromkeys(positions))
    scores = torch.stack(
        [_scores(judged, asked, position, document, question) for position in shown], dim=1
    )
    scores = scores * temperature.exp()
    targets = []
    for row, number in enumerate(asked):
        relevant = judged.questions.relevant[number]
        answers = [place for place, position in enumerate(shown) if position in relevant]
        targets.append(answers[0])
        for place in answers[1:]:
            scores[row, place] = -torch.inf
    return cross_entropy(scores, torch.tensor(targets))


def _scores(
    judged: Judged, asked: NDArray[np.int64], position: int, document: Tensor, question: Tensor
) -> Tensor:
    """Score one document for some questions by the signs of its projected tokens."""
    rows = judged.documents.rows(position)
    kept = judged.regular[rows]
    tokens = torch.from_numpy(np.asarray(judged.documents.tokens[rows], np.float32)[kept])
    codes = straight_through(normalize(tokens, dim=1) @ document)
    encoded = judged.questions.encoded
    lines = [np.flatnonzero(~encoded.special[encoded.rows(row)]) for row in asked]
    numbers = torch.from_numpy(
        np.concatenate(
            [
                encoded.tokens[encoded.rows(row)][line]
                for row, line in zip(asked, lines, strict=True)
            ]
        )
    )
    best = (normalize(numbers, dim=1) @ question @ codes.T).amax(dim=1) / codes.shape[1] ** 0.5
    return torch.stack([part.mean() for part in best.split([len(line) for line in lines])])


def straight_through(numbers: Tensor) -> Tensor:
    """Signs, with the gradient of a soft threshold as wide as the numbers are."""
    soft = torch.tanh(numbers / numbers.detach().abs().mean(dim=0).clamp(min=1e-6))
    hard = torch.where(numbers < 0, -1.0, 1.0)
    return hard + soft - soft.detach()
