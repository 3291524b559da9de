"""The page at /: the files of the folder `page`, and what a browser lets them do."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter, Response

from pseudoquery.service.addresses import PublicRoute
from pseudoquery.service.errors import unknown_address

MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # The browser itself refuses to turn text into HTML or code.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""The page may run its own files and use its own service, and nothing else."""

router = APIRouter(include_in_schema=False, route_class=PublicRoute)


@router.get("/")
async def page() -> Response:
    """Return the page itself; it loads its other files by name."""
    return _answer("index.html")


@router.get("/page/{name}")
async def page_file(name: str) -> Response:
    """Return one of the page's files."""
    return _answer(name)


def _answer(name: str) -> Response:
    content, media_type = FILES.get(name, (b"", ""))
    if not media_type:
        raise unknown_address()
    headers = {"content-security-policy": POLICY}
    return Response(content, headers=headers, media_type=media_type)


def _read_files() -> dict[str, tuple[bytes, str]]:
    """Read all files once: no name from a request ever reaches the file system."""
    contents = {}
    for file in (files("pseudoquery.service") / "page").iterdir():
        media_type = MEDIA_TYPES.get(file.name[file.name.rfind(".") :])
        if media_type:
            contents[file.name] = (file.read_bytes(), media_type)
    return contents


FILES = _read_files()
