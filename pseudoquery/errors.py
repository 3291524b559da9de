"""Errors that a user can act on: one sentence that says what is wrong, where, and what to do."""

from collections.abc import Callable
from typing import TypeAlias


class PseudoqueryError(Exception):
    """The base of all errors that a user can act on. The message says what is wrong, where, and
    what to do.
    """


class CorpusError(PseudoqueryError):
    """A document, query or judgement can't be read or stored. The message names the file and the
    line.
    """


class ModelError(PseudoqueryError):
    """A model can't be loaded, or does not fit the index."""


class IndexFolderError(PseudoqueryError):
    """An index folder is missing, damaged or of another format."""


class IndexLockedError(IndexFolderError):
    """Another process is writing to the index. Try again in a moment."""


class QueryError(PseudoqueryError):
    """A question, a filter or a setting can't be used."""


class ClusterError(PseudoqueryError):
    """A cluster of machines can't be reached, or has given up."""


class ServiceError(PseudoqueryError):
    """A service does not answer, or refuses. `status` is its HTTP status, or 0 if there was no
    answer, and `code` is its error code.
    """

    def __init__(self, message: str, status: int = 0, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


OnBad: TypeAlias = Callable[[CorpusError], None]
"""What to do with a record that can't be used: raise its error, or count it and go on."""
