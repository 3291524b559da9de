"""`pseudoquery calibrate`: constants are written where an index finds them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pseudoquery.index import Index
from tests.support.command import Ran, Run, check_refused


@pytest.fixture
def own_model(run: Run, collection: Path, tiny_model_path: str, tmp_path: Path) -> Path:
    """An index of the collection, with a model of its own in a folder beside it."""
    model = shutil.copytree(tiny_model_path, tmp_path / "model")
    made = run("index", collection, "--out", tmp_path / "index", "--model", model)
    assert made.code == 0
    return tmp_path / "index"


def test_hits_have_a_relevance_afterwards(run: Run, own_model: Path, collection: Path) -> None:
    assert run("search", own_model, "king", "--json").json["hits"][0]["relevance"] is None
    check_refused(run("search", own_model, "king", "--min-relevance", 0.5), "pseudoquery calibrate")
    ran = run("calibrate", "--judged", own_model, collection, "dev")
    file = own_model.parent / "model" / "relevance.json"
    assert ran.code == 0
    assert ran.out.endswith(f"Wrote {file}.\n")
    constants = json.loads(file.read_text())
    assert constants["fingerprint"] == Index.open(own_model).settings.fingerprint
    found = run("search", own_model, "the king of the city", "--json").json["hits"]
    assert all(0 <= hit["relevance"] <= 1 for hit in found)
    few = run("search", own_model, "the king of the city", "--min-relevance", 1, "--json").json
    assert len(few["hits"]) < len(found)


def test_several_collections(run: Run, own_model: Path, collection: Path, tmp_path: Path) -> None:
    other = shutil.copytree(collection, tmp_path / "other")
    index = shutil.copytree(own_model, tmp_path / "other-index")
    out = tmp_path / "constants.json"
    judged = ("--judged", own_model, collection, "dev", "--judged", index, other, "test")
    ran = run("calibrate", *judged, "--out", out, "--json").json
    assert ran["file"] == str(out)
    assert set(ran["reliability"]) == {"small", "other"}
    assert {name: ran[name] for name in json.loads(out.read_text())} == json.loads(out.read_text())


def test_what_can_t_be_calibrated(
    run: Run, own_model: Path, collection: Path, tiny_model_path: str, tmp_path: Path
) -> None:
    def refused(*arguments: object) -> Ran:
        return run("calibrate", *arguments)

    judged = ("--judged", own_model, collection, "dev")
    check_refused(refused(*judged, *judged), "given twice")
    for options, words in (
        (("--tokens", "none"), "stores no tokens"),
        (("--tokens", "int8"), "another model or other tokens"),
        (("--k", 3), "another model or other tokens"),
    ):
        folder = tmp_path / f"{options[1]}"
        run("index", collection, "--out", folder, "--model", tiny_model_path, *options)
        check_refused(refused(*judged, "--judged", folder, collection, "dev"), words)
    shutil.rmtree(own_model.parent / "model")
    check_refused(refused(*judged), "--out")
    check_refused(refused("--judged", tmp_path / "nowhere", collection, "dev"), "nowhere")
    check_refused(refused("--judged", own_model, tmp_path / "nowhere", "dev"), "nowhere")
