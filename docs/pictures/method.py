"""Draw docs/pictures/method.svg: a real document's pseudo queries, and why an answer is proven.

python docs/pictures/method.py demo-index     (the index that `make demo` makes)

Left, the tokens of the best hit on a plane, each in the colour of its cluster. Right, the documents
in the order of the first step, with what bounds their scores.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from numpy.typing import NDArray

from pseudoquery import Document, Index
from pseudoquery.encoding.encode import document_text, encode_queries, pool_texts, read_texts
from pseudoquery.encoding.pooling import pooling_of
from pseudoquery.method.scores import window
from pseudoquery.search.exact_scores import exact_scores
from pseudoquery.storage.store import folder_store

QUESTION = "How do plants turn light into energy?"
TOP, RECALLED, DRAWN = 10, 60, 120
TARGET = Path(__file__).with_suffix(".svg")
LABEL = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1}
GREY, BLUE, RED = "#b0b4ba", "#3366aa", "#c0392b"


def main() -> None:
    """Draw both halves."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("index", type=Path)
    index = Index.open(arguments.parse_args().index)
    mpl.rcParams.update(
        {"svg.hashsalt": "pseudoquery", "font.size": 9, "axes.spines.top": False}
        | {"axes.spines.right": False, "axes.titlesize": 10, "figure.facecolor": "white"}
    )
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.2), width_ratios=[1, 1.25])
    document = index.get(index.search(QUESTION, 1).hits[0].id)
    assert document
    draw_document(left, index, document)
    draw_certificate(right, index)
    figure.tight_layout(w_pad=3)
    figure.savefig(TARGET, metadata={"Date": None})


def draw_document(axes: Axes, index: Index, document: Document) -> None:
    """Put a document's tokens, its pseudo queries and the question on their main plane."""
    reading = read_texts(index.model, [document_text(document)[0]], "document")
    encoded = pool_texts(pooling_of(index.model), reading, "document")[0]
    tokens = reading.tokens[0].embeddings.float().cpu().numpy()
    query = encode_queries(index.model, [QUESTION])[0]
    # As the pseudo queries are made: the document's mean is added, then the length is made 1.
    tokens = unit(tokens + index.representation.mix_mean * tokens.mean(axis=0))
    tokens = tokens[encoded.owners >= 0]
    owners = encoded.owners[encoded.owners >= 0]
    middle = encoded.vectors.mean(axis=0)
    _, _, directions = np.linalg.svd(encoded.vectors - middle, full_matrices=False)
    plane = directions[:2].T
    colours = mpl.colormaps["tab20"](np.arange(len(encoded.vectors)) % 20)
    flat, means, asked = ((part - middle) @ plane for part in (tokens, encoded.vectors, query))
    axes.scatter(*flat.T, c=colours[owners], s=9, alpha=0.55, linewidths=0)
    axes.scatter(*means.T, c=colours, s=80, marker="o", edgecolors="black", linewidths=0.9)
    axes.scatter(*asked.T, s=190, marker="*", c="black", zorder=3)
    best = int(np.argmax(encoded.vectors @ query[0]))
    axes.plot(*np.stack([asked[0], means[best]]).T, c="black", lw=0.9, ls=":")
    axes.annotate(
        "the question", asked[0], (-9, -13), textcoords="offset points", ha="right", bbox=LABEL
    )
    axes.spines[:].set_visible(False)
    axes.set(
        xticks=[], yticks=[], title=f"{len(tokens)} tokens, {len(means)} pseudo queries (rings)"
    )


def draw_certificate(axes: Axes, index: Index) -> None:
    """Order documents by their largest dot product, and draw the score of each below it."""
    settings = index.representation
    query = encode_queries(index.model, [QUESTION])[0]
    with folder_store(index.store).snapshot() as snapshot:
        view = snapshot.view
        documents = np.flatnonzero(view.live)
        scores = exact_scores(view, query, documents, settings)
        dots = settings.scale * (view.vectors(0, view.vector_count) @ query[0])
        largest = np.maximum.reduceat(dots, view.offsets[:-1])[documents]
    order = np.argsort(-largest)[:DRAWN]
    places = np.arange(1, DRAWN + 1)
    reached = np.sort(scores)[::-1][TOP - 1]
    lower = largest[order] - window(settings.k)
    axes.fill_between(places, lower, largest[order], color=BLUE, alpha=0.13, lw=0)
    axes.plot(places, largest[order], c=BLUE, lw=1.4, label="largest dot product m")
    known = places <= RECALLED
    best = scores[order] >= reached
    wins = f"the {TOP} best scores y"
    style = {"s": 13, "linewidths": 0, "zorder": 3}
    axes.scatter(places[known & ~best], scores[order][known & ~best], c=BLUE, **style)
    axes.scatter(places[best], scores[order][best], c=RED, label=wins, **style)
    axes.scatter(places[~known], scores[order][~known], c=GREY, label="not looked at", **style)
    axes.axhline(reached, c=RED, lw=0.9, ls="--")
    axes.axvline(RECALLED, c="black", lw=0.9, ls=":")
    ceiling = float(largest[order][RECALLED - 1])
    axes.annotate(
        f"here the first step stops:\nfurther on, y ≤ m ≤ {ceiling:.2f} < {reached:.2f}",
        (RECALLED, ceiling),
        (RECALLED + 6, float(largest[order][0])),
        va="top",
        arrowprops={"arrowstyle": "->", "lw": 0.8},
    )
    axes.set(
        xlabel="documents, in the order of the first step",
        ylabel=f"dot products and scores (scale {settings.scale:g})",
        title=f"Proven: the {TOP} best are all left of the line",
    )
    axes.legend(frameon=False, loc="lower left", fontsize=8)


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Bring vectors to length 1, as the pseudo queries are."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


if __name__ == "__main__":
    main()
