"""A folder of files for the tests of test collections."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.dataset_folders import Make


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Write files into a folder; a list is JSON lines, and None removes a file."""

    def call(files: dict[str, Any], name: str = "set") -> Path:
        folder = tmp_path / name
        for path, content in files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if content is None:
                target.unlink()
                continue
            if isinstance(content, list):
                content = "".join(json.dumps(record) + "\n" for record in content)
            raw = content if isinstance(content, bytes) else content.encode()
            target.write_bytes(gzip.compress(raw) if path.endswith(".gz") else raw)
        return folder

    return call
