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

from pseudoquery.corpus.remote import is_remote, library_errors, open_remote
from pseudoquery.errors import CorpusError

HUB_PREFIX = "hf:"
CORPUS = "corpus"
"""What the documents' part of a test collection is called on the Hub, among queries and qrels."""
ROWS_AT_ONCE = 256
AS_DATASET = " as a Hugging Face dataset"

DatasetRow: TypeAlias = dict[str, Any]
DatasetRows: TypeAlias = Iterator[tuple[str, DatasetRow]]
"""Each row with its origin, such as "corpus.parquet row 12"."""


def read_parquet(path: Path | str) -> DatasetRows:
    """Yield the rows of a Parquet file, here or at an address."""
    parquet = import_arrow("pyarrow.parquet")
    there = open_remote(str(path)) if is_remote(path) else nullcontext(path)
    with (
        library_errors(str(path), AS_DATASET),
        there as content,
        parquet.ParquetFile(content) as file,
    ):
        yield from _number_rows(str(path), file.iter_batches(ROWS_AT_ONCE))


def is_saved_dataset(folder: Path) -> bool:
    """Tell whether a folder was written by `save_to_disk`."""
    return any((folder / name).is_file() for name in ("state.json", "dataset_dict.json"))


def read_saved_dataset(folder: Path) -> DatasetRows:
    """Yield the rows of a folder that was written by `save_to_disk`."""
    datasets = import_arrow("datasets")
    with library_errors(str(folder), AS_DATASET):
        found = datasets.load_from_disk(str(folder))
        if isinstance(found, datasets.DatasetDict):
            split = _choose_part("", list(found), f"{folder} has the splits", f"{folder}/SPLIT")
            found = found[split]
        yield from _read_tables(str(folder), found)


def read_hub_dataset(name: str) -> DatasetRows:
    """Yield the rows of a dataset on the Hub, or of a folder in its layout, as they come."""
    datasets = import_arrow("datasets")
    origin = f"{HUB_PREFIX}{name}"
    dataset, _, rest = name.partition(":")
    config, _, split = rest.partition(":")
    with library_errors(origin, AS_DATASET):
        configs = datasets.get_dataset_config_names(dataset)
        form = f"{HUB_PREFIX}{dataset}:CONFIG"
        config = _choose_part(config, configs, f"{origin} has the configurations", form)
        splits = datasets.get_dataset_split_names(dataset, config)
        form = f"{HUB_PREFIX}{dataset}:{config}:SPLIT"
        split = _choose_part(split, splits, f"{origin} has the splits", form)
        found = datasets.load_dataset(dataset, config, split=split, streaming=True)
        yield from _read_tables(origin, found)


def import_arrow(module: str) -> Any:
    """Import `datasets`, or pyarrow, which comes with it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise CorpusError(
            "datasets is not installed; run: pip install 'pseudoquery[datasets]'"
        ) from error


def _choose_part(wanted: str, there: list[str], what: str, form: str) -> str:
    """Choose the part that was asked for, the only one, or the documents of a test collection."""
    if wanted in there:
        return wanted
    if not wanted and (len(there) == 1 or CORPUS in there):
        return CORPUS if CORPUS in there else there[0]
    raise CorpusError(f"{what} {', '.join(there)}; choose one, with {form}.")


def _read_tables(name: str, dataset: Any) -> DatasetRows:
    """Read a dataset by its Arrow tables: nothing is decoded, such as images, nor guessed."""
    return _number_rows(name, dataset.with_format("arrow").iter(ROWS_AT_ONCE))


def _number_rows(name: str, tables: Iterable[Any]) -> DatasetRows:
    number = 0
    for table in tables:
        for row in table.to_pylist():
            number += 1
            yield f"{name} row {number}", {key: _to_json(value) for key, value in row.items()}


def _to_json(value: Any) -> Any:
    """Write dates and decimals as text; what else JSON has not is for the reader to refuse."""
    if isinstance(value, list):
        return [_to_json(item) for item in value]
    if isinstance(value, dict):
        return {key: _to_json(item) for key, item in value.items()}
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal | datetime.timedelta) else value
