from __future__ import annotations

import json
import math
import operator
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pseudoquery.errors import QueryError
from pseudoquery.storage import fields as fields_table
from pseudoquery.storage.filters import (
    compile_filter,
    compile_lookup_filter,
    parse_condition,
    parse_filter,
)

RANGES = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}

# Neither can hold NUL: SQLite ends a text of JSON there, and so filters on it are refused.
characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
texts = st.text(characters, max_size=5)
fields = texts | st.sampled_from(
    (
        *"a'\"$%é\\1\n?",
        *("a.b", "x y", "$.a", "a[0]", "ID", "id ", "key", "metadata", ":a"),
        *("a') OR 1 --", "1; DROP TABLE documents", "documents.id"),
    )
)
integers = st.sampled_from([0, 1, -1, 2, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)]) | st.integers(
    -(2**63), 2**63 - 1
)
floats = st.sampled_from([0.0, -0.0, 1.0, 1.5, 0.1, 2.0**53, 1e300, 5e-324]) | st.floats(
    allow_nan=False, allow_infinity=False
)
words = texts | st.sampled_from(
    [
        "",
        "1",
        "1.0",
        "true",
        "null",
        "a",
        "A",
        "ab",
        "é",
        "%",
        "_",
        "o'hara",
        '"',
        "\\",
        "x\ny",
        "😀",
    ]
)
scalars = st.none() | st.booleans() | integers | floats | words
nested = st.lists(scalars | st.lists(scalars, max_size=2), max_size=4)
values = scalars | nested | st.dictionaries(fields, scalars, max_size=2)
ranged = st.booleans() | integers | floats | words
conditions = st.one_of(
    scalars,
    st.lists(scalars, max_size=4),
    st.dictionaries(st.sampled_from(["=", "!="]), scalars | st.lists(scalars, max_size=3)),
    st.dictionaries(st.sampled_from(list(RANGES)), ranged),
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Draw documents' metadata and a filter, with names and values in common."""
    names = draw(st.lists(fields, min_size=1, max_size=3, unique=True))
    pool = draw(st.lists(scalars, min_size=1, max_size=4))
    common = st.sampled_from(pool)
    value = common | st.lists(common, max_size=3) | values
    documents = draw(
        st.lists(st.dictionaries(st.sampled_from(names), value, max_size=3), min_size=1, max_size=5)
    )
    compared: st.SearchStrategy[Any] = common | st.lists(common, max_size=3) | conditions
    comparable = [value for value in pool if value is not None]
    if comparable:
        compared |= st.dictionaries(st.sampled_from(list(RANGES)), st.sampled_from(comparable))
    compared |= st.dictionaries(st.just("!="), common)
    # A field "id" is the document's own, which has tests below.
    named = st.sampled_from(names).filter(lambda name: name != "id")
    return documents, draw(st.dictionaries(named, compared, max_size=2))


def kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    return "number" if isinstance(value, int | float) else type(value).__name__


def holds(metadata: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    """Evaluate a filter in plain Python."""
    return all(
        compares(metadata, field, sign, value)
        for field, condition in where.items()
        for sign, value in (
            condition.items() if isinstance(condition, dict) else [("=", condition)]
        )
    )


def compares(metadata: Mapping[str, Any], field: str, sign: str, value: Any) -> bool:
    values = metadata.get(field, [])
    values = values if isinstance(values, list) else [values]
    wanted = value if isinstance(value, list) else [value]
    pairs = [(value, other) for value in values for other in wanted if kind(value) == kind(other)]
    if sign in RANGES:
        return any(RANGES[sign](value, other) for value, other in pairs)
    equal = any(value == other for value, other in pairs)
    return not equal if sign == "!=" else equal


@pytest.fixture(scope="module")
def documents_table() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute(
            "CREATE TABLE documents "
            "(ordinal INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, metadata TEXT)"
        )
        connection.executescript(fields_table.SCHEMA)
        yield connection


def select(
    connection: sqlite3.Connection, documents: Mapping[str, Mapping[str, Any]], where: Any
) -> list[str]:
    """Store documents as the writer does, and list the ids of those that satisfy a filter.

    The table of fields gives the same ones as the metadata itself, whatever was deleted before.
    """
    connection.execute("DELETE FROM documents")
    assert connection.execute("SELECT count(*) FROM fields").fetchone() == (0,)
    connection.executemany(
        "INSERT INTO documents (id, metadata) VALUES (?, ?)",
        [(id_, json.dumps(metadata, ensure_ascii=False)) for id_, metadata in documents.items()],
    )
    assert fields_table.count_wrong_fields(connection) == 0

    def ids(clause: str, parameters: list[Any]) -> list[str]:
        select = f"SELECT id FROM documents WHERE {clause} ORDER BY ordinal"
        return [row[0] for row in connection.execute(select, parameters)]

    found = ids(*compile_filter(where))
    assert ids(*compile_lookup_filter(where, "ordinal")) == found
    return found


@settings(max_examples=300)
@given(case=cases())
@example(case=([{"a": 1}, {"a": True}, {"a": "1"}, {"a": 1.0}, {"a": [1]}], {"a": 1}))
@example(case=([{"a": 2**53 + 1}, {"a": 2.0**53}], {"a": {"<=": 2.0**53}}))
def test_sql_equals_python(
    documents_table: sqlite3.Connection, case: tuple[list[dict[str, Any]], dict[str, Any]]
) -> None:
    documents, where = case
    stored = {str(number): metadata for number, metadata in enumerate(documents)}
    expected = [id_ for id_, metadata in stored.items() if holds(metadata, where)]
    assert select(documents_table, stored, where) == expected


METADATA: dict[str, dict[str, Any]] = {
    "int": {"year": 1990, "topic": "law"},
    "float": {"year": 1990.5, "topic": ["law", "history"]},
    "text": {"year": "1990", "topic": []},
    "list": {"year": [1980, 1995], "topic": None},
    "bool": {"year": True, "topic": {"law": "law"}},
    "one": {"year": 1, "topic": [["law"]]},
    "none": {},
}


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (None, list(METADATA)),
        ({}, list(METADATA)),
        ({"year": {}}, list(METADATA)),
        ({"year": 1990}, ["int"]),
        ({"year": 1990.0}, ["int"]),
        ({"year": "1990"}, ["text"]),
        ({"year": True}, ["bool"]),
        ({"year": 1}, ["one"]),
        ({"year": {"=": 1}}, ["one"]),
        ({"year": {">=": 1990, "<": 2000}}, ["int", "float", "list"]),
        ({"year": {">": 1990}}, ["float", "list"]),
        ({"year": {"<=": 1}}, ["one"]),
        ({"year": {">": ""}}, ["text"]),
        ({"year": {"<": math.inf}}, ["int", "float", "list", "one"]),
        ({"year": {">": -math.inf}}, ["int", "float", "list", "one"]),
        ({"year": {">": math.inf}}, []),
        ({"year": [1, "1990"]}, ["text", "one"]),
        ({"year": (1, 1980)}, ["list", "one"]),
        ({"year": {1, 1990}}, ["int", "one"]),
        ({"year": {"!=": 1990}}, ["float", "text", "list", "bool", "one", "none"]),
        ({"year": {"!=": [1990, 1995, "1990", 1]}}, ["float", "bool", "none"]),
        ({"topic": "law"}, ["int", "float"]),
        ({"topic": {"!=": "law"}}, ["text", "list", "bool", "one", "none"]),
        ({"topic": None}, ["list"]),
        ({"topic": {"!=": None}}, ["int", "float", "text", "bool", "one", "none"]),
        ({"topic": [None, "history"]}, ["float", "list"]),
        ({"topic": []}, []),
        ({"topic": {"!=": []}}, list(METADATA)),
        ({"topic": "law", "year": 1990}, ["int"]),
        ({"missing": 1}, []),
        ({"year' OR 1=1 --": 1}, []),
        ({"topic": "law' OR '1'='1"}, []),
        ({"id": "one"}, ["one"]),
        ({"id": ["one", "int", "absent"]}, ["int", "one"]),
        ({"id": {"!=": "one"}}, [id_ for id_ in METADATA if id_ != "one"]),
        ({"id": {">=": "none"}}, ["text", "one", "none"]),
        ({"id": {"<": "float"}}, ["bool"]),
        ({"id": []}, []),
    ],
)
def test_table(documents_table: sqlite3.Connection, where: Any, expected: list[str]) -> None:
    assert select(documents_table, METADATA, where) == expected


