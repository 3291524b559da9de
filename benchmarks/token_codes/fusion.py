"""Fuse the token score with the first step's and with BM25, over the best of both rankings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.token_codes import codes
from benchmarks.token_codes.codes import Floats
from benchmarks.token_codes.judged import Judged, Row
from benchmarks.token_codes.ranking import Positions, best, measure, rank_again, stretch
from pseudoquery.encoding.pooling import pooling_of

WEIGHTS = (0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
"""of the dense score, beside BM25"""
SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
"""of the first step in the dense score, beside the tokens"""
DEPTHS = (100, 50, 200)
RRF_CONSTANT = 60


@dataclass(frozen=True, slots=True)
class Scored:
    """The candidates of both rankings, with three scores; not a number where there is none."""

    judged: Judged
    candidates: Positions
    """(questions, both depths): -1 where a document is in both rankings"""
    tokens: Floats
    """means of cosines"""
    first: Floats
    """the softmax score without its scale: a weighted mean of cosines"""
    words: Floats
    """BM25"""
    listed: Floats
    """BM25's scores of its best alone, 0 for others"""

    def dense(self, share: float) -> Floats:
        """Mix the token score with the first step's; both are cosines."""
        return (np.float32(1 - share) * self.tokens + np.float32(share) * self.first).astype(
            np.float32
        )

    def judge(self, scores: Floats) -> float:
        """Rank by scores, and judge; a score of no document is never best."""
        known = np.where(self.candidates < 0, -np.inf, scores).astype(np.float32)
        ranked = rank_again(self.candidates, known)
        return measure(self.judged.name, ranked, self.judged.questions.relevant)


def weights(all_judged: Sequence[Judged]) -> Iterator[Row]:
    """Every way to fuse, judged on every collection, and the average."""
    for depth in DEPTHS:
        scored = [score_both(judged, depth) for judged in all_judged]
        by_setting: dict[tuple[tuple[str, object], ...], Row] = {}
        typical = {share: Typical.of(scored, share) for share in SHARES}
        for part in scored:
            for setting, scores in fuse(part, typical):
                row = by_setting.setdefault(tuple(setting.items()), {"depth": depth, **setting})
                row[part.judged.name] = part.judge(scores)
        for row in by_setting.values():
            mean = np.mean([row[judged.name] for judged in all_judged])
            yield {**row, "mean": round(float(mean), 2)}
        yield {
            "depth": depth,
            "typical scores": {
                str(share): [round(scale.low, 4), round(scale.high, 4), round(scale.words, 2)]
                for share, scale in typical.items()
            },
        }


def score_both(judged: Judged, depth: int) -> Scored:
    """Take the best of both rankings, and score them in all ways."""
    dense, words = judged.candidates(depth), best(judged.words, depth)
    matching = np.take_along_axis(judged.words, words, axis=1) > 0
    repeated = (words[:, :, None] == dense[:, None, :]).any(axis=2)
    candidates = np.concatenate([dense, np.where(matching & ~repeated, words, -1)], axis=1)
    tokens = judged.scores(candidates, codes.plain_signs(judged.documents.tokens.shape[1]))
    missing = (candidates < 0) | np.isneginf(tokens)

    def look_up(scores: Floats) -> Floats:
        values = np.take_along_axis(scores, candidates, axis=1)
        return np.where(missing, np.float32(np.nan), values)

    by_words = look_up(judged.words)
    least = np.take_along_axis(judged.words, words[:, -1:], axis=1)
    scale = pooling_of(judged.collection.model).representation.scale
    return Scored(
        judged,
        np.where(missing, -1, candidates),
        np.where(missing, np.float32(np.nan), tokens),
        look_up(judged.first) / np.float32(scale),
        by_words,
        np.where(by_words >= least, by_words, np.float32(0)),
    )


@dataclass(frozen=True, slots=True)
class Typical:
    """What scores are on average over questions: scales that are the same for all questions."""

    low: float
    """the dense score of a question's worst candidate"""
    high: float
    """the dense score of its best"""
    words: float
    """the highest BM25 score"""

    @classmethod
    def of(cls, scored: Sequence[Scored], share: float) -> Typical:
        """Average over the questions of each collection, then over collections."""
        dense = [part.dense(share) for part in scored]
        return cls(
            float(np.mean([np.nanmin(part, axis=1).mean() for part in dense])),
            float(np.mean([np.nanmax(part, axis=1).mean() for part in dense])),
            float(np.mean([np.nanmax(part.words, axis=1).mean() for part in scored])),
        )


def fuse(scored: Scored, typical: Mapping[float, Typical]) -> Iterator[tuple[Row, Floats]]:
    """Yield each way to fuse with its scores (questions, candidates)."""
    yield {"scores": "first step"}, scored.first
    yield {"scores": "BM25"}, scored.words
    ranks = reciprocal_ranks(scored.tokens) + reciprocal_ranks(scored.words)
    yield {"scores": "tokens, BM25", "scaling": "reciprocal ranks"}, ranks
    highest = np.maximum(np.nanmax(scored.words, axis=1, keepdims=True), np.float32(1e-9))
    by_highest = scored.words / highest
    for share, scale in typical.items():
        dense = scored.dense(share)
        yield {"scores": "dense", "first step": share}, dense
        fixed = (dense - scale.low) / (scale.high - scale.low)
        scalings = {
            "min-max": (stretch(dense), stretch(scored.words)),
            "fixed, BM25 by its highest": (fixed, by_highest),
        }
        if not share:
            scalings["min-max, BM25 of its best alone"] = stretch(dense), stretch(scored.listed)
            scalings["fixed, both"] = fixed, scored.words / scale.words
        for name, (meaning, by_words) in scalings.items():
            for weight in WEIGHTS:
                setting = {"scores": "dense, BM25", "first step": share, "scaling": name}
                fused = weight * meaning + (1 - weight) * by_words
                yield {**setting, "weight": weight}, fused.astype(np.float32)


def reciprocal_ranks(scores: Floats) -> Floats:
    """Give each candidate one over its rank and a constant."""
    order = np.argsort(-np.nan_to_num(scores, nan=-np.inf), axis=1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(scores.shape[1])[None] + 1, axis=1)
    return (1 / (RRF_CONSTANT + ranks)).astype(np.float32)
