"""A model that MTEB can evaluate on retrieval tasks, with this library's own score.

mteb.evaluate(SearchModel("default"), mteb.get_tasks(["SciFact"]))

MTEB by itself would compare by MaxSim, and cut long documents.
"""

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

QUERIES_AT_ONCE = 64


class SearchModel:
    """A model that MTEB evaluates on retrieval tasks, by this library's exact score.

    MTEB by itself would compare by MaxSim and cut long documents.

    Examples:
        >>> mteb.evaluate(SearchModel("default"), mteb.get_tasks(["SciFact"]))  # doctest: +SKIP

    Args:
        model: What `Index.create` takes.
        representation: How texts become vectors; by default the model's own.
        name: What MTEB stores the results under.
        long: "windows" reads long documents whole, "truncate" only their beginning.
        mode: "dense" or "hybrid".
    """

    def __init__(
        self,
        model: str | MultiVectorEncoder = "default",
        representation: Representation | None = None,
        *,
        name: str = "",
        long: Literal["windows", "truncate"] = "windows",
        mode: Mode = "dense",
    ) -> None:
        """Take a model as `Index.create` does; results are stored under `name`."""
        self._model = load_model(model, representation) if isinstance(model, str) else model
        self._long = long
        self._mode = mode
        self._index: Index | None = None
        own = Path(model).name if isinstance(model, str) else "model"
        self.mteb_model_meta = ModelMeta.create_empty(
            {
                "name": name or f"pseudoquery/{own}",
                # MTEB knows by it which of its stored results are this model's.
                "revision": fingerprint(self._model),
                "framework": ["Sentence Transformers", "PyTorch"],
                "similarity_fn_name": ScoringFunction.CUSTOM,
                "model_type": ["dense" if mode == "dense" else "hybrid"],
                "experiment_kwargs": {"long": long, "mode": mode},
            }
        )

    def index(self, corpus: Iterable[Mapping[str, Any]], **_: Any) -> None:
        """Make a temporary index of a task's documents. MTEB calls this."""
        folder = mkdtemp(prefix="pseudoquery-mteb-")
        made = Index.create(Path(folder) / "index", model=self._model, long=self._long)
        finalize(made, shutil.rmtree, folder, ignore_errors=True)
        made.add(Document(row["id"], row["text"], row.get("title") or "") for row in corpus)
        self._index = made

    def search(
        self,
        queries: Any,
        *,
        task_metadata: Any,
        top_k: int,
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        **_: Any,
    ) -> dict[str, dict[str, float]]:
        """Rank documents for each query of a task, or rerank given ones. MTEB calls this."""
        query = types.PromptType.query
        batches = create_dataloader(queries, task_metadata=task_metadata, prompt_type=query)
        texts = [text for batch in batches for text in batch["text"]]
        found: dict[str, dict[str, float]] = {id_: {} for id_ in queries["id"]}
        # A blank query asks nothing, and finds nothing.
        asked = [(id_, text) for id_, text in zip(found, texts, strict=True) if text.strip()]
        if top_ranked is not None:
            for id_, text in asked:
                where = {"id": list(top_ranked.get(id_, ()))}
                (found[id_],) = self._ranked([text], top_k, where)
            return found
        for start in range(0, len(asked), QUERIES_AT_ONCE):
            ids, some = zip(*asked[start : start + QUERIES_AT_ONCE], strict=True)
            found.update(zip(ids, self._ranked(some, top_k), strict=True))
        return found

    def _ranked(
        self, queries: Sequence[str], top: int, where: Mapping[str, Any] | None = None
    ) -> list[dict[str, float]]:
        if self._index is None:
            raise QueryError("there is nothing to search yet; give `index` the documents first.")
        rankings = self._index.rank_many(queries, top, where=where, exact=True, mode=self._mode)
        return [_without_ties(ranking) for ranking in rankings]


def _without_ties(ranking: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Keep the order: MTEB would put scores that are equal, in single precision, into another."""
    scores: dict[str, float] = {}
    last = np.float32(np.inf)
    for id_, score in ranking:
        last = min(np.float32(score), np.nextafter(last, np.float32(-np.inf)))
        scores[id_] = float(last)
    return scores
