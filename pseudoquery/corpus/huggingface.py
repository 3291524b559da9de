"""Hugging Face datasets, row by row: saved folders, Parquet files, and the Hub.

hf:OWNER/NAME                  a dataset on the Hub, or a local folder in the Hub's layout
hf:OWNER/NAME:CONFIG:SPLIT     one of its parts; CONFIG may be left empty

Rows come out in constant memory, as plain JSON where Arrow has types that JSON has not.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from pseudoquery.corpus.remote import is_remote, opened, plain_errors
from pseudoquery.errors import CorpusError

PREFIX = "hf:"
CORPUS = "corpus"
"""What the documents' part of a test collection is called on the Hub, among queries and qrels."""
ROWS_AT_ONCE = 256
AS_DATASET = " as a Hugging Face dataset"

DatasetRow: TypeAlias = dict[str, Any]
Rows: TypeAlias = Iterator[tuple[str, DatasetRow]]
"""Each row with its origin, such as "corpus.parquet row 12"."""


def parquet_rows(path: Path | str) -> Rows:
    """Yield the rows of a Parquet file, here or at an address."""
    parquet = arrow("pyarrow.parquet")
    there = opened(str(path)) if is_remote(path) else nullcontext(path)
    with (
        plain_errors(str(path), AS_DATASET),
        there as content,
        parquet.ParquetFile(content) as file,
    ):
        yield from _placed(str(path), file.iter_batches(ROWS_AT_ONCE))


def is_saved(folder: Path) -> bool:
    """Tell whether a folder was written by `save_to_disk`."""
    return any((folder / name).is_file() for name in ("state.json", "dataset_dict.json"))


def saved_rows(folder: Path) -> Rows:
    """Yield the rows of a folder that was written by `save_to_disk`."""
    datasets = arrow("datasets")
    with plain_errors(str(folder), AS_DATASET):
        found = datasets.load_from_disk(str(folder))
        if isinstance(found, datasets.DatasetDict):
            split = _chosen("", list(found), f"{folder} has the splits", f"{folder}/SPLIT")
            found = found[split]
        yield from _rows(str(folder), found)


def hub_rows(name: str) -> Rows:
    """Yield the rows of a dataset on the Hub, or of a folder in its layout, as they come."""
    datasets = arrow("datasets")
    origin = f"{PREFIX}{name}"
    dataset, _, rest = name.partition(":")
    config, _, split = rest.partition(":")
    with plain_errors(origin, AS_DATASET):
        configs = datasets.get_dataset_config_names(dataset)
        form = f"{PREFIX}{dataset}:CONFIG"
        config = _chosen(config, configs, f"{origin} has the configurations", form)
        splits = datasets.get_dataset_split_names(dataset, config)
        form = f"{PREFIX}{dataset}:{config}:SPLIT"
        split = _chosen(split, splits, f"{origin} has the splits", form)
        found = datasets.load_dataset(dataset, config, split=split, streaming=True)
        yield from _rows(origin, found)


def arrow(module: str) -> Any:
    """Import `datasets`, or pyarrow, which comes with it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise CorpusError(
            "datasets is not installed; run: pip install 'pseudoquery[datasets]'"
        ) from error


def _chosen(wanted: str, there: list[str], what: str, form: str) -> str:
    """Choose the part that was asked for, the only one, or the documents of a test collection."""
    if wanted in there:
        return wanted
    if not wanted and (len(there) == 1 or CORPUS in there):
        return CORPUS if CORPUS in there else there[0]
    raise CorpusError(f"{what} {', '.join(there)}; choose one, with {form}.")


def _rows(name: str, dataset: Any) -> Rows:
    """Read a dataset by its Arrow tables: nothing is decoded, such as images, nor guessed."""
    return _placed(name, dataset.with_format("arrow").iter(ROWS_AT_ONCE))


def _placed(name: str, tables: Iterable[Any]) -> Rows:
    number = 0
    for table in tables:
        for row in table.to_pylist():
            number += 1
            yield f"{name} row {number}", {key: _plain(value) for key, value in row.items()}


def _plain(value: Any) -> Any:
    """Write dates and decimals as text; what else JSON has not is for the reader to refuse."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal | datetime.timedelta) else value