@given(ids=st.lists(words.filter(bool), min_size=1, max_size=5, unique=True), data=st.data())
def test_ids(documents_table: sqlite3.Connection, ids: list[str], data: st.DataObject) -> None:
    wanted = data.draw(st.lists(st.sampled_from(ids) | words, max_size=3))
    stored: dict[str, dict[str, Any]] = {id_: {"id": "another"} for id_ in ids}
    found = select(documents_table, stored, {"id": wanted})
    assert found == [id_ for id_ in ids if id_ in wanted]
    bound = data.draw(words)
    for sign, compare in RANGES.items():
        found = select(documents_table, stored, {"id": {sign: bound}})
        assert found == [id_ for id_ in ids if compare(id_, bound)]


def test_names_and_values_are_bound_and_never_part_of_the_sql() -> None:
    for evil in ("'); DROP TABLE documents; --", '"', "1=1"):
        clause, parameters = compile_filter({evil: [evil, {"<": evil}["<"]], "b": {"<": evil}})
        assert evil not in clause
        assert evil in parameters


def test_long_lists_of_values(documents_table: sqlite3.Connection) -> None:
    stored: dict[str, dict[str, Any]] = {
        f"document {number}": {"code": number, "name": f"n{number}"} for number in range(300)
    }
    many = range(100, 50_100)
    expected = [f"document {number}" for number in range(100, 300)]
    rest = [id_ for id_ in stored if id_ not in expected]
    ids = [f"document {number}" for number in many]
    assert select(documents_table, stored, {"id": ids}) == expected
    assert select(documents_table, stored, {"id": {"!=": ids}}) == rest
    assert select(documents_table, stored, {"code": list(many)}) == expected
    assert (
        select(documents_table, stored, {"name": {"!=": [f"n{number}" for number in many]}}) == rest
    )


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ({"year": {"~": 1}}, "'year' uses '~'; choose one of =, !=, <, <=, >, >="),
        ({"year": {"$gt": 1}}, "'$gt'"),
        ({"year": {"in": [1]}}, "or give a list of values"),
        ({"year": {1: 1}}, "uses 1"),
        ({"year": math.nan}, "NaN"),
        ({"year": {"<": math.nan}}, "NaN"),
        ({"year": [1, math.nan]}, "NaN"),
        ({"year": math.inf}, "inf"),
        ({"year": [-math.inf]}, "inf"),
        ({"year": 2**63}, "too large"),
        ({"year": {">": -(2**63) - 1}}, "too large"),
        ({"year": [0, 2**64]}, "too large"),
        ({"year": {"<": None}}, "null"),
        ({"year": {"<": [1, 2]}}, "[1, 2]"),
        ({"year": [[1]]}, "[1]"),
        ({"year": b"1990"}, "b'1990'"),
        ({"year": 1j}, "1j"),
        ({"year": {"=": {"=": 1}}}, "'year'"),
        ({"year": "\ud800"}, "Unicode"),
        ({"year": {"<": "a\udfff"}}, "Unicode"),
        ({"year": ["a", "\ud800"]}, "Unicode"),
        ({"id": "\ud800"}, "Unicode"),
        ({"ye\ud800ar": 1}, "Unicode"),
        ({"ye\ud800ar": {"<": 1}}, "Unicode"),
        ({"ye\ud800ar": []}, "Unicode"),
        ({"ye\ud800ar": {"~": 1}}, "Unicode"),
        ({"year": "a\0b"}, "NUL"),
        ({"ye\0ar": 1}, "NUL"),
        ({"id": ["a\0b"]}, "NUL"),
        ({1: 1}, "must be a name, not 1"),
        ({None: 1}, "must be a name"),
        ({"id": 5}, "text"),
        ({"id": ["a", True]}, "text"),
        ({"id": None}, "text"),
        ({"id": {">": 1.5}}, "text"),
    ],
)
def test_what_cannot_be_compared_is_said_in_one_sentence(where: Any, said: str) -> None:
    with pytest.raises(QueryError) as caught:
        compile_filter(where)
    message = str(caught.value)
    assert said in message
    assert message.endswith(".")
    assert "\n" not in message
    message.encode()  # it can be printed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("year=1990", ("year", {"=": 1990})),
        ("year = 1990", ("year", {"=": 1990})),
        ("  year  >=  1990  ", ("year", {">=": 1990})),
        ("year<=1990", ("year", {"<=": 1990})),
        ("year<1990", ("year", {"<": 1990})),
        ("year>-5", ("year", {">": -5})),
        ("year>1.5e3", ("year", {">": 1500.0})),
        ("year!=1990", ("year", {"!=": 1990})),
        ("topic=law", ("topic", {"=": "law"})),
        ("topic=", ("topic", {"=": ""})),
        ("topic=two words", ("topic", {"=": "two words"})),
        ("topic=two\nlines", ("topic", {"=": "two\nlines"})),
        ('topic="1990"', ("topic", {"=": "1990"})),
        ('topic=" kept "', ("topic", {"=": " kept "})),
        ('topic="=x"', ("topic", {"=": "=x"})),
        ('topic="un', ("topic", {"=": '"un'})),
        ("topic='law'", ("topic", {"=": "'law'"})),
        ("topic=a=b", ("topic", {"=": "a=b"})),
        ("topic=a<b", ("topic", {"=": "a<b"})),
        ("topic=[1]", ("topic", {"=": "[1]"})),
        ('topic={"a": 1}', ("topic", {"=": '{"a": 1}'})),
        ("flag=true", ("flag", {"=": True})),
        ("flag=True", ("flag", {"=": "True"})),
        ("flag=null", ("flag", {"=": None})),
        ("name=NaN", ("name", {"=": "NaN"})),
        ("name=-Infinity", ("name", {"=": "-Infinity"})),
        ("zip=01234", ("zip", {"=": "01234"})),
        ("a.b=1", ("a.b", {"=": 1})),
        ("größe=1", ("größe", {"=": 1})),
        ("topic in law", ("topic", ["law"])),
        ("topic in law,history", ("topic", ["law", "history"])),
        ("topic in  law , modern history ", ("topic", ["law", "modern history"])),
        ("year in 1990,1991.5,-3", ("year", [1990, 1991.5, -3])),
        ('topic in "a,b", c', ("topic", ["a,b", "c"])),
        ('topic in "a\\",b",c', ("topic", ['a",b', "c"])),
        ('size in 5" disk,3" disk', ("size", ['5" disk', '3" disk'])),
        ("topic in a,,b", ("topic", ["a", "", "b"])),
        ("in in a,b", ("in", ["a", "b"])),
        ("in=x", ("in", {"=": "x"})),
        ("title=made in china", ("title", {"=": "made in china"})),
        ("title = made in china,france", ("title", {"=": "made in china,france"})),
        ("id=5", ("id", {"=": "5"})),
        ("id=true", ("id", {"=": "true"})),
        ("id=1e5", ("id", {"=": "1e5"})),
        ('id="5"', ("id", {"=": "5"})),
        ("id in 1,null,x", ("id", ["1", "null", "x"])),
        ("id>=10", ("id", {">=": "10"})),
    ],
)
def test_conditions_as_typed(text: str, expected: tuple[str, Any]) -> None:
    found = parse_condition(text)
    assert found == expected
    assert repr(found) == repr(expected)  # 1 is not 1.0, nor True
    compile_filter(dict([found]))


