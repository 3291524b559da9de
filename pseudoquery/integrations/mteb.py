"""A model that MTEB can evaluate on retrieval tasks."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, Literal
from weakref import finalize

import numpy as np

try:
    from mteb import types
    from mteb._create_dataloaders import create_dataloader
    from mteb.models.model_meta import ModelMeta, ScoringFunction
except ImportError as error:
    raise ImportError("mteb is not installed; run: pip install 'pseudoquery[mteb]'") from error

from pseudoquery.encoding.model import fingerprint, load_model
from pseudoquery.errors import QueryError
from pseudoquery.index import Index
from pseudoquery.method.representation import Representation
from pseudoquery.records import Document
from pseudoquery.search.settings import Mode

if TYPE_CHECKING:
    from sentence_transformers import MultiVectorEncoder

    from pseudoquery.method.token_codes import TokenType

QUERIES_AT_ONCE = 64


class SearchModel:
    """A model that MTEB evaluates on retrieval tasks, by this library's exact score.

    MTEB itself would score by MaxSim, and cut long documents.

    Examples:
        >>> mteb.evaluate(SearchModel("default"), mteb.get_tasks(["SciFact"]))  # doctest: +SKIP

    Args:
        model: The name or the folder of a model, or a loaded model, as in `Index.create`.
        representation: How texts become vectors. By default, the model decides.
        name: The name under which MTEB stores the results.
        long: "windows" encodes all of a long document, "truncate" only its beginning.
        mode: "dense" (by meaning) or "hybrid" (by meaning and by words).
        tokens: How the vectors of tokens are stored, as in `Index.create`. "none" ranks by the
            vectors of documents alone.
    """

    def __init__(
        self,
        model: str | MultiVectorEncoder = "default",
        representation: Representation | None = None,
        *,
        name: str = "",
        long: Literal["windows", "truncate"] = "windows",
        mode: Mode = "dense",
        tokens: TokenType | None = None,
    ) -> None:
        self._model = load_model(model, representation) if isinstance(model, str) else model
        self._long = long
        self._mode = mode
        self._tokens = tokens
        self._index: Index | None = None
        default_name = Path(model).name if isinstance(model, str) else "model"
        self.mteb_model_meta = ModelMeta.create_empty(
            {
                "name": name or f"pseudoquery/{default_name}",
                # MTEB uses it to find the results that it has stored for this model.
                "revision": fingerprint(self._model),
                "framework": ["Sentence Transformers", "PyTorch"],
                "similarity_fn_name": ScoringFunction.CUSTOM,
                "model_type": ["dense" if mode == "dense" else "hybrid"],
                "experiment_kwargs": {"long": long, "mode": mode, "tokens": tokens},
            }
        )

    def index(self, corpus: Iterable[Mapping[str, Any]], **_: Any) -> None:
        """Make a temporary index of a task's documents. MTEB calls this method.

        Args:
            corpus: The documents, each with an `id`, a `text` and perhaps a `title`.
        """
        folder = mkdtemp(prefix="pseudoquery-mteb-")
        index = Index.create(
            Path(folder) / "index", model=self._model, long=self._long, tokens=self._tokens
        )
        finalize(index, shutil.rmtree, folder, ignore_errors=True)
        index.add(Document(row["id"], row["text"], row.get("title") or "") for row in corpus)
        self._index = index

    def search(
        self,
        queries: Any,
        *,
        task_metadata: Any,
        top_k: int,
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        **_: Any,
    ) -> dict[str, dict[str, float]]:
        """Rank documents for each query of a task, or rerank given ones. MTEB calls this method.

        Args:
            queries: MTEB's dataset of queries.
            task_metadata: MTEB's description of the task.
            top_k: How many documents to return for each query.
            top_ranked: The ids of the documents to rerank, by the id of a query. By default, all
                documents are ranked.

        Returns:
            The scores by the ids of the queries and the documents.
        """
        query = types.PromptType.query
        batches = create_dataloader(queries, task_metadata=task_metadata, prompt_type=query)
        texts = [text for batch in batches for text in batch["text"]]
        results: dict[str, dict[str, float]] = {id_: {} for id_ in queries["id"]}
        # The index refuses a blank query, so it has no results.
        searches = [(id_, text) for id_, text in zip(results, texts, strict=True) if text.strip()]
        if top_ranked is not None:
            for id_, text in searches:
                where = {"id": list(top_ranked.get(id_, ()))}
                (results[id_],) = self._rank([text], top_k, where)
            return results
        for start in range(0, len(searches), QUERIES_AT_ONCE):
            ids, batch = zip(*searches[start : start + QUERIES_AT_ONCE], strict=True)
            results.update(zip(ids, self._rank(batch, top_k), strict=True))
        return results

    def _rank(
        self, queries: Sequence[str], top: int, where: Mapping[str, Any] | None = None
    ) -> list[dict[str, float]]:
        if self._index is None:
            raise QueryError(
                "this model has no documents yet; call `index` with the documents first."
            )
        rankings = self._index.rank_many(queries, top, where=where, exact=True, mode=self._mode)
        return [_break_ties(ranking) for ranking in rankings]


def _break_ties(ranking: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Lower equal scores, so that MTEB, which compares in single precision, keeps the order."""
    scores: dict[str, float] = {}
    previous = np.float32(np.inf)
    for id_, score in ranking:
        previous = min(np.float32(score), np.nextafter(previous, np.float32(-np.inf)))
        scores[id_] = float(previous)
    return scores
