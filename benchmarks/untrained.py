"""Compare settings of the representation on an encoder that was not trained for it.

    python benchmarks/untrained.py FOLDER/squad-documents:dev FOLDER/scifact:test --out DIR

Embeds each corpus once, pools it with every combination on the list, and prints MRR@10, nDCG@10
and top-20 by exact brute force: which preset to recommend for it, docs/research/log.md says.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import torch
from sentence_transformers import MultiVectorEncoder
from torch import Tensor

from pseudoquery.corpus.documents import read_documents, read_qrels, read_queries
from pseudoquery.encoding import encode as encoding
from pseudoquery.encoding.model import load_model
from pseudoquery.encoding.pooling import Pooling, Tokens
from pseudoquery.method.presets import preset
from pseudoquery.method.representation import Representation
from pseudoquery.method.scores import document_score

Batch = tuple[list[int], Tokens]


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("datasets", nargs="+", help="FOLDER:SPLIT")
    arguments.add_argument("--model", default="minilm")
    arguments.add_argument("--out", type=Path, required=True)
    arguments.add_argument("--queries", type=int, default=2000)
    arguments.add_argument("--windows", type=int, nargs="+", default=[512])
    options = arguments.parse_args()
    model = load_model(options.model)
    rows = []
    with torch.inference_mode():
        for dataset in options.datasets:
            folder, _, split = dataset.rpartition(":")
            for row in sweep(model, Path(folder), split, options.queries, options.windows):
                rows.append(row)
                print(json.dumps(row), flush=True)
                options.out.write_text("".join(json.dumps(row) + "\n" for row in rows))


def sweep(
    model: MultiVectorEncoder, folder: Path, split: str, most: int, windows: list[int]
) -> Iterator[dict[str, object]]:
    documents = list(read_documents(folder))
    position = {document.id: row for row, document in enumerate(documents)}
    relevant: dict[str, set[int]] = defaultdict(set)
    for qrel in read_qrels(folder / "qrels" / f"{split}.tsv"):
        if qrel.relevance > 0:
            relevant[qrel.query_id].add(position[qrel.document_id])
    queries = [query for query in read_queries(folder) if query.id in relevant]
    queries = queries[:: max(1, len(queries) // most)]
    judged = [relevant[query.id] for query in queries]
    texts = [query.text for query in queries]
    for length in windows:
        model.max_seq_length = length
        contents = [encoding.document_text(document)[0] for document in documents]
        batches = list(embed_all(model, contents, "document"))
        queries = list(embed_all(model, texts, "query"))
        for settings in grid():
            figures = evaluate(model, settings, batches, queries, judged)
            yield {
                "dataset": folder.name,
                "window": length,
                **figures,
                **settings.settings(),
            }


def grid() -> Iterator[Representation]:
    yield preset("single-vector")
    yield preset("paper")
    yield preset("released-code")
    for k in (4, 8, 16, 32):
        for locality in (0.0, 1.0, 2.0, 4.0):
            for mix in (0.0, 0.5, 1.0, 2.0):
                for scale in (5.0, 10.0, 20.0):
                    changes = {"locality": locality, "mix_mean": mix, "scale": scale}
                    yield preset("recommended", k=k, **changes)
            yield preset("recommended", k=k, locality=locality, query="tokens", score="max")
    for change in (
        {"special_tokens": True},
        {"append": "mean"},
        {"append": "cls"},
        {"seeding": "random"},
        {"score": "max"},
        {"query": "cls"},
        {"documents": "random"},
        {"documents": "first"},
        {"documents": "stretches"},
    ):
        yield preset("recommended", **change)
    yield preset("late-interaction")


def embed_all(model: MultiVectorEncoder, texts: list[str], task: encoding.Task) -> Iterator[Batch]:
    """Yield padded batches of texts of like length, in half precision, on the model's device."""
    order = sorted(range(len(texts)), key=lambda text: -len(texts[text]))
    for start in range(0, len(order), 64):
        batch = order[start : start + 64]
        reading = encoding.read_texts(model, [texts[text] for text in batch], task)
        padded = [
            torch.nn.utils.rnn.pad_sequence(list(parts), batch_first=True)
            for parts in zip(*(reading.tokens[row] for row in range(len(batch))), strict=True)
        ]
        yield batch, Tokens(padded[0].half(), padded[1], padded[2])


def evaluate(
    model: MultiVectorEncoder,
    settings: Representation,
    batches: list[Batch],
    query_batches: list[Batch],
    judged: list[set[int]],
) -> dict[str, float]:
    pooling = Pooling(**settings.settings()).to(model.device)
    documents = pool(pooling, batches, "document")
    queries = pool(pooling, query_batches, "query")
    ranked: list[list[int]] = [[] for _ in judged]
    for rows, values, mask in queries:
        for start in range(0, len(rows), 8 if settings.query == "tokens" else 64):
            part = slice(start, start + (8 if settings.query == "tokens" else 64))
            scores = score(values[part], mask[part], documents, settings)
            top = scores.topk(20, dim=1).indices.tolist()
            for row, best in zip(rows[part], top, strict=True):
                ranked[row] = best
    return metrics(ranked, judged)


def pool(
    pooling: Pooling, batches: list[Batch], task: str
) -> list[tuple[list[int], Tensor, Tensor]]:
    pooled = []
    for rows, tokens in batches:
        vectors = pooling.vectors(tokens._replace(embeddings=tokens.embeddings.float()), task)
        pooled.append((rows, vectors.values, vectors.mask))
    return pooled


def score(
    queries: Tensor,
    mask: Tensor,
    documents: list[tuple[list[int], Tensor, Tensor]],
    settings: Representation,
) -> Tensor:
    """Score a few queries against the whole corpus: (queries, documents) in corpus order."""
    total = sum(len(rows) for rows, _, _ in documents)
    scores = queries.new_empty((len(queries), total))
    for rows, values, real in documents:
        dots = settings.scale * torch.einsum("qnd,bkd->qbnk", queries, values)
        dots = dots.masked_fill(~real[None, :, None, :], -torch.inf)
        # A missing query vector adds nothing; a document without vectors stays last.
        dots = dots.masked_fill(~mask[:, None, :, None], 0.0)
        scores[:, rows] = document_score(dots, settings.score)
    return scores


def metrics(ranked: list[list[int]], judged: list[set[int]]) -> dict[str, float]:
    reciprocal = gain = successes = 0.0
    for best, relevant in zip(ranked, judged, strict=True):
        hits = [rank for rank, row in enumerate(best) if row in relevant]
        reciprocal += 1 / (hits[0] + 1) if hits and hits[0] < 10 else 0.0
        successes += bool(hits)
        ideal = sum(1 / math.log2(2 + rank) for rank in range(min(10, len(relevant))))
        gain += sum(1 / math.log2(2 + rank) for rank in hits if rank < 10) / ideal
    count = len(judged)
    return {
        "MRR@10": round(100 * reciprocal / count, 2),
        "nDCG@10": round(100 * gain / count, 2),
        "top-20": round(100 * successes / count, 2),
        "queries": count,
    }


if __name__ == "__main__":
    main()
