"""The page that browsers get at `/`: its files, read once, and served with headers that let it do little else.

They need no API key, as they hold nothing of the service.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Scope

INDEX = "index.html"
STATIC = Path(__file__).with_name("static")
CONSOLE = "/console/"  # where pages of other origins get nothing, and no limits hold
PREFIX = f"{CONSOLE}static/"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # kept, but asked for again: another version of the package has other files
    "Vary": "Accept",
}


class PageFile(NamedTuple):
    """A file of the page; `tag` stands for its content."""

    content: bytes
    media_type: str
    tag: str

    def response(self, request: Mapping[str, str]) -> Response:
        """The answer to a request with these headers: no content for a browser that has it."""
        headers = {**HEADERS, "ETag": self.tag}
        if self.tag in request.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(self.content, media_type=self.media_type, headers=headers)


def page_files() -> dict[str, PageFile]:
    """The files of the page, by name."""
    return {file.name: _read(file) for file in sorted(STATIC.glob("*")) if file.suffix in TYPES}


def wants_page(headers: Mapping[str, str]) -> bool:
    """Whether a request with these headers is a browser's, for a page."""
    return "text/html" in headers.get("accept", "")


def is_for_page(scope: Scope) -> bool:
    """Whether a request is for a file of the page, which needs no API key."""
    if scope["method"] not in ("GET", "HEAD"):
        return False
    path: str = scope["path"]
    return path.startswith(PREFIX) or (path == "/" and wants_page(Headers(scope=scope)))


def _read(file: Path) -> PageFile:
    content = file.read_bytes()
    return PageFile(content, TYPES[file.suffix], f'"{hashlib.sha256(content).hexdigest()[:32]}"')
