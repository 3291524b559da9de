"""`pseudoquery verify` and `compact`: damage is found, named and repaired."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pseudoquery.storage.acknowledged import Acknowledgements, acknowledged_generation
from pseudoquery.storage.segments import segment_path
from tests.support.command import Run, check_refused
from tests.support.indexes import RECORDS, content


def test_verify(run: Run, index: Path) -> None:
    assert run("verify", index).out == f"{index} is sound.\n"
    assert run("verify", index, "--json").json == {"ok": True, "problems": [], "repaired": 0}
    before = content(index)
    path = segment_path(index, 1)
    path.write_bytes(path.read_bytes()[:-1] + b"\x55")
    ran = run("verify", index, "--json")
    assert ran.code == 2
    assert not ran.json["ok"]
    assert len(ran.json["problems"]) == 1
    check_refused(run("verify", index), "segment 1", f"`pseudoquery verify {index} --repair`")
    said = run("verify", index, "--repair").out
    assert said.startswith(
        f"{index} is sound; encoded 40 documents again. It was damaged: segment 1: "
    )
    assert content(index) == before
    again = run("verify", index, "--repair", "--json").json
    assert again == {"ok": True, "problems": [], "repaired": 0, "damage": []}


def test_a_loss_is_told_even_where_it_is_given_up(run: Run, index: Path) -> None:
    identity = (index / "acknowledged").read_text().split()[0]
    generation = acknowledged_generation(index, identity)
    assert generation
    with Acknowledgements(index, identity, generation) as acknowledgements:
        acknowledgements.add(generation + 3)
    for command in ("verify", "info", "list"):
        check_refused(run(command, index), "the last 3 changes are missing", "though acknowledged")
    said = run("verify", index, "--repair").out
    assert "It was damaged: the last 3 changes are missing" in said
    assert run("verify", index).out == f"{index} is sound.\n"


def test_what_can_t_be_repaired_is_said(run: Run, index: Path) -> None:
    with closing(sqlite3.connect(index / "index.sqlite", isolation_level=None)) as connection:
        connection.execute("UPDATE documents SET metadata = 'no JSON' WHERE id = 'id 3'")
    check_refused(run("verify", index, "--repair"), "document 'id 3'", "restore it from a backup")
    listed = run("list", index)
    assert len(listed.out.splitlines()) == 3, "those before it"
    check_refused(listed._replace(out=""), "the document 'id 3'", "restore the index from a backup")


def test_compact(run: Run, index: Path) -> None:
    run("delete", index, *(record["id"] for record in RECORDS[5:]))
    before = content(index)
    vectors = run("info", index, "--json").json["vector_bytes"]
    ran = run("compact", index, "--json").json
    assert ran["bytes_after"] < ran["bytes_before"]
    assert run("info", index, "--json").json["vector_bytes"] < vectors / 2
    assert content(index) == before
    shown = run("compact", index).out
    assert re.fullmatch(rf"{index} took [\d,]+ bytes, and now takes [\d,]+\.\n", shown)


def test_a_newer_format(run: Run, index: Path) -> None:
    with closing(sqlite3.connect(index / "index.sqlite", isolation_level=None)) as connection:
        connection.execute("UPDATE settings SET value = '99' WHERE name = 'format'")
    check_refused(
        run("search", index, "king"), "made by a newer version", "pip install -U pseudoquery"
    )


def test_garbage(run: Run, index: Path) -> None:
    (index / "index.sqlite").write_bytes(b"garbage" * 1000)
    for command in ("info", "list", "verify", "compact"):
        check_refused(run(command, index), "index.sqlite is damaged", "restore it from a backup")


@pytest.mark.parametrize("damage", ["truncated", "missing", "header"])
def test_a_damaged_segment(run: Run, index: Path, damage: str) -> None:
    before = content(index)
    path = segment_path(index, 1)
    data = path.read_bytes()
    if damage == "truncated":
        path.write_bytes(data[:-10])
    elif damage == "missing":
        path.unlink()
    else:
        path.write_bytes(data[:10] + bytes([data[10] ^ 4]) + data[11:])
    for arguments in (["search", index, "king"], ["info", index], ["compact", index]):
        check_refused(
            run(*arguments), f"{path} is damaged", f"`pseudoquery verify {index} --repair`"
        )
    check_refused(run("verify", index), "segment 1")
    assert run("verify", index, "--repair").code == 0
    assert content(index) == before
