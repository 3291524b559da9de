"""Many documents in one request, read as they arrive."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from fastapi import Request

from pseudoquery.corpus.formats import parse_document
from pseudoquery.records import Document
from pseudoquery.service.errors import Refused
from pseudoquery.service.settings import ServiceSettings
from pseudoquery.storage.incoming import BATCH_CHARACTERS, BATCH_DOCUMENTS

BOM = b"\xef\xbb\xbf"


def check_size(document: Document, settings: ServiceSettings) -> None:
    """Refuse a document that is longer than the service allows."""
    size = len(document.title) + len(document.text)
    if size > settings.document_characters:
        origin = f"{document.origin}: " if document.origin else ""
        raise Refused(
            413,
            f"{origin}the document {document.id!r} has {size:,} characters; "
            f"at most {settings.document_characters:,} are allowed.",
        )


async def uploaded_lines(
    request: Request, longest: int, first: int
) -> AsyncIterator[tuple[int, bytes]]:
    """Yield the numbered lines of a body as it arrives. It holds one line and one chunk at most."""
    number, rest = first - 1, b""
    async for chunk in request.stream():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in (*whole, rest):
            number += 1
            if len(line) > longest:
                raise Refused(413, f"line {number} is longer than {longest:,} bytes.")
            if line is not rest:
                yield number, line
        number -= 1  # the rest is not a line yet
    if rest:
        yield number + 1, rest


async def uploaded_documents(
    request: Request, settings: ServiceSettings, first_line: int
) -> AsyncIterator[tuple[int, Document]]:
    """Parse the lines of an upload, and yield each document with the number of its line."""
    async for number, line in uploaded_lines(request, settings.body_bytes, first_line):
        content = line.removeprefix(BOM) if number == 1 else line
        if not content.strip():
            continue
        document = parse_document(content, f"line {number}")
        check_size(document, settings)
        # The line means nothing once the request is over.
        yield number, replace(document, origin="")


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
