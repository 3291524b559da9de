"""Errors that a user can act on: one sentence that says what is wrong, where, and what to do."""

from collections.abc import Callable
from typing import TypeAlias


class PseudoqueryError(Exception):
    """The base of all errors that a user can act on. The message says what is wrong, where, and
    what to do.

    Examples:
        >>> from pseudoquery import Index
        >>> try:
        ...     Index.open("nowhere")
        ... except PseudoqueryError as error:
        ...     print(error)
        nowhere is not an index: there is no such folder; make one with ...
    """


class CorpusError(PseudoqueryError):
    """A document, query or judgement can't be read or stored. The message names the file and the
    line.
    """


class ModelError(PseudoqueryError):
    """A model can't be loaded, or does not fit the index."""


class IndexFolderError(PseudoqueryError):
    """An index is missing, damaged, or of a newer format than this version reads."""


class IndexLockedError(IndexFolderError):
    """Another process is writing to the index. Try again in a moment."""


class QueryError(PseudoqueryError):
    """A question, a filter or a setting can't be used, or not with this kind of index."""


class ClusterError(PseudoqueryError):
    """A Ray cluster can't be reached, or has failed too often."""


class ServiceError(PseudoqueryError):
    """A service, or Milvus, does not answer or refuses."""

    def __init__(self, message: str, status: int = 0, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status of the answer; 0 if there was none."""
        self.code = code
        """The error code of the service."""


OnBad: TypeAlias = Callable[[CorpusError], None]
"""Called with the error of a record that can't be used: raise the error, or return to go on."""
