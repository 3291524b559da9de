"""Dot products of one query with a document's vectors, and the scores by hand.

Every implementation is held against this table: torch's, numpy's two, and the GPU's kernel.
"""

from __future__ import annotations

import math

from pseudoquery.method.representation import Score

_E = math.e
TABLE: list[tuple[list[float], dict[Score, float]]] = [
    ([3.0], {"softmax": 3.0, "max": 3.0}),
    ([-2.0, -2.0, -2.0], {"softmax": -2.0, "max": -2.0}),
    ([1.0, 0.0], {"softmax": _E / (_E + 1), "max": 1.0}),
    ([0.0, -1.0], {"softmax": -1 / (_E + 1), "max": 0.0}),
    ([2.0, 1.0, 0.0], {"softmax": (2 * _E**2 + _E) / (_E**2 + _E + 1), "max": 2.0}),
    ([0.0, math.log(3)], {"softmax": 0.75 * math.log(3), "max": math.log(3)}),
    ([500.0, -500.0], {"softmax": 500.0, "max": 500.0}),
    ([-500.0, -501.0], {"softmax": -500 - 1 / (_E + 1), "max": -500.0}),
    ([5.0, *[4.0] * 15], {"softmax": 5 - 15 / (_E + 15), "max": 5.0}),
]
"""(dots, score of each kind)"""
