"""Search an index, or mine negatives, for all queries of a collection on a cluster.

Batches are those of the commands on one machine, and each goes whole to one worker: on machines of
one kind, the results are the same.
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
"""Vectors of some texts (texts, widest, dim), their mask (texts, widest), and their positions."""


def search_on_cluster(
    cluster: str,
    location: Location,
    dataset: Dataset,
    plan: SearchPlan,
    on_progress: Callable[[int], None],
) -> Run:
    """Search an index for all queries of a collection; every machine has to see the index."""
    location = location if is_address(location) else Path(location).absolute()
    index = open_index(location)
    batches = [
        dataset.queries[start : start + QUERIES_AT_ONCE]
        for start in range(0, len(dataset.queries), QUERIES_AT_ONCE)
    ]
    messages: list[WorkerMessage] = [
        ({"batch": number, "texts": [query.text for query in batch]}, b"")
        for number, batch in enumerate(batches)
    ]
    rankings: dict[int, list[list[tuple[str, float]]]] = {}
    with connect(cluster):
        # The first search makes what is derived from the vectors; many at once would collide.
        index.rank_many([batches[0][0].text], 1, mode=plan.mode, settings=plan.settings)
        model = None if plan.mode == "bm25" else put_shared(index.model.to("cpu"))
        begin = partial(start_searching, location, plan, model)
        for facts, body in map_on_workers(messages, begin):
            rankings[facts["batch"]] = [
                [(id_, score) for id_, score in ranking] for ranking in json.loads(body)
            ]
            on_progress(len(batches[facts["batch"]]))
    return {
        query.id: ranking
        for number, batch in enumerate(batches)
        for query, ranking in zip(batch, rankings[number], strict=True)
    }


def start_searching(
    location: Location, plan: SearchPlan, model: Callable[[], MultiVectorEncoder] | None
) -> Work:
    """Return what a worker does to search an index for a batch of queries."""
    if not index_exists(location):
        raise IndexFolderError(
            f"a machine of the cluster sees no index in {location}; put it on a disk that all "
            "machines see, or leave out --on."
        )
    index = open_index(location, model=None if model is None else model().to(worker_device()))

    def work(message: WorkerMessage) -> WorkerMessage:
        facts, _ = message
        rankings = index.rank_many(
            facts["texts"], plan.top, mode=plan.mode, exact=plan.exact, settings=plan.settings
        )
        return {"batch": facts["batch"]}, json.dumps(rankings).encode()

    return work


def mine_on_cluster(
    cluster: str, model: MultiVectorEncoder, tokenised: TokenisedSets, depth: int
) -> Negatives:
    """Mine what `mine` would: the best wrong documents of each training set by the model's score.

    Every machine has to hold the vectors of all documents of one training set.
    """
    negatives: dict[str, list[str]] = {}
    settings, device = representation_of(model), model.device
    with connect(cluster):
        shared_model = put_shared(model.to("cpu"))
        for training_set, documents, queries in zip(
            tokenised.training_sets, tokenised.documents, tokenised.queries, strict=True
        ):
            texts: dict[Task, Sequence[Windowed]] = {"document": documents, "query": queries}
            encoded = _encode(shared_model, device, texts)
            begin = partial(
                start_ranking, put_shared(encoded["document"]), settings, 2 * depth + MARGIN
            )
            messages: list[WorkerMessage] = [
                ({"queries": positions}, save({"values": values, "mask": mask}))
                for values, mask, positions in encoded["query"]
            ]
            rankings: dict[int, list[int]] = {}
            for facts, body in map_on_workers(messages, begin):
                ranked = load(body)["positions"].tolist()
                rankings.update(zip(facts["queries"], ranked, strict=True))
            in_order = [rankings[query] for query in range(len(rankings))]
            negatives |= select_from_rankings(training_set, in_order, depth)
    return negatives


def _encode(
    model: Callable[[], MultiVectorEncoder],
    device: torch.device,
    texts: Mapping[Task, Sequence[Windowed]],
) -> dict[Task, list[VectorBatch]]:
    """Encode texts on the cluster, in the batches and in the order of one machine."""
    batches = {
        task: list(batches_of_like_length(windowed, device)) for task, windowed in texts.items()
    }
    messages: list[WorkerMessage] = [
        (
            {"task": task, "batch": number},
            save(pack([texts[task][position] for position in positions])),
        )
        for task, all_positions in batches.items()
        for number, positions in enumerate(all_positions)
    ]
    encoded: dict[tuple[Task, int], VectorBatch] = {}
    for facts, body in map_on_workers(messages, partial(start_encoding_windows, model)):
        task, number = facts["task"], facts["batch"]
        arrays = load(body)
        encoded[task, number] = (arrays["values"], arrays["mask"], batches[task][number])
    return {
        task: [encoded[task, number] for number in range(len(all_positions))]
        for task, all_positions in batches.items()
    }


def start_encoding_windows(model: Callable[[], MultiVectorEncoder]) -> Work:
    """Return what a worker does to encode a batch of tokenised texts."""
    loaded = model().to(worker_device())

    def work(message: WorkerMessage) -> WorkerMessage:
        facts, body = message
        values, mask = encode_batch(loaded, unpack(load(body)), facts["task"])
        return facts, save({"values": values.cpu().numpy(), "mask": mask.cpu().numpy()})

    return work


def start_ranking(
    documents: Callable[[], list[VectorBatch]], settings: Representation, top: int
) -> Work:
    """Return what a worker does to rank all documents for a batch of queries."""
    loaded = [(*_make_tensors(values, mask), positions) for values, mask, positions in documents()]

    def work(message: WorkerMessage) -> WorkerMessage:
        facts, body = message
        arrays = load(body)
        values, mask = _make_tensors(arrays["values"], arrays["mask"])
        positions, _ = rank_all([(values, mask, range(len(values)))], loaded, settings, top)
        return facts, save({"positions": positions})

    return work


def _make_tensors(
    values: NDArray[np.float32], mask: NDArray[np.bool_]
) -> tuple[torch.Tensor, torch.Tensor]:
    device = worker_device()
    return torch.tensor(values, device=device), torch.tensor(mask, device=device)
