"""The content of index.sqlite: tables, settings and checksums."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pseudoquery.errors import IndexFolderError
from pseudoquery.records import Document
from pseudoquery.storage.segments import SegmentFacts
from pseudoquery.storage.sqlite_errors import no_index_sentence

FORMAT = 1
FULLTEXT_TOKENIZER = "porter unicode61 remove_diacritics 2"
SCHEMA = f"""
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


@dataclass(frozen=True, slots=True)
class Settings:
    """What an index was made with; it never changes."""

    model: str
    """The model's name or folder; empty if the model was given in memory."""
    fingerprint: str
    """A hash of the model, by which the index recognises it."""
    dimension: int
    """How many numbers a vector has."""
    representation: Mapping[str, Any]
    """How texts become vectors: the fields of `Representation`."""
    long: str = "windows"
    """"windows" if long documents were read whole, "truncate" if only their beginning."""
    vector_type: str = "float16"
    """How vectors are stored: "float16", "float32" or "int8"."""
    format: int = FORMAT
    """The version of the folder's format."""
    precision: str = "float32"
    """What the encoder computes in, for documents and queries alike."""


def parse_settings(folder: Path, saved: Mapping[str, str]) -> Settings:
    """Read the settings of an index as they are stored, or say what is wrong with them."""
    try:
        version = json.loads(saved["format"])
        if version > FORMAT:
            raise IndexFolderError(
                f"{folder} was made by a newer version of pseudoquery (its format is {version}, "
                f"this version reads up to {FORMAT}); upgrade with: pip install -U pseudoquery"
            )
        if saved["checksum"] != settings_checksum(saved):
            raise ValueError("the settings are not what was written")
        values = {name: json.loads(saved[name]) for name in _settings_in(saved)}
    except (KeyError, ValueError, TypeError) as error:
        raise IndexFolderError(no_index_sentence(folder)) from error
    return Settings(**values)


def settings_checksum(saved: Mapping[str, str]) -> str:
    """Hash the settings as they are stored."""
    content = json.dumps([saved[name] for name in _settings_in(saved)])
    return hashlib.sha256(content.encode()).hexdigest()


def _settings_in(saved: Mapping[str, str]) -> list[str]:
    """Name the settings that are stored; an older index stores no `precision`."""
    names = [field.name for field in fields(Settings)]
    return [name for name in names if name != "precision" or name in saved]


def document_checksum(document: Document) -> bytes:
    """Hash a document's content, to notice changes and damage."""
    content = [document.id, document.title, document.text, document.metadata]
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).digest()


def read_facts(connection: sqlite3.Connection) -> list[SegmentFacts]:
    """Read what is known of each segment, in order of their documents."""
    names = ", ".join(field.name for field in fields(SegmentFacts))
    rows = connection.execute(f"SELECT {names} FROM segments ORDER BY first")  # noqa: S608
    return [SegmentFacts(*row) for row in rows]
