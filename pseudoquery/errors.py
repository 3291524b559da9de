"""Errors that a user can act on: one sentence that says what is wrong, where, and what to do."""

from collections.abc import Callable
from typing import TypeAlias


class PseudoqueryError(Exception):
    """Base of every error raised on purpose; the command prints it and exits with 2."""


class CorpusError(PseudoqueryError):
    """A document, query or judgement that can't be read; names the file and the line."""


class ModelError(PseudoqueryError):
    """A model that can't be loaded, or one that does not fit the index."""


class IndexFolderError(PseudoqueryError):
    """An index folder that is missing, locked, damaged, or of another format."""


class IndexLockedError(IndexFolderError):
    """An index folder that another process is writing to; it may be free in a moment."""


class QueryError(PseudoqueryError):
    """A question, filter or setting that can't be answered."""


class ClusterError(PseudoqueryError):
    """A cluster of machines that can't be reached, or that has given up."""


class ServiceError(PseudoqueryError):
    """A service that does not answer, or refuses; says its HTTP status, and 0 if there is none."""

    def __init__(self, message: str, status: int = 0, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


OnBad: TypeAlias = Callable[[CorpusError], None]
"""What to do with a record that can't be used: raise its error, or count it and go on."""