@pytest.mark.parametrize(
    "text",
    [
        *("", "   ", "year", "=1990", ">= 5", "my field=1", "year in", "in a,b", "year is 5"),
        *("!year", "year==1990", "year=>1990", "year =! 5", "year<>5", "year= =5", "year<==5"),
    ],
)
def test_bad_conditions_as_typed(text: str) -> None:
    with pytest.raises(QueryError, match="is not understood; write it as field=value") as caught:
        parse_condition(text)
    assert repr(text) in str(caught.value)


@given(st.text())
def test_any_condition_is_read_or_refused(text: str) -> None:
    try:
        compile_filter(dict([parse_condition(text)]))
    except QueryError as error:
        assert str(error).endswith(".")  # noqa: PT017


@given(st.text(max_size=8), st.sampled_from(["=", "!=", "<", ">="]))
def test_a_quoted_value_is_read_back(value: str, sign: str) -> None:
    assert parse_condition(f"field{sign}{json.dumps(value)}") == ("field", {sign: value})


@given(st.lists(st.text(max_size=8), min_size=1, max_size=4))
def test_quoted_members_are_read_back(members: list[str]) -> None:
    listed = ", ".join(json.dumps(member, ensure_ascii=False) for member in members)
    assert parse_condition(f"field in {listed}") == ("field", members)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], {}),
        (["year>=1990", "topic=law"], {"year": {">=": 1990}, "topic": {"=": "law"}}),
        (["year>=1990", "year<2000"], {"year": {">=": 1990, "<": 2000}}),
        (["year>=1990", "year!=1995"], {"year": {">=": 1990, "!=": 1995}}),
        (["topic!=a", "topic!=b", "topic!=c"], {"topic": {"!=": ["a", "b", "c"]}}),
        (["topic in a,b", "year=1"], {"topic": ["a", "b"], "year": {"=": 1}}),
    ],
)
def test_filters_as_typed(texts: list[str], expected: dict[str, Any]) -> None:
    assert parse_filter(texts) == expected


@pytest.mark.parametrize(
    "texts",
    [
        ["topic in a,b", "topic in b,c"],
        ["topic in a,b", "topic!=a"],
        ["topic!=a", "topic in a,b"],
        ["year>1990", "year>1980"],
        ["topic=a", "topic=b"],
    ],
)
def test_conditions_that_cannot_be_joined(texts: list[str]) -> None:
    with pytest.raises(QueryError, match="in two conditions that can't be joined"):
        parse_filter(texts)
