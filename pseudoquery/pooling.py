"""Saved models name `pseudoquery.pooling.Pooling`; the class is in `encoding.pooling`."""

from pseudoquery.encoding.pooling import Pooling

__all__ = ["Pooling"]
