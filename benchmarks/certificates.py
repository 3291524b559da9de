"""Measure how often answers are proven exact at once, by how many documents are recalled.

    python benchmarks/certificates.py INDEX DATASET:SPLIT

For each structure and depth: the share of questions whose ten best are proven without `exact`, the
share of answers that are in fact exact, and how many documents were scored.
"""

from __future__ import annotations

import argparse
import json

from pseudoquery import Index, SearchSettings
from pseudoquery.corpus.datasets import load_dataset


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("index")
    arguments.add_argument("dataset", help="FOLDER:SPLIT")
    arguments.add_argument("--queries", type=int, default=500)
    options = arguments.parse_args()
    index = Index.open(options.index)
    folder, _, split = options.dataset.rpartition(":")
    queries = load_dataset(folder, split).queries
    texts = [query.text for query in queries[:: max(1, len(queries) // options.queries)]]
    truth = [[hit.id for hit in answer.hits] for answer in index.search_many(texts, 10, exact=True)]
    for structure in ("flat", "flat8", "hnsw"):
        for recall in (10, 50, 100, 200, 400):
            settings = SearchSettings(structure=structure, recall=recall)
            answers = index.search_many(texts, 10, settings=settings)
            exact = [[hit.id for hit in a.hits] == t for a, t in zip(answers, truth, strict=True)]
            row = {
                "structure": structure,
                "recall": recall,
                "proven": round(sum(answer.certified for answer in answers) / len(texts), 4),
                "exact": round(sum(exact) / len(texts), 4),
                "scored": round(sum(answer.candidates for answer in answers) / len(texts), 1),
            }
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
