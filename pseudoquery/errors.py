"""Errors that a user can act on: one sentence that says what is wrong, where, and what to do."""


class PseudoqueryError(Exception):
    """Base of every error raised on purpose; the command prints it and exits with 2."""


class CorpusError(PseudoqueryError):
    """A document, query or judgement that can't be read; names the file and the line."""


class ModelError(PseudoqueryError):
    """A model that can't be loaded, or one that does not fit the index."""


class IndexFolderError(PseudoqueryError):
    """An index folder that is missing, locked, damaged, or of another format."""


class QueryError(PseudoqueryError):
    """A question, filter or setting that can't be answered."""
