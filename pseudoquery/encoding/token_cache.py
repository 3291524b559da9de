"""Texts as token ids, kept on disk: trainings read the same texts many times."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save
from sentence_transformers import MultiVectorEncoder

from pseudoquery.encoding.windows import Task, Window, split, tokenizer_settings, window_length
from pseudoquery.files import write_atomically

TEXTS_AT_ONCE = 4096
"""Texts that are tokenised at once."""


@dataclass(frozen=True, slots=True)
class Windowed:
    """A tokenised text."""

    ids: tuple[NDArray[np.int32], ...]
    """The token ids of each window, special tokens included."""
    kept: tuple[NDArray[np.bool_], ...]
    """False for a token that another window represents better."""

    def __len__(self) -> int:
        return sum(int(kept.sum()) for kept in self.kept)


def tokenise(
    model: MultiVectorEncoder,
    texts: Sequence[str],
    task: Task,
    most: int | None = None,
    cache: Path | None = None,
) -> list[Windowed]:
    """Cut texts into the windows in which the model reads them; keep of each `most` tokens.

    With a folder as cache, the same texts are tokenised only once.
    """
    if cache is not None:
        path = cache / f"{_fingerprint(model, texts, task, most)}.safetensors"
        if path.exists():
            return unpack(load_file(path))
        made = tokenise(model, texts, task, most)
        cache.mkdir(parents=True, exist_ok=True)
        write_atomically(path, save(pack(made)))
        return made
    tokenised = []
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        windows, _ = split(model, texts[start : start + TEXTS_AT_ONCE], task, "windows")
        by_text: dict[int, list[Window]] = defaultdict(list)
        for window in windows:
            by_text[window.text].append(window)
        tokenised += [_join_windows(text_windows, most) for text_windows in by_text.values()]
    return tokenised


def _join_windows(windows: Sequence[Window], most: int | None) -> Windowed:
    """Put a text's windows together, up to the one with which it has `most` tokens."""
    ids, keeps = [], []
    left = most
    for window in windows:
        kept = window.kept
        if left is not None:
            # What stands at a window's end is kept in the next one, unless none is needed.
            to_the_end = kept.copy()
            to_the_end[len(kept) // 2 :] = True
            if left <= int(to_the_end.sum()):
                kept = to_the_end & (to_the_end.cumsum() <= left)
            left -= int(kept.sum())
        ids.append(np.array(window.ids, dtype=np.int32))
        keeps.append(kept)
        if left == 0:
            break
    return Windowed(tuple(ids), tuple(keeps))


def _fingerprint(
    model: MultiVectorEncoder, texts: Sequence[str], task: Task, most: int | None
) -> str:
    """Hash all that decides what becomes of texts."""
    settings = [
        tokenizer_settings(model),
        window_length(model),
        model.prompts.get(task) or "",
        most,
    ]
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest.hexdigest()[:32]


def pack(texts: Sequence[Windowed]) -> dict[str, NDArray[Any]]:
    """Lay the windows of all texts end to end."""
    ids = [window for text in texts for window in text.ids]
    kept = [window for text in texts for window in text.kept]
    return {
        "ids": np.concatenate([np.zeros(0, np.int32), *ids]),
        "kept": np.concatenate([np.zeros(0, np.bool_), *kept]),
        "lengths": np.array([len(window) for window in ids], dtype=np.int64),
        "windows": np.array([len(text.ids) for text in texts], dtype=np.int64),
    }


def unpack(packed: Mapping[str, NDArray[Any]]) -> list[Windowed]:
    """Undo `pack`."""
    ends = np.cumsum(packed["lengths"])[:-1]
    ids, kept = (np.split(packed[key], ends) for key in ("ids", "kept"))
    windows = iter(zip(ids, kept, strict=True))
    return [
        Windowed(*zip(*islice(windows, count), strict=True)) for count in packed["windows"].tolist()
    ]
