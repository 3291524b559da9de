"""The model card: what a model was made of, from which data, under which licences, and its scores.

It is the README.md of the model's folder, with the metadata that the Hugging Face Hub reads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCardData
from sentence_transformers import MultiVectorEncoder

from pseudoquery.encoding.model import PUBLISHED_MODEL, locate_model, representation_of
from pseudoquery.markdown import format_table
from pseudoquery.method.representation import Representation
from pseudoquery.training.batches import TokenisedSets
from pseudoquery.training.config import Config, dataset_folder, describe_settings, short_name
from pseudoquery.training.examples import hash_training_set
from pseudoquery.version import VERSION

PUBLISHED_MODEL_ID = "sentence-transformers/all-MiniLM-L6-v2"
NOT_STATED = "not stated"
README_NAMES = ("README.txt", "README.md")
FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
TAGS = ["sentence-transformers", "multi-vector", "feature-extraction", "pseudoquery"]


@dataclass(frozen=True, slots=True)
class DataSource:
    """A dataset that a model has learnt from."""

    name: str
    documents: int
    queries: int
    licence: str
    sha256: str


@dataclass(frozen=True, slots=True)
class CardFacts:
    """The facts that a card states."""

    base_model: str
    base_model_id: str | None
    """Its id on the Hub, if it has one."""
    base_licence: str | None
    representation: Representation
    sources: Sequence[DataSource]
    settings: Mapping[str, Any]
    figures: Mapping[str, Mapping[str, float]]
    """For each evaluated set, the measures between 0 and 1."""


def make_card(facts: CardFacts) -> str:
    """Write the card of a trained model."""
    metadata = ModelCardData(
        library_name="sentence-transformers",
        pipeline_tag="feature-extraction",
        tags=TAGS,
        license=facts.base_licence,
        base_model=facts.base_model_id,
    )
    # Some datasets have answers to look for, and with them measures that others lack.
    evaluated = list(facts.figures.values())
    measures = [
        measure
        for measure in (evaluated[0] if evaluated else {})
        if all(measure in figures for figures in evaluated)
    ]
    scores = [
        (name, *(f"{100 * figures[measure]:.2f}" for measure in measures))
        for name, figures in facts.figures.items()
    ]
    datasets = [
        (source.name, f"{source.documents:,}", f"{source.queries:,}", source.sha256)
        for source in facts.sources
    ]
    sections = (
        f"# A retrieval model trained by pseudoquery {VERSION}",
        f"It turns documents into {_describe_vectors(facts.representation)} and is loaded with "
        '`pseudoquery.load_model("this folder")`, or by any command with `--model`.',
        f"Base model: {facts.base_model}, licence: {facts.base_licence or NOT_STATED}."
        f"{_describe_mixing(facts.settings.get('start_weight', 0.0))}",
        "## Training data",
        format_table(("set", "documents", "queries", "sha256"), datasets),
        "Licences, in the words of each dataset:",
        "\n".join(f"- {source.name}: {source.licence}" for source in facts.sources),
        "## Scores",
        "In percent; for each query, all documents of the corpus are ranked.",
        format_table(("set", *measures), scores) if scores else "Nothing was evaluated.",
        "## Representation",
        format_table(("setting", "value"), facts.representation.settings().items()),
        "## Training settings",
        format_table(("setting", "value"), facts.settings.items()),
    )
    return f"---\n{metadata.to_yaml()}\n---\n\n" + "\n\n".join(sections) + "\n"


def collect_facts(
    config: Config,
    tokenised: TokenisedSets,
    model: MultiVectorEncoder,
    figures: Mapping[str, Mapping[str, float]],
) -> CardFacts:
    """Collect the facts of a card; of files and folders, only the names."""
    base = Path(locate_model(config.model))
    base_id = _hub_id(config.model)
    sources = [
        DataSource(
            short_name(name),
            len(training_set.texts),
            len(training_set.examples),
            read_dataset_licence(dataset_folder(name)),
            hash_training_set(training_set),
        )
        for name, training_set in zip(config.train, tokenised.training_sets, strict=True)
    ]
    elsewhere = ("output", "train", "evaluate", "model", "preset", "representation")
    settings = _flatten(
        {name: value for name, value in describe_settings(config).items() if name not in elsewhere}
    )
    for name in ("teacher", "first_negatives", "loss.anchor_model"):
        if name in settings:
            settings[name] = Path(settings[name]).name
    return CardFacts(
        name_model(config.model),
        base_id,
        read_model_licence(base),
        representation_of(model),
        sources,
        settings,
        {short_name(name): measures for name, measures in figures.items()},
    )


def name_model(name: str) -> str:
    """Name a model by its id on the Hub or, if it has none, by its folder's last part."""
    return _hub_id(name) or Path(locate_model(name)).absolute().name


def _hub_id(name: str) -> str | None:
    if name == PUBLISHED_MODEL:
        return PUBLISHED_MODEL_ID
    return None if Path(locate_model(name)).exists() else name


def _flatten(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Name the settings of a table by the table's name, a dot and their own."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{inner}": setting for inner, setting in value.items()}
        else:
            flat[name] = value
    return flat


def _describe_mixing(share: float) -> str:
    """Say that the weights are averages, if they are."""
    if not share:
        return ""
    return (
        f" The weights are averages: {share:.3g} of those that the training started from, and "
        f"{1 - share:.3g} of those that it ended with."
    )


def read_dataset_licence(folder: Path) -> str:
    """Return the first paragraph of a dataset's README, where it states source and licence."""
    for name in README_NAMES:
        try:
            text = (folder / name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        for paragraph in re.split(r"\n\s*\n", FRONT_MATTER.sub("", text)):
            words = [line for line in paragraph.splitlines() if not line.startswith("#")]
            if stated := " ".join(" ".join(words).split()):
                return stated
    return NOT_STATED


def read_model_licence(folder: Path) -> str | None:
    """Return the licence that a model's card states, if there is one."""
    try:
        text = (folder / "README.md").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    metadata = FRONT_MATTER.match(text)
    stated = metadata and re.search(r"^license: *([\w.-]+) *$", metadata[0], re.MULTILINE)
    return stated[1] if stated else None


def _describe_vectors(settings: Representation) -> str:
    if settings.documents == "pseudo-queries":
        return f"up to {settings.k} pseudo query embeddings each (K-means over their tokens)"
    if settings.documents in ("first", "learnt", "random", "stretches"):
        return f"{settings.k} vectors each ({settings.documents})"
    return "one vector per token" if settings.documents == "tokens" else "one vector each"
