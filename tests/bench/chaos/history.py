"""A history: everything that clients sent and got, each with its time, one JSON line an entry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Literal

import msgspec

Kind = Literal["sent", "status", "event", "comment", "end", "held", "fault"]
"""What an entry tells, and its `value`:

    sent      a request: {question, received (the number of token ids that the client has)}
    status    the HTTP status
    event     the data of a server-sent event, as it came; of a refusal its body, with the header as `retry_after`
    comment   a comment of the stream
    end       how an attempt ended: `done`, `closed` by the service, `cancelled` by the client, `refused`, `given up`
    held      the number of sessions that the service holds; of no request
    fault     the name of a fault that begins, or nothing for its end; of no request
"""


class Entry(msgspec.Struct, frozen=True):
    """`at` is in seconds of the clients' clock. `request` numbers requests, `attempt` the times that one was sent."""

    at: float
    kind: Kind
    value: object
    request: int = -1
    attempt: int = 0


class Reference(msgspec.Struct, frozen=True):
    """What plain decoding answers a question."""

    tokens: list[int]
    text: str
    finish_reason: str
    prompt_tokens: int


class Recorder:
    """Writes entries to a file as they come, so that a crash of the run loses none."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def add(self, entry: Entry) -> None:
        self._file.write(msgspec.json.encode(entry) + b"\n")
        self._file.flush()


def read(path: Path) -> Iterator[Entry]:
    """The entries of a history, in order."""
    decode = msgspec.json.Decoder(Entry).decode
    with path.open("rb") as file:
        for line in file:
            yield decode(line)
