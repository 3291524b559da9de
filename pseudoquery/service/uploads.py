"""Many documents in one request, read as they arrive."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial

from fastapi import Request

from pseudoquery.corpus.formats import parse_document
from pseudoquery.corpus.validation import show_value
from pseudoquery.records import Document
from pseudoquery.service.errors import Refused
from pseudoquery.service.off_loop import off_loop
from pseudoquery.service.settings import ServiceSettings
from pseudoquery.storage.incoming import BATCH_CHARACTERS, BATCH_DOCUMENTS

BOM = b"\xef\xbb\xbf"
LONGEST_ID = 16_000
"""Bytes. An address has three characters for each, so that a longer id could not be read again."""


def check_size(document: Document, settings: ServiceSettings) -> None:
    """Refuse a document that is longer than the service allows."""
    origin = f"{document.origin}: " if document.origin else ""
    id_bytes = len(document.id.encode())
    if id_bytes > LONGEST_ID:
        raise Refused(
            413, f"{origin}the id has {id_bytes:,} bytes; at most {LONGEST_ID:,} are allowed."
        )
    size = len(document.title) + len(document.text)
    if size > settings.document_characters:
        raise Refused(
            413,
            f"{origin}the document {show_value(document.id)} has {size:,} characters; "
            f"at most {settings.document_characters:,} are allowed.",
        )
    _check_metadata(document, settings, origin)


def _check_metadata(document: Document, settings: ServiceSettings, origin: str) -> None:
    """Refuse metadata that is too large. It is measured as it would be written."""
    if not document.metadata:
        return
    try:
        size = len(json.dumps(document.metadata, ensure_ascii=False).encode(errors="replace"))
    except RecursionError:
        return  # `check_document` says that it is nested too deeply
    if size > settings.metadata_bytes:
        raise Refused(
            413,
            f"{origin}the metadata of the document {show_value(document.id)} has {size:,} bytes; "
            f"at most {settings.metadata_bytes:,} are allowed.",
        )


async def uploaded_lines(
    request: Request, longest: int, first: int
) -> AsyncIterator[tuple[int, bytes]]:
    """Yield the numbered lines of a body as it arrives. It holds one line and one chunk at most."""
    number, line = first, bytearray()
    async for chunk in request.stream():
        for place, part in enumerate(chunk.split(b"\n")):
            if place:  # a line has ended before this part
                yield number, bytes(line)
                number += 1
                line.clear()
            line += part
            if len(line) > longest:
                raise Refused(413, f"line {number} is longer than {longest:,} bytes.")
    if line:
        yield number, bytes(line)


async def uploaded_documents(
    request: Request, settings: ServiceSettings, first_line: int
) -> AsyncIterator[tuple[int, Document]]:
    """Parse the lines of an upload, and yield each document with the number of its line."""
    async for number, line in uploaded_lines(request, settings.body_bytes, first_line):
        content = line.removeprefix(BOM) if number == 1 else line
        if not content.strip():
            continue
        read = partial(_read_document, content, f"line {number}", settings)
        yield number, await off_loop(read, len(content))


def _read_document(line: bytes, origin: str, settings: ServiceSettings) -> Document:
    document = parse_document(line, origin)
    check_size(document, settings)
    return replace(document, origin="")  # the line means nothing once the request is over


async def uploaded_batches(
    documents: AsyncIterator[tuple[int, Document]],
) -> AsyncIterator[list[tuple[int, Document]]]:
    """Group numbered documents into batches, as the index does."""
    batch: list[tuple[int, Document]] = []
    size = 0
    async for number, document in documents:
        batch.append((number, document))
        size += len(document.text)
        if len(batch) == BATCH_DOCUMENTS or size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
