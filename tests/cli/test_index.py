"""`pseudoquery index`: every option changes the index, and nothing precious is overwritten."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Run, check_refused, write
from tests.support.indexes import RECORDS, content


def test_index(run: Run, tmp_path: Path, tiny_model_path: str) -> None:
    source = write(tmp_path / "docs.jsonl", *RECORDS[:3])
    for_people = run("index", source, "--out", tmp_path / "a", "--model", tiny_model_path)
    assert (for_people.code, for_people.out) == (0, "Indexed 3 documents.\n")
    ran = run("index", source, "--out", tmp_path / "b", "--model", tiny_model_path, "--json")
    assert ran.json == {"added": 3, "updated": 0, "unchanged": 0, "cut": 0, "skipped": 0}
    assert content(tmp_path / "a") == content(tmp_path / "b")
    documents, _ = content(tmp_path / "a")
    assert documents[1].metadata == {"year": 1991, "topic": "city"}
    assert documents[1].title == "city history"


def test_index_options_change_the_index(run: Run, tmp_path: Path, tiny_model_path: str) -> None:
    source = write(tmp_path / "docs.jsonl", *RECORDS[:5], {"id": "long", "text": "king " * 300})

    def facts(*options: str) -> dict[str, Any]:
        out = tmp_path / f"index {len(list(tmp_path.iterdir()))}"
        done = run("index", source, "--out", out, "--model", tiny_model_path, "--json", *options)
        made: dict[str, Any] = run("info", out, "--json").json
        assert done.json["added"] == made["documents"] == 6
        return {**made, "cut": done.json["cut"]}

    plain = facts()
    assert plain["model"] == tiny_model_path
    assert plain["cut"] == 0
    assert facts("--k", "2")["representation"]["k"] == 2
    assert facts("--k", "2")["vectors"] < plain["vectors"]
    paper = facts("--preset", "paper-passage")
    assert (paper["representation"]["query"], paper["representation"]["k"]) == ("cls", 4)
    assert (plain["long"], paper["long"], paper["cut"]) == ("windows", "truncate", 1)
    whole = facts("--preset", "paper-passage", "--k", "3", "--long", "windows")
    assert whole["representation"] == {**paper["representation"], "k": 3}
    assert (whole["long"], whole["cut"]) == ("windows", 0)
    assert facts("--preset", "single-vector")["vectors"] == 6
    assert facts("--long", "truncate")["cut"] == 1
    wide = facts("--vector-type", "float32")["vector_bytes_per_document"]
    assert wide == pytest.approx(2 * plain["vector_bytes_per_document"], abs=1)
    ran = run("index", source, "--out", tmp_path / "cut", "--model", tiny_model_path,
              "--long", "truncate")  # fmt: skip
    assert "Encoded only the beginning of 1 long document; --long windows encodes" in ran.out
    narrow = facts("--vector-type", "int8")["vector_bytes_per_document"]
    assert narrow < plain["vector_bytes_per_document"] < wide
    assert facts("--precision", "bfloat16")["precision"] == "bfloat16"
    kinds = ("none", "signs", "int8", "float16")
    by_tokens = {kind: facts("--tokens", kind) for kind in kinds}
    assert [made["tokens"] for made in by_tokens.values()] == list(kinds)
    sizes = [made["token_bytes_per_document"] for made in by_tokens.values()]
    assert sizes == sorted(set(sizes))
    assert plain["tokens"] == "signs"
    assert (paper["tokens"], facts("--preset", "single-vector")["tokens"]) == ("none", "none")


def test_the_default_model_is_another(
    run: Run, tmp_path: Path, tiny_model_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = []

    def load(name: object, representation: object, precision: object) -> Any:
        from pseudoquery.encoding.model import load_model

        if isinstance(name, str):
            names.append(name)
        return load_model(tiny_model_path)

    monkeypatch.setattr("pseudoquery.encoding.index_model.load_or_take", load)
    source = write(tmp_path / "docs.jsonl", RECORDS[0])
    assert run("index", source, "--out", tmp_path / "a").code == 0
    assert run("index", source, "--out", tmp_path / "b", "--model", "some/model").code == 0
    assert names == ["default", "some/model"]


def test_index_from_standard_input(tmp_path: Path, tiny_model_path: str) -> None:
    """The whole program, once, as a shell runs it: results on stdout, progress on stderr only."""
    program = Path(sys.executable).parent / "pseudoquery"
    done = subprocess.run(
        [program, "index", "-", "--out", tmp_path / "index", "--model", tiny_model_path, "--json"],
        input="".join(json.dumps(record) + "\n" for record in RECORDS),
        capture_output=True,
        text=True,
        env={**os.environ, "TTY_COMPATIBLE": "1", "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["added"] == 40
    assert "Encoding" in done.stderr


def test_duplicate_ids_stop_or_are_skipped(run: Run, tmp_path: Path, tiny_model_path: str) -> None:
    source = write(tmp_path / "docs.jsonl", *RECORDS[:4], {**RECORDS[1], "text": "another"})
    made = tmp_path / "index"
    ran = run("index", source, "--out", made, "--model", tiny_model_path)
    check_refused(ran, f"{source} line 5", "the id 'id 1' was already used in", "line 2")
    skipped = run(
        "index", source, "--out", made, "--model", tiny_model_path, "--on-error", "skip", "--json"
    )
    assert (skipped.json["added"], skipped.json["skipped"]) == (4, 1)
    assert run("list", made, "--where", "id=id 1", "--json").json["text"] == RECORDS[1]["text"]


def test_an_unfinished_index_can_be_finished_with_skip(
    run: Run, tmp_path: Path, tiny_model_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pseudoquery.storage.incoming.BATCH_DOCUMENTS", 2)
    source = write(tmp_path / "docs.jsonl", *RECORDS[:5], "broken", *RECORDS[5:7])
    command = ["index", source, "--out", tmp_path / "index", "--model", tiny_model_path, "--json"]
    check_refused(run(*command), "line 6")
    assert run(*command, "--on-error", "skip").json == (
        {"added": 3, "updated": 0, "unchanged": 4, "cut": 0, "skipped": 1}
    )


@pytest.mark.parametrize("option", [["--preset", "nothing"], ["--model", "./no/such/model"]])
def test_a_build_that_can_t_begin_leaves_nothing(
    run: Run, tmp_path: Path, option: list[str]
) -> None:
    source = write(tmp_path / "docs.jsonl", RECORDS[0])
    check_refused(run("index", source, "--out", tmp_path / "index", *option), option[1])
    assert not (tmp_path / "index").exists()


def test_a_folder_that_is_not_empty_is_left_alone(
    run: Run, tmp_path: Path, tiny_model_path: str
) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("precious")
    source = write(tmp_path / "docs.jsonl", RECORDS[0])
    ran = run("index", source, "--out", tmp_path / "thesis", "--model", tiny_model_path)
    check_refused(ran, "is not empty and holds no index")
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["chapter.txt"]


def test_a_finished_index_is_not_built_again(run: Run, index: Path, tmp_path: Path) -> None:
    before = content(index)
    source = write(tmp_path / "docs.jsonl", RECORDS[0])
    check_refused(run("index", source, "--out", index), "already holds a finished index",
            f"`pseudoquery add {index} {source}`")  # fmt: skip
    assert content(index) == before


def test_a_model_that_has_gone_or_changed(run: Run, tmp_path: Path, tiny_model_path: str) -> None:
    model = Path(shutil.copytree(tiny_model_path, tmp_path / "model"))
    source = write(tmp_path / "docs.jsonl", *RECORDS[:3])
    folder = tmp_path / "index"
    assert run("index", source, "--out", folder, "--model", model).code == 0
    weights = next(model.rglob("model.safetensors"))
    data = weights.read_bytes()
    weights.write_bytes(data[:-4] + b"\0\0\0\x40")
    check_refused(run("search", folder, "king"), "was made with another model than", str(model))
    assert run("search", folder, "king", "--mode", "bm25").code == 0
    shutil.rmtree(model)
    check_refused(run("search", folder, "king"), str(model), "can't be loaded")
    assert len(run("list", folder).out.splitlines()) == 3
