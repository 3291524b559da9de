"""The addresses of documents: add, replace, read and delete."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Query, Request, Response

from pseudoquery.corpus.validation import check_document
from pseudoquery.errors import PseudoqueryError
from pseudoquery.json_records import added_to_dict, document_to_dict
from pseudoquery.records import Added, Document
from pseudoquery.service.addresses import JSON_LINES, UploadRoute
from pseudoquery.service.dependencies import (
    NOT_FOUND,
    CurrentService,
    DocumentId,
    missing_document,
    new_router,
)
from pseudoquery.service.errors import Refused, refusal
from pseudoquery.service.off_loop import respond
from pseudoquery.service.schemas import (
    DeleteAnswer,
    DocumentAnswer,
    DocumentBody,
    WriteAnswer,
)
from pseudoquery.service.settings import ServiceSettings
from pseudoquery.service.uploads import check_size, uploaded_batches, uploaded_documents

router = new_router()
FirstLine = Annotated[
    int,
    Query(
        ge=1,
        le=1 << 53,
        description="The number of the body's first line, if the body is a part of a file. Error "
        "messages count from it.",
    ),
]


@router.put("/documents/{id:text}", summary="Add or replace a document")
async def put_document(id: DocumentId, body: DocumentBody, service: CurrentService) -> WriteAnswer:  # noqa: A002
    """Store a document. When the service answers, the document is on disk."""
    if body.id not in (None, id):
        raise Refused(422, "the id in the body is not the one in the address.")
    document = Document(id, body.text, body.title, body.metadata)
    await asyncio.to_thread(_check, document, service.settings)
    added = await asyncio.wrap_future(service.index.put([document]))
    return WriteAnswer(**added_to_dict(added))


@router.get(
    "/documents/{id:text}",
    summary="Read a document",
    response_model=DocumentAnswer,
    responses=NOT_FOUND,
)
async def get_document(id: DocumentId, service: CurrentService) -> Response:  # noqa: A002
    """Return a document as it is stored."""
    document = await asyncio.wrap_future(service.index.get(id))
    if document is None:
        raise missing_document(id)
    return await respond(lambda: document_to_dict(document), service.settings)


@router.delete("/documents/{id:text}", summary="Delete a document", responses=NOT_FOUND)
async def delete_document(id: DocumentId, service: CurrentService) -> DeleteAnswer:  # noqa: A002
    """Delete a document. When the service answers, the deletion is on disk."""
    if not await asyncio.wrap_future(service.index.delete(id)):
        raise missing_document(id)
    return DeleteAnswer(deleted=id)


def _check(document: Document, settings: ServiceSettings) -> None:
    check_size(document, settings)
    check_document(document)


async def add_documents(
    request: Request, service: CurrentService, first_line: FirstLine = 1
) -> WriteAnswer:
    """Store many documents, one JSON object per line.

    The service stores them in batches, as they arrive. If a line can't be used, the error names
    the line, and says up to which line the documents have been stored.
    """
    total = Added()
    stored = first_line - 1
    try:
        documents = uploaded_documents(request, service.settings, first_line)
        async for batch in uploaded_batches(documents):
            put = service.index.put(document for _, document in batch)
            total += await asyncio.wrap_future(put)
            stored = batch[-1][0]
    except (PseudoqueryError, Refused) as error:
        refused = refusal(error)
        upto = f"documents up to line {stored} have been stored" if stored else "nothing was stored"
        message = f"{refused.message.removesuffix('.')}; {upto}."
        raise Refused(refused.status_code, message, refused.code, refused.headers) from error
    return WriteAnswer(**added_to_dict(total))


_EXAMPLE = (
    '{"id": "bees", "text": "A hive is led by a single queen.", "topic": "animals"}\n'
    '{"id": "bread", "title": "Sourdough", "text": "Wild yeast lives in the dough."}\n'
)
_LINES = {JSON_LINES[0]: {"schema": {"type": "string"}, "example": _EXAMPLE}}
router.add_api_route(
    "/documents",
    add_documents,
    methods=["POST"],
    summary="Add or replace many documents",
    openapi_extra={"requestBody": {"required": True, "content": _LINES}},
    route_class_override=UploadRoute,
)
