"""The metadata of documents as a table, so that a filter reads what matches and nothing else.

A row says that a field of a document has a value, or has it in its list. Triggers of index.sqlite
keep the table. Folders of format 1 have none.
"""

from __future__ import annotations

import sqlite3

_KIND = (
    "CASE type WHEN 'integer' THEN 'number' WHEN 'real' THEN 'number' "
    "WHEN 'text' THEN 'text' WHEN 'null' THEN 'null' ELSE 'truth' END"
)
"""What can be compared: numbers with numbers, whatever their type, and truth with truth only."""
COLUMNS = "field, kind, value, ordinal"


def _rows(source: str, ordinal: str) -> str:
    """Write the SQL that lists rows, for documents whose metadata is unfolded as `field`."""
    return f"""
    SELECT key, {_KIND}, coalesce(atom, 0), ordinal FROM (
      SELECT field.key, field.type, field.atom, {ordinal} AS ordinal FROM {source}
      UNION
      SELECT field.key, element.type, element.atom, {ordinal} FROM {source},
        json_each(CASE field.type WHEN 'array' THEN field.value ELSE '[]' END) AS element)
    WHERE type NOT IN ('array', 'object')"""  # noqa: S608


SCHEMA = f"""
CREATE TABLE fields (
  field TEXT NOT NULL, kind TEXT NOT NULL, value NOT NULL, ordinal INTEGER NOT NULL,
  PRIMARY KEY ({COLUMNS})) WITHOUT ROWID;
CREATE TRIGGER fields_added AFTER INSERT ON documents BEGIN
  INSERT OR IGNORE INTO fields {_rows("json_each(new.metadata) AS field", "new.ordinal")};
END;
CREATE TRIGGER fields_removed AFTER DELETE ON documents BEGIN
  DELETE FROM fields WHERE ({COLUMNS}) IN (
  {_rows("json_each(old.metadata) AS field", "old.ordinal")});
END;
"""  # noqa: S608
_EXPECTED = _rows("documents, json_each(documents.metadata) AS field", "documents.ordinal")


def count_wrong_fields(connection: sqlite3.Connection) -> int:
    """Count the rows that are missing, or should not be there; the documents must be sound."""
    actual = f"SELECT {COLUMNS} FROM fields"  # noqa: S608
    (wrong,) = connection.execute(
        f"SELECT (SELECT count(*) FROM ({_EXPECTED} EXCEPT {actual})) "  # noqa: S608
        f"+ (SELECT count(*) FROM ({actual} EXCEPT {_EXPECTED}))"
    ).fetchone()
    return int(wrong)


def write_fields(connection: sqlite3.Connection) -> None:
    """Make the table anew from the documents."""
    connection.execute("DELETE FROM fields")
    connection.execute(f"INSERT OR IGNORE INTO fields {_EXPECTED}")
