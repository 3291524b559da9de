"""What all peers search: each text read once, and its tokens made into every representation.

So all have the same encoder, the same tokens and the same text. Nothing is cut, though by itself
sentence-transformers would read only the beginning of a long document. The exact answers, which
recall is measured by, are found by comparing everything.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.peers.measure import DEEP, Inputs, Vectors
from pseudoquery.bench.machine import synthetic_vectors
from pseudoquery.bench.search import synthetic_queries
from pseudoquery.corpus.datasets import Dataset
from pseudoquery.encoding.encode import document_text, encode_queries, pool_texts, read_texts
from pseudoquery.encoding.model import choose_representation, load_model
from pseudoquery.encoding.pooling import Pooling
from pseudoquery.errors import CorpusError
from pseudoquery.method.presets import preset
from pseudoquery.method.representation import Representation
from pseudoquery.method.scores import document_score

AT_ONCE = 64
QUERIES_TIMED = 100
QUERIES_AT_ONCE = 16
KS = (8, 16)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A part of a test collection; documents and questions are known by their place in it."""

    name: str
    documents: list[str]
    questions: list[str]
    judgements: list[tuple[int, int, int]]
    """Question, document and relevance."""


def choose(dataset: Dataset, documents: int | None, queries: int, seed: int = 0) -> Drawn:
    """Draw documents, and questions that they answer."""
    generator = random.Random(seed)
    corpus = list(dataset.documents())
    if documents is not None and documents < len(corpus):
        corpus = generator.sample(corpus, documents)
    ids = {document.id for document in corpus}
    answered = {qrel.query_id for qrel in dataset.qrels if qrel.relevance > 0}
    answered -= {qrel.query_id for qrel in dataset.qrels if qrel.document_id not in ids}
    able = [query for query in dataset.queries if query.id in answered]
    if not able:
        raise CorpusError(
            f"{dataset.name}: the {len(corpus)} documents drawn answer none of its questions; "
            "draw more (--documents, --few)."
        )
    chosen = generator.sample(able, min(queries, len(able)))
    position = {document.id: number for number, document in enumerate(corpus)}
    number = {query.id: number for number, query in enumerate(chosen)}
    return Drawn(
        dataset.name,
        [document_text(document)[0] for document in corpus],
        [query.text for query in chosen],
        [
            (number[qrel.query_id], position[qrel.document_id], qrel.relevance)
            for qrel in dataset.qrels
            if qrel.query_id in number
        ],
    )


def prepare(
    drawn: Drawn, folder: Path, models: Sequence[str], token_queries: int, commit: str
) -> None:
    """Write the inputs of a test collection: all by the first model, pseudo queries by others."""
    folder.mkdir(parents=True)
    (folder / "documents.json").write_text(json.dumps(drawn.documents), "utf-8")
    (folder / "queries.json").write_text(json.dumps(drawn.questions), "utf-8")
    facts: dict[str, Any] = {
        "name": f"{drawn.name}, {len(drawn.documents):,} documents",
        "texts": True,
        "documents": len(drawn.documents),
        "queries": len(drawn.questions),
        "judgements": drawn.judgements,
        "model": Path(models[0]).name,
        "representations": {},
        "encoding": {},
        "commit": commit,
    }
    makings = {"one": preset("single-vector"), "tokens": preset("late-interaction")}
    kind = "pseudo"
    for model in models:
        makings |= {f"{kind}-{k}": _representation(model, k) for k in KS}
        embed(folder, facts, model, makings, drawn, token_queries)
        makings, kind = {}, "trained"
    finish(folder, facts)


def check_inputs(drawn: Drawn, folder: Path, models: Sequence[str], token_queries: int) -> None:
    """Refuse what another run has left, unless it read the same texts with the same encoders."""
    try:
        left = Inputs(folder)
        read = left.texts("documents") + left.texts("queries"), list(left.facts["encoding"])
        tokens = left.facts["representations"]["tokens"]["queries"]
    except (OSError, ValueError, KeyError) as error:
        raise CorpusError(
            f"{folder} holds no vectors of an earlier run ({error}); leave out --again."
        ) from None
    wanted = drawn.documents + drawn.questions, [Path(model).name for model in models]
    if (*read, tokens) != (*wanted, min(token_queries, len(drawn.questions))):
        raise CorpusError(f"{folder} holds the vectors of another run; leave out --again.")


def prepare_synthetic(folder: Path, documents: int, k: int, dimension: int, queries: int) -> None:
    """Write inputs of random vectors, the hardest case; there are no texts and no judgements."""
    folder.mkdir(parents=True)
    made = synthetic_vectors(documents, k, dimension)
    query_vectors = synthetic_queries(made, queries)
    name = f"pseudo-{k}"
    made.tofile(folder / f"{name}.documents")
    np.save(folder / f"{name}.offsets.npy", np.arange(0, documents * k + 1, k))
    _save_queries(folder / name, query_vectors)
    settings = Representation(k=k, scale=10.0)
    representation = {"dtype": "float32", "queries": queries, "settings": settings.settings()}
    facts = {
        "name": f"synthetic {documents:,} × {k} × {dimension}",
        "texts": False,
        "documents": documents,
        "queries": queries,
        "dimension": dimension,
        "judgements": [],
        "representations": {name: representation},
    }
    finish(folder, facts)


