"""Read Hugging Face datasets row by row: saved folders, Parquet files, and the Hub.

hf:OWNER/NAME                  a dataset on the Hub, or a local folder in the Hub's layout
hf:OWNER/NAME:CONFIG:SPLIT     one of its parts; CONFIG may be left empty

Reading takes constant memory. Dates and decimals, which JSON does not have, become text.
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
"""What test collections on the Hub call their documents, beside queries and qrels."""
BATCH_ROWS = 256
_AS_DATASET = " as a Hugging Face dataset"

DatasetRow: TypeAlias = dict[str, Any]
DatasetRows: TypeAlias = Iterator[tuple[str, DatasetRow]]
"""Each row with its origin, such as "corpus.parquet row 12"."""


def read_parquet(path: Path | str) -> DatasetRows:
    """Yield the rows of a Parquet file, local or remote."""
    parquet = import_arrow("pyarrow.parquet")
    source = open_remote(str(path)) if is_remote(path) else nullcontext(path)
    with (
        library_errors(str(path), _AS_DATASET),
        source as content,
        parquet.ParquetFile(content) as file,
    ):
        yield from _number_rows(str(path), file.iter_batches(BATCH_ROWS))


def is_saved_dataset(folder: Path) -> bool:
    """Say whether `save_to_disk` wrote this folder."""
    return any((folder / name).is_file() for name in ("state.json", "dataset_dict.json"))


def read_saved_dataset(folder: Path) -> DatasetRows:
    """Yield the rows of a folder that `save_to_disk` wrote."""
    datasets = import_arrow("datasets")
    with library_errors(str(folder), _AS_DATASET):
        dataset = datasets.load_from_disk(str(folder))
        if isinstance(dataset, datasets.DatasetDict):
            split = _choose_part("", list(dataset), f"{folder} has the splits", f"{folder}/SPLIT")
            dataset = dataset[split]
        yield from _read_tables(str(folder), dataset)


def read_hub_dataset(name: str) -> DatasetRows:
    """Stream the rows of a dataset on the Hub, or of a local folder in the Hub's layout."""
    datasets = import_arrow("datasets")
    origin = f"{HUB_PREFIX}{name}"
    dataset_name, _, rest = name.partition(":")
    config, _, split = rest.partition(":")
    with library_errors(origin, _AS_DATASET):
        configs = datasets.get_dataset_config_names(dataset_name)
        form = f"{HUB_PREFIX}{dataset_name}:CONFIG"
        config = _choose_part(config, configs, f"{origin} has the configurations", form)
        splits = datasets.get_dataset_split_names(dataset_name, config)
        form = f"{HUB_PREFIX}{dataset_name}:{config}:SPLIT"
        split = _choose_part(split, splits, f"{origin} has the splits", form)
        dataset = datasets.load_dataset(dataset_name, config, split=split, streaming=True)
        yield from _read_tables(origin, dataset)


def import_arrow(module: str) -> Any:
    """Import `datasets`, or pyarrow, which comes with it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise CorpusError(
            "datasets is not installed; run: pip install 'pseudoquery[datasets]'"
        ) from error


def _choose_part(name: str, parts: list[str], what: str, form: str) -> str:
    """Choose the part of this name, the only part, or the documents of a test collection."""
    if name in parts:
        return name
    if not name and (len(parts) == 1 or CORPUS in parts):
        return CORPUS if CORPUS in parts else parts[0]
    raise CorpusError(f"{what} {', '.join(parts)}; choose one with {form}.")


def _read_tables(name: str, dataset: Any) -> DatasetRows:
    """Read a dataset's Arrow tables as they are: no image is decoded, no type is guessed."""
    return _number_rows(name, dataset.with_format("arrow").iter(BATCH_ROWS))


def _number_rows(name: str, tables: Iterable[Any]) -> DatasetRows:
    """Yield the rows of tables, each with its origin."""
    number = 0
    for table in tables:
        for row in table.to_pylist():
            number += 1
            yield f"{name} row {number}", {key: _to_json(value) for key, value in row.items()}


def _to_json(value: Any) -> Any:
    """Write dates and decimals as text; `check_document` refuses other values that are not JSON."""
    if isinstance(value, list):
        return [_to_json(item) for item in value]
    if isinstance(value, dict):
        return {key: _to_json(item) for key, item in value.items()}
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal | datetime.timedelta) else value
