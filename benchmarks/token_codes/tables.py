"""What is kept of a token, how deep to rank again, and what a question is rounded to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from benchmarks.token_codes import codes
from benchmarks.token_codes.codes import Code, Floats
from benchmarks.token_codes.judged import Judged, Row, inverse_document_frequencies
from benchmarks.token_codes.learning import Training
from benchmarks.token_codes.projection import train_projection

DEPTHS = (20, 50, 100, 200, 500)
DIGITS = (127, 31, 15, 7, 3)
DEPTH = 100


def forms(judged: Judged, training: Training) -> Iterator[Row]:
    """The forms of the product, by how many candidates are ranked again."""
    dim = training.sample.shape[1]
    everything = len(judged.documents)
    candidates = judged.candidates(everything)
    yield judged.row(candidates, tokens="none", bytes=0)
    for code in (codes.float16(dim), codes.int8(dim), codes.plain_signs(dim)):
        digits = 31 if code.name == "signs" else None
        scores = judged.scores(candidates, code, digits=digits)
        for depth in (*(depth for depth in DEPTHS if depth < everything), everything):
            yield judged.row(
                candidates[:, :depth],
                scores[:, :depth],
                tokens=code.name,
                bytes=_document_bytes(judged, code),
                depth="all" if depth == everything else depth,
            )


def question(judged: Judged, training: Training) -> Iterator[Row]:
    """What the question's tokens are rounded to, which take part, and how much each weighs."""
    code = codes.plain_signs(training.sample.shape[1])
    raw = replace(code, question=lambda tokens: tokens)
    candidates = judged.candidates(DEPTH)

    def row(name: str, matches: Floats, weights: Floats | None = None) -> Row:
        return judged.row(candidates, judged.average(matches, weights), question=name)

    yield row("single precision", judged.matches(candidates, code, digits=None))
    for digits in DIGITS:
        matches = judged.matches(candidates, code, digits=digits)
        yield row(f"-{digits}..{digits}", matches)
    yield row("lengths kept, -31..31", judged.matches(candidates, raw))
    plain = judged.matches(candidates, code)
    for name, weights in question_weights(judged, training).items():
        yield row(name, plain, weights * judged.regular_weights)
    everything = np.ones_like(judged.regular_weights)
    special = judged.matches(candidates, code, digits=None)
    yield row("special tokens of the question", special, everything)
    special = judged.matches(candidates, code, digits=None, document_tokens=None)
    yield row("special tokens of the document", special)
    yield row("special tokens of both", special, everything)
    yield row("special tokens of both, lengths kept", special, token_lengths(judged))


def token_lengths(judged: Judged) -> Floats:
    lengths: Floats = np.linalg.norm(judged.questions.encoded.tokens, axis=1)
    return lengths


def question_weights(judged: Judged, training: Training) -> dict[str, Floats]:
    """Weigh the question's tokens by the length of their embeddings or by how rare they are."""
    lengths = token_lengths(judged)
    ids = judged.questions.encoded.ids
    rarity = inverse_document_frequencies(judged.documents)[ids] + 1e-6
    elsewhere = training.rarity[ids]
    return {
        "lengths kept": lengths,
        "lengths squared": lengths**2,
        "lengths to the third power": lengths**3,
        "weights: rarity": rarity,
        "weights: square root of rarity": np.sqrt(rarity),
        "weights: 2 + rarity": 2 + rarity,
        "weights: 4 + rarity": 4 + rarity,
        "weights: 8 + rarity": 8 + rarity,
        "weights: 2 + rarity elsewhere": 2 + elsewhere,
        "weights: 4 + rarity elsewhere": 4 + elsewhere,
        "weights: 8 + rarity elsewhere": 8 + elsewhere,
        "lengths kept, times 8 + rarity": lengths * (8 + rarity),
    }


def bits(judged: Judged, training: Training) -> Iterator[Row]:
    """Other uses of the same bytes, of fewer, and of twice as many."""
    candidates = judged.candidates(DEPTH)
    for code in codes_to_compare(training.sample):
        yield judged.row(
            candidates,
            judged.scores(candidates, code, digits=None if code.step is None else 127),
            code=code.name,
            bytes_a_token=code.bytes,
            bytes=_document_bytes(judged, code),
        )


def trained(judged: Judged, training: Training) -> Iterator[Row]:
    """Signs after a projection that was trained for them, on the embeddings as they are."""
    dim = training.sample.shape[1]
    candidates = judged.candidates(DEPTH)
    for count in (dim // 3, dim // 2, dim):
        code = train_projection(training, count)
        yield judged.row(
            candidates,
            judged.scores(candidates, code, digits=127),
            code=code.name,
            bytes_a_token=code.bytes,
            bytes=_document_bytes(judged, code),
        )


def codes_to_compare(sample: Floats) -> Iterator[Code]:
    dim = sample.shape[1]
    unit, mean = codes.normalise(sample), sample.mean(0)
    plain = codes.plain_signs(dim)
    centred = codes.centred(plain, mean)
    yield codes.float16(dim)
    yield codes.float16_with_lengths(dim)
    yield codes.int8(dim)
    yield codes.few_levels(sample, 2)
    yield plain
    for power in (1, 0.5, -0.5, -1):
        yield codes.with_magnitudes(plain, sample, power)
    yield codes.with_decoder(plain, sample)
    yield centred
    yield codes.with_magnitudes(centred, sample)
    yield codes.projected(plain, codes.random_rotation(dim), "random rotation, signs")
    rotation = codes.balanced_rotation(unit)
    yield codes.projected(plain, rotation, "learnt rotation, signs")
    for share in (3, 2, 1.5):
        count = int(dim / share)
        axes = codes.principal_axes(sample, count)
        rotated = axes @ codes.random_rotation(count)
        signs = codes.projected(plain, axes, f"{count} axes, signs")
        yield signs
        yield codes.with_magnitudes(signs, sample)
        yield codes.with_magnitudes(signs, sample, -0.5)
        yield codes.projected(plain, rotated, f"{count} axes, random rotation, signs")
        learnt = axes @ codes.balanced_rotation(unit @ axes)
        yield codes.projected(plain, learnt, f"{count} axes, learnt rotation, signs")
        yield codes.in_levels(sample, axes, 2, f"{count} axes, 2 bits")
    axes = codes.principal_axes(sample, dim // 3)
    yield codes.projected(codes.float16(dim), axes, f"{dim // 3} axes, float16")
    some = codes.random_rotation(dim)[:, : dim // 3]
    yield codes.projected(plain, some, f"{dim // 3} random axes, signs")


def _document_bytes(judged: Judged, code: Code) -> int:
    return round(judged.tokens_a_document() * code.bytes)
