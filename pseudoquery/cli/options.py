"""Options that several commands have in common, said once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from pseudoquery.building.location import is_address
from pseudoquery.errors import QueryError


class _PathType(click.Path):
    """A path, or if `addresses`, also the address of a collection in Milvus as it stands."""

    def __init__(self, *, addresses: bool) -> None:
        # That a folder can't be read is for the store to say, which knows what to do.
        super().__init__(path_type=Path, readable=False)
        self._addresses = addresses

    def convert(self, value: Any, *context: Any) -> Any:
        if not is_address(value):
            return super().convert(value, *context)
        if not self._addresses:
            raise QueryError(f"{value} is an address; here, give a path on this machine.")
        return value


path_type = _PathType(addresses=False)
location_type = _PathType(addresses=True)
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for other programs.")
folder_argument = click.argument("folder", type=location_type)
first_step_option = click.option(
    "--first-step",
    type=click.Choice(["FLAT", "HNSW", "IVF_FLAT"]),
    help="In Milvus: the engine's structure. With FLAT, the default, answers can be proven.",
)
model_option = click.option(
    "--model",
    default="default",
    show_default=True,
    help="A model's folder, its id on the Hugging Face Hub, or 'default'.",
)
preset_option = click.option(
    "--preset",
    "preset_name",
    help="Another representation than the model's own: recommended, paper-passage, "
    "paper-document, paper-openqa, released-code, single-vector or late-interaction.",
)
k_option = click.option("--k", type=click.IntRange(min=1), help="Pseudo queries per document.")
long_option = click.option(
    "--long",
    type=click.Choice(["windows", "truncate"]),
    default="windows",
    show_default="windows, or truncate with a preset of the paper",
    help="Read long documents whole, or only their beginning.",
)
mode_option = click.option(
    "--mode",
    type=click.Choice(["dense", "bm25", "hybrid"]),
    default="dense",
    show_default=True,
    help="By meaning, by words, or both.",
)
exact_option = click.option(
    "--exact", is_flag=True, help="Search on until the answer is proven exact."
)


def _columns(_: click.Context, __: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    """Read FIELD=NAME as typed."""
    columns: dict[str, str] = {}
    for text in given:
        field, name = text.partition("=")[::2]
        if field not in ("id", "text", "title") or not name or field in columns:
            raise QueryError(
                f"--column {text} is not understood; write id=NAME, text=NAME or title=NAME, "
                "each at most once."
            )
        columns[field] = name
    return columns


columns_option = click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="FIELD=NAME",
    callback=_columns,
    help="Which column of a Hugging Face dataset is the id, the text or the title, if it has "
    "another name: text=passage. May be given several times.",
)
cluster_option = click.option(
    "--on",
    "cluster",
    metavar="CLUSTER",
    help="Spread the work over a Ray cluster: 'auto' for the one this machine belongs to, the "
    "HOST:PORT of its head node, ray://HOST:PORT, or 'local' to start one here.",
)
split_option = click.option("--split", required=True, help="The split to use, such as dev.")
SEARCH_SETTINGS = ("structure", "recall", "recall_vectors", "fusion", "weight")
_SEARCH_OPTIONS = (
    click.option(
        "--structure",
        type=click.Choice(["auto", "flat", "flat8", "hnsw", "hnsw8", "ivf", "ivf8"]),
        default="auto",
        show_default=True,
        help="The first step, or auto: a GPU, if one is there, or by size.",
    ),
    click.option(
        "--recall",
        type=int,
        default=200,
        show_default=True,
        help="Documents to recall in the first step; flat8 needs none.",
    ),
    click.option(
        "--recall-vectors",
        type=int,
        help="Recall this many vectors instead; the paper's setting is 1000*k.",
    ),
    click.option(
        "--fusion",
        type=click.Choice(["rrf", "weighted"]),
        default="weighted",
        show_default=True,
        help="How a hybrid search fuses its two rankings.",
    ),
    click.option(
        "--weight",
        type=float,
        default=0.5,
        show_default=True,
        help="The part of meaning in a weighted fusion.",
    ),
)


def search_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that become SearchSettings."""
    return reduce(lambda made, option: option(made), reversed(_SEARCH_OPTIONS), command)


def explicit_options(names: Iterable[str]) -> dict[str, Any]:
    """Return those of the running command's options that were given, and not left to default."""
    context = click.get_current_context()
    return {
        name: context.params[name]
        for name in names
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }


def refuse_without_effect(names: Iterable[str], beside: str) -> None:
    """Refuse options that were given and would change nothing beside another one."""
    useless = explicit_options(names)
    for option in click.get_current_context().command.params:
        if option.name in useless:
            raise QueryError(f"{option.opts[0]} has no effect {beside}; leave it out.")


where_option = click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="CONDITION",
    help="Only documents whose metadata fit: year>=1990, topic=law, 'topic in law,history'. "
    "May be given several times; all must hold.",
)
