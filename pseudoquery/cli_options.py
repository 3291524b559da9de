"""Options that several commands have in common, said once."""

from __future__ import annotations

from pathlib import Path

import click

# That a folder can't be read is for the store to say, which knows what to do.
path_type = click.Path(path_type=Path, readable=False)

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for other programs.")
folder_argument = click.argument("folder", type=path_type)
model_option = click.option(
    "--model",
    default="default",
    show_default=True,
    help="A model's folder, its id on the Hugging Face Hub, or 'default'.",
)
preset_option = click.option(
    "--preset",
    "preset_name",
    help="Another representation than the model's own: paper, released-code, recommended, "
    "single-vector or late-interaction.",
)
k_option = click.option("--k", type=click.IntRange(min=1), help="Pseudo queries per document.")
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
split_option = click.option("--split", required=True, help="The split to use, such as dev.")
