"""The tables and triggers of index.sqlite, and how damage to them is found and repaired.

SQLite keeps them as text, which a flipped bit can change: a trigger that no longer works would be
noticed when somebody deletes a document.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing

from pseudoquery.storage import fields

FULLTEXT_TOKENIZER = "porter unicode61 remove_diacritics 2"
_FIRST_SCHEMA = f"""
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
BEGIN;
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE state (generation INTEGER NOT NULL, epoch INTEGER NOT NULL);
INSERT INTO state VALUES (0, 0);
CREATE TABLE segments (
  number INTEGER PRIMARY KEY AUTOINCREMENT, first INTEGER NOT NULL, documents INTEGER NOT NULL,
  vectors INTEGER NOT NULL, bytes INTEGER NOT NULL, sha256 TEXT NOT NULL, norm REAL NOT NULL);
CREATE TABLE documents (
  ordinal INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, title TEXT NOT NULL,
  text TEXT NOT NULL, metadata TEXT NOT NULL, place TEXT NOT NULL, checksum BLOB NOT NULL);
CREATE TABLE deleted (ordinal INTEGER PRIMARY KEY);
CREATE VIRTUAL TABLE fulltext USING fts5(
  title, text, content='documents', content_rowid='ordinal',
  tokenize='{FULLTEXT_TOKENIZER}');
CREATE TRIGGER documents_added AFTER INSERT ON documents BEGIN
  INSERT INTO fulltext(rowid, title, text) VALUES (new.ordinal, new.title, new.text);
END;
CREATE TRIGGER documents_removed AFTER DELETE ON documents BEGIN
  INSERT INTO fulltext(fulltext, rowid, title, text)
  VALUES ('delete', old.ordinal, old.title, old.text);
END;
COMMIT;
"""  # noqa: S608
SCHEMAS = {1: _FIRST_SCHEMA, 2: f"{_FIRST_SCHEMA}BEGIN;{fields.SCHEMA}COMMIT;"}
"""What makes the tables and triggers of each format."""
_OF_SQLITE = ("sqlite_", "fulltext_")
"""How the names of tables begin that SQLite makes itself; they differ between its versions."""

Definitions = dict[tuple[str, str], str]
"""The SQL of each table, index, view and trigger, by kind and name."""


def table_problems(connection: sqlite3.Connection, format_: int) -> list[str]:
    """Compare all definitions with those that were made, a sentence for each difference."""
    expected, actual = _made(format_), _read_definitions(connection)
    return [
        f"index.sqlite: the {kind} {name!r} is not what was made"
        for kind, name in sorted(expected.keys() | actual.keys())
        if expected.get((kind, name)) != actual.get((kind, name))
    ]


def restore_triggers(connection: sqlite3.Connection, format_: int) -> None:
    """Make triggers anew that are missing or wrong, and drop those that nobody has made."""
    expected, actual = _made(format_), _read_definitions(connection)
    for key in expected.keys() | actual.keys():
        kind, name = key
        if kind != "trigger" or expected.get(key) == actual.get(key):
            continue
        if key in actual:
            quoted = name.replace('"', '""')
            connection.execute(f'DROP TRIGGER "{quoted}"')
        if key in expected:
            connection.execute(expected[key])


def _made(format_: int) -> Definitions:
    with closing(sqlite3.connect(":memory:")) as fresh:
        fresh.executescript(SCHEMAS[format_])
        return _read_definitions(fresh)


def _read_definitions(connection: sqlite3.Connection) -> Definitions:
    rows = connection.execute("SELECT type, name, sql FROM sqlite_master")
    return {(kind, name): sql for kind, name, sql in rows if not name.startswith(_OF_SQLITE)}
