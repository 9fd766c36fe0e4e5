"""An application behind a real HTTP server, on loopback, in a thread of this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from tests.eventually import PATIENCE, eventually


@contextmanager
def live(app: FastAPI) -> Iterator[str]:
    """The server's address, for as long as the block lasts."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, lifespan="off", ws="none", log_config=None, log_level=50))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        eventually(lambda: server.started or not thread.is_alive(), "the HTTP server is up")
        assert server.started, "the HTTP server ended at once"
        host, port = server.servers[0].sockets[0].getsockname()
        yield f"http://{host}:{port}"
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the server waits for an answer that does not end"
