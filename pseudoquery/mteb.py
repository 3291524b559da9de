"""A model for MTEB; the class is in `pseudoquery.integrations.mteb`."""

from pseudoquery.integrations.mteb import SearchModel

__all__ = ["SearchModel"]
