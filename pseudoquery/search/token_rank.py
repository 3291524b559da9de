"""The third step: documents ranked by late interaction with the stored codes of their tokens.

The tokens' score of a document is MaxSim: each token of the question takes its largest dot product
with any token of the document, and the score is the mean of these. The score of the vectors is
mixed in: the two err in different ways. Both are exact for what is stored, so the order is, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pseudoquery.encoding.threads import in_threads
from pseudoquery.errors import IndexFolderError
from pseudoquery.method.encoded import QuestionVectors
from pseudoquery.method.representation import Representation
from pseudoquery.method.token_codes import (
    PackedDocuments,
    TokenType,
    bytes_per_token,
    token_scorer,
)
from pseudoquery.search.exact_scores import Positions, exact_scores
from pseudoquery.search.score_view import blocks_of_documents
from pseudoquery.storage.vector_view import VectorView

TOKENS_IN_A_TASK = 1 << 20
"""A thread scores documents of about so many tokens at once."""


@dataclass(frozen=True, slots=True)
class TokenRanker:
    """Ranks documents of a view by their tokens."""

    view: VectorView
    token_type: TokenType
    representation: Representation
    vector_share: float
    """How much the score of the vectors counts, 0 to 1; the tokens count for the rest."""

    def rank(
        self, question: QuestionVectors, documents: Positions
    ) -> tuple[Positions, NDArray[np.float64]]:
        """Sort documents by score, best first; of equal ones, the one that was added first."""
        scores = self.scores(question, documents)
        order = np.lexsort((documents, -scores))
        return documents[order], scores[order]

    def scores(self, question: QuestionVectors, documents: Positions) -> NDArray[np.float64]:
        """Score the documents at these positions; one without tokens scores minus infinity."""
        scores = self._token_scores(question, documents)
        # Dot products of other lengths than 1 can't be added to cosines.
        if self.vector_share and self.representation.normalise:
            scores *= 1 - self.vector_share
            scores += self.vector_share * self._vector_scores(question, documents)
        return scores

    def _vector_scores(
        self, question: QuestionVectors, documents: Positions
    ) -> NDArray[np.float64]:
        """Score documents by their vectors, as a cosine; one without vectors scores -1."""
        parts = [
            exact_scores(self.view, question.vectors, block, self.representation)
            for block in blocks_of_documents(self.view, documents)
        ]
        cosines = np.concatenate([np.zeros(0), *parts])
        cosines /= self.representation.scale * max(len(question.vectors), 1)
        return np.where(np.isneginf(cosines), -1.0, cosines)

    def _token_scores(self, question: QuestionVectors, documents: Positions) -> NDArray[np.float64]:
        dimension = question.tokens.shape[1]
        score = token_scorer(self.token_type, question.tokens)
        tasks = [
            task
            for rows, packed in self.view.packed_tokens(documents)
            for task in _split(rows, self._checked(packed, dimension))
        ]
        scores = np.full(len(documents), -np.inf)
        parts = [packed for _, packed in tasks]
        # To begin a thread takes longer than to score some documents.
        alone = sum(int(part.counts.sum()) for part in parts) <= TOKENS_IN_A_TASK
        done = map(score, parts) if alone else in_threads(score, parts)
        for (rows, _), part in zip(tasks, done, strict=True):
            scores[rows] = part
        return scores

    def _checked(self, packed: PackedDocuments, dimension: int) -> PackedDocuments:
        """Refuse codes that are not of this type and dimension."""
        ends = packed.starts + packed.counts * bytes_per_token(self.token_type, dimension)
        if ends.max(initial=0) > len(packed.codes):
            raise IndexFolderError(
                f"the stored tokens are not codes of the type {self.token_type!r}; "
                "run `pseudoquery verify` on the index."
            )
        return packed


def _split(
    rows: NDArray[np.int64], packed: PackedDocuments
) -> list[tuple[NDArray[np.int64], PackedDocuments]]:
    """Cut many documents into tasks for several threads."""
    task = np.cumsum(packed.counts) // TOKENS_IN_A_TASK
    if not len(task) or task[0] == task[-1]:
        return [(rows, packed)]
    cuts = np.flatnonzero(np.diff(task)) + 1
    return [
        (part, PackedDocuments(packed.codes, starts, counts))
        for part, starts, counts in zip(
            np.split(rows, cuts),
            np.split(packed.starts, cuts),
            np.split(packed.counts, cuts),
            strict=True,
        )
    ]
