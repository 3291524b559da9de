"""Many questions on a cluster: ask an index all of a collection, or mine negatives for them.

Batches are those of the plain commands, and each goes whole to one worker, so the results are the
same on machines of one kind.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load, save

from pseudoquery.building.location import Location, index_exists, is_address, open_index
from pseudoquery.cluster.ray import (
    Work,
    WorkerMessage,
    connect,
    map_on_workers,
    put_shared,
    worker_device,
)
from pseudoquery.corpus.datasets import Dataset
from pseudoquery.encoding.model import representation_of
from pseudoquery.encoding.token_cache import Windowed, pack, unpack
from pseudoquery.encoding.windowed_encoder import batches_of_like_length, encode_batch
from pseudoquery.encoding.windows import Task
from pseudoquery.errors import IndexFolderError
from pseudoquery.evaluation.evaluate import QUERIES_AT_ONCE, SearchPlan
from pseudoquery.evaluation.trec_runs import Run
from pseudoquery.method.representation import Representation
from pseudoquery.search.brute_force import rank_all
from pseudoquery.training.batches import TokenisedSets
from pseudoquery.training.mine import MARGIN, select_from_rankings
from pseudoquery.training.negatives import Negatives

if TYPE_CHECKING:
    from sentence_transformers import MultiVectorEncoder

VectorBatch = tuple[NDArray[np.float32], NDArray[np.bool_], list[int]]
"""Vectors of some texts (texts, widest, dim), their mask (texts, widest), and the texts' places."""


def search_on_cluster(
    cluster: str,
    place: Location,
    dataset: Dataset,
    ask: SearchPlan,
    on_progress: Callable[[int], None],
) -> Run:
    """Ask every question of a collection; every machine has to see the index."""
    place = place if is_address(place) else Path(place).absolute()
    index = open_index(place)
    queries = [
        dataset.queries[start : start + QUERIES_AT_ONCE]
        for start in range(0, len(dataset.queries), QUERIES_AT_ONCE)
    ]
    messages: list[WorkerMessage] = [
        ({"batch": batch, "texts": [query.text for query in own]}, b"")
        for batch, own in enumerate(queries)
    ]
    rankings: dict[int, list[list[tuple[str, float]]]] = {}
    with connect(cluster):
        # The first search makes what is derived from the vectors; many at once would collide.
        index.rank_many([queries[0][0].text], 1, mode=ask.mode, settings=ask.settings)
        model = None if ask.mode == "bm25" else put_shared(index.model.to("cpu"))
        for facts, body in map_on_workers(messages, partial(search_worker, place, ask, model)):
            rankings[facts["batch"]] = [
                [(id_, score) for id_, score in ranking] for ranking in json.loads(body)
            ]
            on_progress(len(queries[facts["batch"]]))
    return {
        query.id: ranking
        for batch, own in enumerate(queries)
        for query, ranking in zip(own, rankings[batch], strict=True)
    }


def search_worker(
    place: Location, ask: SearchPlan, model: Callable[[], MultiVectorEncoder] | None
) -> Work:
    """Begin to ask an index."""
    if not index_exists(place):
        raise IndexFolderError(
            f"a machine of the cluster sees no index in {place}; put it on a disk that all of them "
            "see, or leave --on out."
        )
    index = open_index(place, model=None if model is None else model().to(worker_device()))

    def work(message: WorkerMessage) -> WorkerMessage:
        facts, _ = message
        rankings = index.rank_many(
            facts["texts"], ask.top, mode=ask.mode, exact=ask.exact, settings=ask.settings
        )
        return {"batch": facts["batch"]}, json.dumps(rankings).encode()

    return work


def mine_on_cluster(
    cluster: str, model: MultiVectorEncoder, material: TokenisedSets, depth: int
) -> Negatives:
    """Find what `mine` finds: each lesson's best wrong documents by the model's own score.

    Every machine has to hold the vectors of one lesson's documents.
    """
    negatives: dict[str, list[str]] = {}
    settings, device = representation_of(model), model.device
    with connect(cluster):
        everywhere = put_shared(model.to("cpu"))
        for own, documents, queries in zip(
            material.lessons, material.documents, material.queries, strict=True
        ):
            texts: dict[Task, Sequence[Windowed]] = {"document": documents, "query": queries}
            encoded = _encode(everywhere, device, texts)
            begin = partial(
                ranking_worker, put_shared(encoded["document"]), settings, 2 * depth + MARGIN
            )
            messages: list[WorkerMessage] = [
                ({"own": places}, save({"values": values, "mask": mask}))
                for values, mask, places in encoded["query"]
            ]
            best: dict[int, list[int]] = {}
            for facts, body in map_on_workers(messages, begin):
                ranked = load(body)["places"].tolist()
                best.update(zip(facts["own"], ranked, strict=True))
            negatives |= select_from_rankings(
                own, [best[place] for place in range(len(best))], depth
            )
    return negatives


def _encode(
    model: Callable[[], MultiVectorEncoder],
    device: torch.device,
    texts: Mapping[Task, Sequence[Windowed]],
) -> dict[Task, list[VectorBatch]]:
    """Encode texts on the cluster, in the batches and in the order of one machine."""
    batches = {task: list(batches_of_like_length(own, device)) for task, own in texts.items()}
    messages: list[WorkerMessage] = [
        ({"task": task, "batch": batch}, save(pack([texts[task][place] for place in places])))
        for task, own in batches.items()
        for batch, places in enumerate(own)
    ]
    made: dict[tuple[Task, int], VectorBatch] = {}
    for facts, body in map_on_workers(messages, partial(window_encoding_worker, model)):
        task, batch = facts["task"], facts["batch"]
        arrays = load(body)
        made[task, batch] = (arrays["values"], arrays["mask"], batches[task][batch])
    return {task: [made[task, batch] for batch in range(len(own))] for task, own in batches.items()}


def window_encoding_worker(model: Callable[[], MultiVectorEncoder]) -> Work:
    """Begin to encode tokenised texts."""
    loaded = model().to(worker_device())

    def work(message: WorkerMessage) -> WorkerMessage:
        facts, body = message
        values, mask = encode_batch(loaded, unpack(load(body)), facts["task"])
        return facts, save({"values": values.cpu().numpy(), "mask": mask.cpu().numpy()})

    return work


def ranking_worker(
    documents: Callable[[], list[VectorBatch]], settings: Representation, top: int
) -> Work:
    """Begin to rank all documents for queries."""
    there = [(*_tensors(values, mask), own) for values, mask, own in documents()]

    def work(message: WorkerMessage) -> WorkerMessage:
        facts, body = message
        arrays = load(body)
        values, mask = _tensors(arrays["values"], arrays["mask"])
        places, _ = rank_all([(values, mask, range(len(values)))], there, settings, top)
        return facts, save({"places": places})

    return work


def _tensors(
    values: NDArray[np.float32], mask: NDArray[np.bool_]
) -> tuple[torch.Tensor, torch.Tensor]:
    device = worker_device()
    return torch.tensor(values, device=device), torch.tensor(mask, device=device)
