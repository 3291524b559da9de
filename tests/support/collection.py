"""Documents for the tests, and a test collection to train on: each question names a thing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pseudoquery.records import Document

WORDS = re.findall(
    r"\w+",
    "river city king queen war peace music song book water fire earth sun moon bird cat dog horse "
    "tree flower house door road train ship year night people child school money bread wine heart",
)
DOCUMENTS = [
    Document(
        f"id {number}",
        " ".join(WORDS[(number * step) % len(WORDS)] for step in range(1, 8 + number % 5)),
        f"{WORDS[number]} history" if number % 3 == 0 else "",
        {"n": number, "even": number % 2 == 0, "tags": [WORDS[number], "all"]},
    )
    for number in range(30)
]

THINGS = (
    "king",
    "city",
    "book",
    "river",
    "woman",
    "horse",
    "moon",
    "sun",
    "bridge",
    "bird",
    "song",
    "war",
)


def write_collection(folder: Path, answers: bool = False) -> Path:
    """Write a BEIR folder with twelve documents, two questions each for training, one for dev."""
    (folder / "qrels").mkdir(parents=True)
    documents: list[dict[str, Any]] = []
    queries: list[dict[str, Any]] = []
    qrels: dict[str, list[str]] = {"train": [], "dev": []}
    for position, thing in enumerate(THINGS):
        before = THINGS[position - 1]
        text = f"This is about the {thing}. It was {before} day, and {thing} again."
        documents.append({"_id": f"d{position}", "text": text})
        for number, question in enumerate(
            ("what about the {}", "who saw the {}", "where is the {}")
        ):
            id_ = f"q{position}-{number}"
            metadata = {"metadata": {"answers": [thing]}} if answers else {}
            queries.append({"_id": id_, "text": question.format(thing), **metadata})
            qrels["dev" if number == 2 else "train"].append(f"{id_}\td{position}\t1")
    for name, rows in (("corpus", documents), ("queries", queries)):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines)
    for split, judged in qrels.items():
        content = "\n".join(["query-id\tcorpus-id\tscore", *judged]) + "\n"
        (folder / "qrels" / f"{split}.tsv").write_text(content)
    return folder


def write_scores(scores: Mapping[str, Mapping[str, float]], path: Path) -> None:
    """Write a teacher's scores in the format that training reads."""
    lines = (
        json.dumps({"query": query, "scores": dict(documents)})
        for query, documents in scores.items()
    )
    path.write_text("".join(f"{line}\n" for line in lines))
