"""Stored pipelines name this module; the class is in `pseudoquery.integrations.haystack`."""

from pseudoquery.integrations.haystack import PseudoqueryRetriever

__all__ = ["PseudoqueryRetriever"]
