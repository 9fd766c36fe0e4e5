"""The Ray of one command: what else it needs besides a start and a stop.

Ray ends its processes when the command is killed, however that happens. Its directory would stay, with the token, the
logs, and whatever of the prompts and answers it had moved from memory to disk. So a shell waits beside the command,
whose end it sees as the end of a pipe, and removes the directory.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

TOKEN_FILE = "RAY_AUTH_TOKEN_PATH"  # what starts a Ray for one command names its token so, in the Ray's directory
_SESSION = "session_latest"  # Ray makes it there
_ENDING_SECONDS = 5  # Ray's processes write into the directory for up to three seconds after the command was killed


@contextmanager
def on(ray: AbstractContextManager[None]) -> Iterator[None]:
    """Run on this Ray, keep late calls from starting another one, and leave nothing if the process is killed."""
    os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"  # read when ray is imported
    before = os.environ.get(TOKEN_FILE)
    with ray:
        token = os.environ.get(TOKEN_FILE)
        own = None if token is None or token == before else Path(token).parent
        with removed_if_killed(own) if own is not None and (own / _SESSION).exists() else nullcontext():
            yield


@contextmanager
def removed_if_killed(directory: Path, after: float = _ENDING_SECONDS) -> Iterator[None]:
    """Let the directory be removed, so many seconds later, if this process ends within the block."""
    program = f'read -r _; sleep {after:g}; rm -rf -- "$1"'
    shell = subprocess.Popen(
        ["/bin/sh", "-c", program, "sh", str(directory.absolute())],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C and a closed terminal are for the command
    )
    try:
        yield
    finally:
        shell.kill()
        shell.communicate()
