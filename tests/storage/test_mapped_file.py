"""Files mapped into memory: their bytes, no open descriptor, and gone with the last array."""

from __future__ import annotations

import errno
import gc
import os
from pathlib import Path

import numpy as np
import pytest

from pseudoquery.storage import mapped_file
from pseudoquery.storage.mapped_file import PAGE, map_file, read_ahead


def count_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def is_mapped(path: Path) -> bool:
    return str(path) in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize("size", [1, PAGE - 1, PAGE, 3 * PAGE + 5])
def test_a_mapping_shows_the_file_and_keeps_no_descriptor(size: int, tmp_path: Path) -> None:
    path = tmp_path / "file"
    data = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    path.write_bytes(data.tobytes())
    before = count_descriptors()
    content = map_file(path)
    part = content[size // 2 :]
    assert count_descriptors() == before
    read_ahead(content)
    read_ahead(part)
    read_ahead(content[:0])
    assert content.tobytes() == data.tobytes()
    del content
    gc.collect()
    assert is_mapped(path)
    assert part.tobytes() == data[size // 2 :].tobytes(), "a part holds the whole"
    del part
    gc.collect()
    assert not is_mapped(path)


def test_a_mapping_outlives_its_file_and_writes_nothing_to_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    content = map_file(path)
    content[0] = ord("C")
    assert path.read_bytes() == b"content"
    path.unlink()
    assert content.tobytes() == b"Content"


def test_what_can_t_be_mapped_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        map_file(tmp_path / "nothing")
    (tmp_path / "empty").touch()
    before = count_descriptors()
    with pytest.raises(OSError, match="Invalid argument") as caught:
        map_file(tmp_path / "empty")
    assert caught.value.errno == errno.EINVAL
    assert count_descriptors() == before


def test_what_the_disk_can_t_give_is_an_error(tmp_path: Path) -> None:
    """Behind the end of a file that was cut, pages can't be read."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 4 * PAGE)
    content = map_file(path)
    os.truncate(path, PAGE)
    with pytest.raises(OSError, match="Input/output error"):
        read_ahead(content)


def test_an_older_linux_reads_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_file, "POPULATE_READ", 12345)  # which no Linux knows
    (tmp_path / "file").write_bytes(b"content")
    read_ahead(map_file(tmp_path / "file"))
