"""Undoes the compression of request bodies: gzip, which is all that clients use."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterable, Iterator

from fastapi import HTTPException

PLAIN, GZIP = ("", "identity"), ("gzip", "x-gzip")
PIECE = 1 << 16  # bytes of a body that are decompressed at once, so that few make no more than a piece at a time
_GZIP_FORMAT = 16 + zlib.MAX_WBITS  # zlib's number for data with a header of gzip


async def decoded(chunks: AsyncIterable[bytes], encoding: str) -> AsyncGenerator[bytes, None]:
    """The bytes that `chunks` stand for under `encoding`, the value of the header Content-Encoding.

    Each piece has at most `PIECE` bytes if it was compressed. Raises `HTTPException`: 415 for another encoding, 400 for
    what is no gzip or not whole.
    """
    name = encoding.strip().lower()
    if name in PLAIN:
        async for chunk in chunks:
            yield chunk
        return
    if name not in GZIP:
        message = f"the Content-Encoding '{name[:64]}' is not supported; send the body plain, or as gzip"
        raise HTTPException(415, message, {"Accept-Encoding": GZIP[0]})
    members = _Members()
    async for chunk in chunks:
        for piece in members.decompress(chunk):
            yield piece
    if not members.whole:
        raise HTTPException(400, "the body ends within its gzip data")


class _Members:
    """Decompresses the members that gzip data consists of. It is `whole` at the end of one."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP_FORMAT)
        self.whole = False

    def decompress(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self.whole:
                self._member = zlib.decompressobj(_GZIP_FORMAT)
            try:
                piece = self._member.decompress(data, PIECE)
            except zlib.error as error:
                raise HTTPException(400, "the body is not gzip data, as its Content-Encoding says") from error
            self.whole = self._member.eof
            data = self._member.unused_data if self.whole else self._member.unconsumed_tail
            yield piece