def embed(
    folder: Path,
    facts: dict[str, Any],
    name: str,
    makings: dict[str, Representation],
    drawn: Drawn,
    token_queries: int,
) -> None:
    """Read all texts once, and write every representation of them."""
    texts, questions = drawn.documents, drawn.questions
    model = load_model(name)
    poolings = {name: Pooling(**settings.settings()) for name, settings in makings.items()}
    counts: dict[str, list[int]] = {name: [] for name in makings}
    reading_seconds = 0.0
    with ExitStack() as stack, torch.inference_mode():
        files = {
            name: stack.enter_context((folder / f"{name}.documents").open("wb")) for name in makings
        }
        for start in range(0, len(texts), AT_ONCE):
            begun = time.perf_counter()
            reading = read_texts(model, texts[start : start + AT_ONCE], "document")
            reading_seconds += time.perf_counter() - begun
            for one, pooling in poolings.items():
                for encoded in pool_texts(pooling, reading, "document"):
                    encoded.vectors.astype(_kept_as(one)).tofile(files[one])
                    counts[one].append(len(encoded.vectors))
            print(f"\r  {min(start + AT_ONCE, len(texts)):,} texts read", end="", flush=True)
        print()
        for one, pooling in poolings.items():
            few = questions[: token_queries if one == "tokens" else None]
            query_vectors = [
                encoded.vectors
                for start in range(0, len(few), AT_ONCE)
                for encoded in pool_texts(
                    pooling, read_texts(model, few[start : start + AT_ONCE], "query"), "query"
                )
            ]
            np.save(folder / f"{one}.offsets.npy", np.cumsum([0, *counts[one]]))
            _save_queries(folder / one, query_vectors)
            facts["dimension"] = query_vectors[0].shape[1]
            facts["representations"][one] = {
                "dtype": _kept_as(one),
                "queries": len(few),
                "settings": makings[one].settings(),
            }
        taken = []
        for question in questions[:QUERIES_TIMED]:
            begun = time.perf_counter()
            encode_queries(model, [question])
            taken.append(time.perf_counter() - begun)
    facts["encoding"][Path(name).name] = {
        "ms_a_document": 1e3 * reading_seconds / len(texts),
        "ms_a_query": 1e3 * float(np.median(taken)),
    }


def finish(folder: Path, facts: dict[str, Any]) -> None:
    """Write the facts and, by comparing everything, the exact answers."""
    (folder / "facts.json").write_text(json.dumps(facts, indent=1), "utf-8")
    for name, representation in facts["representations"].items():
        vectors = Inputs(folder).vectors(name)
        scores = {"max"} | {representation["settings"]["score"]} if vectors.widest > 1 else {"max"}
        exact = exact_tokens if name == "tokens" else exact_few
        for score in sorted(scores):
            ranking = exact(vectors, score, representation["settings"]["scale"])
            np.save(folder / f"{name}.exact-{score}.npy", ranking)


def exact_few(vectors: Vectors, score: Any, scale: float) -> NDArray[np.int64]:
    """Rank all documents of few vectors, (queries, DEEP)."""
    widths = np.diff(vectors.offsets)[:, None]
    positions = np.minimum(
        vectors.offsets[:-1, None] + np.arange(vectors.widest), len(vectors.documents) - 1
    )
    missing = torch.from_numpy(np.arange(vectors.widest) >= widths)
    everything = np.asarray(vectors.documents, np.float32)
    rankings = []
    for start in range(0, len(vectors.queries), QUERIES_AT_ONCE):
        dots = vectors.queries[start : start + QUERIES_AT_ONCE] @ everything.T
        padded = torch.from_numpy(scale * dots[:, positions].astype(np.float64))
        scores = document_score(padded.masked_fill(missing, -torch.inf)[:, :, None], score)
        rankings.append(np.argsort(-scores.numpy(), axis=1, kind="stable")[:, :DEEP])
    return np.concatenate(rankings)


def exact_tokens(vectors: Vectors, score: Any, scale: float) -> NDArray[np.int64]:  # noqa: ARG001
    """Rank all documents by MaxSim, (queries, DEEP)."""
    query_matrix = torch.from_numpy(vectors.queries.T.copy())
    parts = []
    for number in range(vectors.count):
        dots = torch.from_numpy(np.array(vectors.document(number), np.float32)) @ query_matrix
        parts.append(np.add.reduceat(dots.amax(dim=0).numpy(), vectors.query_offsets[:-1]))
    return np.argsort(-np.stack(parts, axis=1), axis=1, kind="stable")[:, :DEEP]


def _representation(model: str, k: int) -> Representation:
    return choose_representation(model, None, k) or preset("recommended", k=k)


def _kept_as(representation: str) -> str:
    """Late interaction is kept in half precision, as is usual; it would be gigabytes else."""
    return "float16" if representation == "tokens" else "float32"


def _save_queries(path: Path, queries: Sequence[NDArray[np.float32]]) -> None:
    np.save(path.with_suffix(".queries.npy"), np.concatenate(list(queries)).astype(np.float32))
    offsets = np.cumsum([0, *(len(one) for one in queries)])
    np.save(path.with_suffix(".query_offsets.npy"), offsets)
