from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pseudoquery.corpus.datasets import load_dataset
from pseudoquery.errors import CorpusError
from pseudoquery.records import Qrel
from pseudoquery.training.split import split_collection, split_qrels
from tests.support.collection import write_collection
from tests.support.command import Run
from tests.support.models import assert_one_sentence

judgements = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(0, 2)),
    unique_by=lambda judgement: judgement[:2],
).map(lambda rows: [Qrel(f"q{query}", f"d{document}", gain) for query, document, gain in rows])


@given(judgements, st.floats(0, 1), st.randoms(use_true_random=False))
def test_no_document_and_no_query_is_in_both(
    qrels: list[Qrel], share: float, chance: random.Random
) -> None:
    parts = split_qrels(qrels, share)
    assert sorted(map(str, parts.rest + parts.dev)) == sorted(map(str, qrels))
    for ids in ({"document_id"}, {"query_id"}):
        (name,) = ids
        rest, dev = ({getattr(qrel, name) for qrel in part} for part in parts)
        assert not rest & dev
    shuffled = chance.sample(qrels, len(qrels))
    again = split_qrels(shuffled, share)
    assert set(again.dev) == set(parts.dev), "the order does not matter"
    more = split_qrels(qrels, min(1.0, share + 0.3))
    assert set(parts.dev) <= set(more.dev), "a larger share only adds"


def test_the_share_is_about_what_it_should_be() -> None:
    qrels = [Qrel(f"q{number}", f"d{number % 2000}", 1) for number in range(6000)]
    for share in (0.1, 0.5):
        found = {qrel.document_id for qrel in split_qrels(qrels, share).dev}
        assert abs(len(found) - 2000 * share) < 90
    assert not split_qrels(qrels, 0.0).dev
    assert not split_qrels(qrels, 1.0).rest


def test_the_command(run: Run, tmp_path: Path) -> None:
    folder = write_collection(tmp_path / "set")
    before = (folder / "qrels" / "train.tsv").read_bytes()
    ran = run("split", folder, "--share", 0.4, "--dev", "held", "--json")
    counts = json.loads(ran.out)
    assert sum(counts.values()) == 24
    for name, count in counts.items():
        assert len(load_dataset(str(folder), name).queries) == count > 0
    assert (folder / "qrels" / "train.tsv").read_bytes() == before
    written = (folder / "qrels" / "held.tsv").read_bytes()
    said = run("split", folder, "--share", 0.4, "--dev", "held").out
    assert said == (
        f"Wrote {counts['learn']} queries to {folder}/qrels/learn.tsv and "
        f"{counts['held']} queries to {folder}/qrels/held.tsv.\n"
    )
    assert (folder / "qrels" / "held.tsv").read_bytes() == written
    refused = run("split", folder, "--share", 0.2, "--dev", "held")
    assert refused.code == 2
    assert "has other judgements; remove it, or choose another name" in refused.err
    assert (folder / "qrels" / "held.tsv").read_bytes() == written
    assert run("split", folder, "--share", 0).code == 2


def test_the_command_divides_any_split_into_any_other(run: Run, tmp_path: Path) -> None:
    folder = write_collection(tmp_path / "set")
    options = ("--split", "dev", "--rest", "more", "--dev", "less", "--share", 0.4)
    assert run("split", folder, *options).code == 0
    more, less, dev = (
        {query.id for query in load_dataset(str(folder), name).queries}
        for name in ("more", "less", "dev")
    )
    assert more
    assert less
    assert more | less == dev
    assert not (folder / "qrels" / "learn.tsv").exists()


@pytest.mark.parametrize(
    ("split", "share", "rest", "dev", "message"),
    [
        ("train", 0.1, "same", "same", "need different names"),
        ("train", 0.1, "train", "held", "need different names"),
        ("missing", 0.1, "rest", "held", "missing.tsv is not there"),
        ("train", 1e-12, "rest", "held", "nothing is left for the split held"),
        ("train", 1 - 1e-12, "rest", "held", "nothing is left for the split rest"),
    ],
)
def test_bad_splits(
    tmp_path: Path, split: str, share: float, rest: str, dev: str, message: str
) -> None:
    folder = write_collection(tmp_path / "set")
    with pytest.raises(CorpusError, match=message) as error:
        split_collection(folder, split, share, rest, dev)
    assert_one_sentence(str(error.value).replace(str(tmp_path), ""))
    assert sorted(path.name for path in (folder / "qrels").iterdir()) == ["dev.tsv", "train.tsv"]
