"""Options and arguments that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from pseudoquery.building.location import is_address
from pseudoquery.errors import QueryError
from pseudoquery.search.settings import RANK_BY


class _PathType(click.Path):
    """A path on this machine or, with `addresses`, the address of a collection in Milvus."""

    def __init__(self, *, addresses: bool) -> None:
        # The store reports a folder that can't be read, because it knows what to do about it.
        super().__init__(path_type=Path, readable=False)
        self._addresses = addresses

    def convert(self, value: Any, *context: Any) -> Any:
        if not is_address(value):
            return super().convert(value, *context)
        if not self._addresses:
            raise QueryError(f"{value} is an address; give a path on this machine.")
        return value


path_type = _PathType(addresses=False)
location_type = _PathType(addresses=True)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for other programs.")
location_argument = click.argument("location", metavar="FOLDER", type=location_type)
first_step_option = click.option(
    "--first-step",
    type=click.Choice(["FLAT", "HNSW", "IVF_FLAT"]),
    help="The structure of the first step in Milvus. With FLAT, the default, answers can be proven "
    "exact.",
)
model_option = click.option(
    "--model",
    default="default",
    show_default=True,
    help="The encoder: 'default' (the bundled model), a folder, or an id on the Hugging Face Hub.",
)
preset_option = click.option(
    "--preset",
    "preset_name",
    help="Replace the model's representation by this one: recommended, paper-passage, "
    "paper-document, paper-openqa, released-code, single-vector or late-interaction.",
)
k_option = click.option(
    "--k", type=click.IntRange(min=1), help="How many pseudo queries each document has."
)
long_option = click.option(
    "--long",
    type=click.Choice(["windows", "truncate"]),
    default="windows",
    show_default="windows, or truncate with a preset of the paper",
    help="Encode all of a long document, or only its beginning.",
)
mode_option = click.option(
    "--mode",
    type=click.Choice(["dense", "bm25", "hybrid"]),
    default="dense",
    show_default=True,
    help="Search by meaning, by words, or by both.",
)
tokens_option = click.option(
    "--tokens",
    type=click.Choice(["signs", "int8", "float16", "none"]),
    show_default="signs with pseudo queries, otherwise none",
    help="How the vectors of a document's tokens are stored, by which the best documents are "
    "ranked. signs takes one bit a number.",
)
exact_option = click.option(
    "--exact", is_flag=True, help="Search until the answer is proven exact."
)


def _parse_columns(_: click.Context, __: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    """Read FIELD=NAME."""
    columns: dict[str, str] = {}
    for text in values:
        field, name = text.partition("=")[::2]
        if field not in ("id", "text", "title") or not name or field in columns:
            raise QueryError(
                f"--column {text} can't be used; write id=NAME, text=NAME or title=NAME, each at "
                "most once."
            )
        columns[field] = name
    return columns


column_option = click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="FIELD=NAME",
    callback=_parse_columns,
    help="The column of a Hugging Face dataset that holds the id, the text or the title, if it has "
    "another name: text=passage. Repeat the option for several columns.",
)
cluster_option = click.option(
    "--on",
    "cluster",
    metavar="CLUSTER",
    help="Spread the work over a Ray cluster: 'auto' for the cluster that this machine belongs to, "
    "HOST:PORT of a head node, ray://HOST:PORT, or 'local' to start a cluster here.",
)
split_option = click.option(
    "--split", required=True, help="The split of the test collection, such as dev."
)
SEARCH_SETTINGS = (
    "structure",
    "recall",
    "recall_vectors",
    "rank_by",
    "token_depth",
    "vector_share",
    "fusion",
    "weight",
)
_SEARCH_OPTIONS = (
    click.option(
        "--structure",
        type=click.Choice(["auto", "flat", "flat8", "hnsw", "hnsw8", "ivf", "ivf8"]),
        default="auto",
        show_default=True,
        help="The structure of the first step. auto uses a GPU if there is one; without a GPU, it "
        "chooses by the size of the index.",
    ),
    click.option(
        "--recall",
        type=int,
        default=200,
        show_default=True,
        help="How many documents the first step recalls; flat8 does not need it.",
    ),
    click.option(
        "--recall-vectors",
        type=int,
        help="Recall this many vectors instead of documents; the paper recalls 1000*k.",
    ),
    click.option(
        "--rank-by",
        type=click.Choice(RANK_BY),
        default="auto",
        show_default=True,
        help="Rank the best documents by the tokens that the index stores, or by their vectors "
        "alone. auto ranks by tokens if there are any.",
    ),
    click.option(
        "--token-depth",
        type=int,
        default=100,
        show_default=True,
        help="How many of the best documents by vectors are ranked by tokens, at least.",
    ),
    click.option(
        "--vector-share",
        type=float,
        default=0.2,
        show_default=True,
        help="How much the score of the vectors counts beside that of the tokens, from 0 to 1.",
    ),
    click.option(
        "--fusion",
        type=click.Choice(["rrf", "weighted"]),
        default="weighted",
        show_default=True,
        help="How a hybrid search joins its two rankings.",
    ),
    click.option(
        "--weight",
        type=float,
        default=0.9,
        show_default=True,
        help="The weight of meaning in a weighted fusion, from 0 to 1.",
    ),
)


def search_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that become SearchSettings."""
    return reduce(lambda inner, option: option(inner), reversed(_SEARCH_OPTIONS), command)


def explicit_options(names: Iterable[str]) -> dict[str, Any]:
    """Return the options that the user gave; options left at their default are not among them."""
    context = click.get_current_context()
    return {
        name: context.params[name]
        for name in names
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }


def refuse_without_effect(names: Iterable[str], beside: str) -> None:
    """Refuse options that the user gave and that change nothing beside another option."""
    explicit = explicit_options(names)
    for option in click.get_current_context().command.params:
        if option.name in explicit:
            raise QueryError(f"{option.opts[0]} has no effect {beside}; leave it out.")


where_option = click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="CONDITION",
    help="Only documents whose metadata match: year>=1990, topic=law, 'topic in law,history'. "
    "Repeat the option to add conditions; all must hold.",
)
