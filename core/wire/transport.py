"""ZeroMQ between drafts and verifier: the verifier binds one ROUTER, every draft replica connects a DEALER to it.

The connections are encrypted with CURVE. Only holders of the verifier's public key, which is handed out through Ray,
can connect. Sends never block: a message that cannot be sent waits in the outbox, where the next one for its session
replaces it. Frames that do not decode are counted and dropped.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TypeVar

import msgspec
import zmq

from core.draft_key import DraftKey
from core.wire.messages import Address, Close, Commit, Propose, draft_identity

MAX_COMMITS = 1 << 22  # bytes of a frame to a draft: all tokens of every session, if it has received none
MAX_PROPOSALS = 1 << 17  # bytes of a frame to the verifier: window and branches of every session
QUEUED_FRAMES = 8  # per peer, inside ZeroMQ
QUEUED_SESSIONS = 1024  # per peer, in the outbox
MESSAGES_PER_TURN = 4096  # so that a flooding peer cannot hold the engine
UNDECODABLE = (ValueError, RecursionError)  # msgspec's own errors and UnicodeDecodeError are all ValueErrors

_encode = msgspec.msgpack.Encoder().encode
_to_verifier = msgspec.msgpack.Decoder(list[Propose])
_to_draft = msgspec.msgpack.Decoder(list[Commit | Close])

Message = Propose | Commit | Close
Received = TypeVar("Received", Propose, Commit | Close)


class Outbox:
    """The newest unsent message per peer and session. Of `QUEUED_SESSIONS` per peer, the oldest is dropped first."""

    def __init__(self) -> None:
        self._messages: dict[bytes, dict[int, Message]] = {}

    def put(self, messages: Iterable[tuple[bytes, Message]]) -> None:
        for peer, message in messages:
            unsent = self._messages.setdefault(peer, {})
            unsent[message.session] = message
            if len(unsent) > QUEUED_SESSIONS:
                del unsent[next(iter(unsent))]

    def frames(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield (peer, frame) for all unsent messages."""
        for peer, messages in list(self._messages.items()):
            yield peer, _encode(list(messages.values()))

    def sent(self, peer: bytes) -> None:
        self._messages.pop(peer, None)


class VerifierWire:
    """The verifier's end, listening on a free port of `host`."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], host: str) -> None:
        self.counts: Counter[str] = Counter()
        self._outbox = Outbox()
        public_key, secret_key = zmq.curve_keypair()
        self.socket = _socket(context, zmq.ROUTER, MAX_PROPOSALS)
        self.socket.curve_server = True
        self.socket.curve_secretkey = secret_key
        self.socket.router_mandatory = True
        port = self.socket.bind_to_random_port(f"tcp://{host}")
        self.address = Address(f"tcp://{host}:{port}", public_key.decode())

    def receive(self) -> Iterator[tuple[bytes, Propose]]:
        """Yield the proposals that have arrived, each with its peer."""
        budget = MESSAGES_PER_TURN
        while budget > 0 and (parts := _received(self.socket)):
            peer, *frames = parts
            for frame in frames:
                messages = _decoded(frame, _to_verifier, self.counts)
                budget -= 1 + len(messages)
                for message in messages:
                    yield peer, message

    def send(self, messages: Iterable[tuple[bytes, Commit | Close]]) -> None:
        self._outbox.put(messages)
        for peer, frame in self._outbox.frames():
            try:
                self.socket.send_multipart((peer, frame), zmq.NOBLOCK)
            except zmq.Again:
                continue
            except zmq.ZMQError as error:
                if error.errno != zmq.EHOSTUNREACH:
                    raise
                self.counts["dropped_unreachable"] += 1
            self._outbox.sent(peer)

    def close(self) -> None:
        self.socket.close(0)


class DraftWire:
    """A draft's end: one connection per verifier; endpoint and key identify a peer."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], key: DraftKey) -> None:
        self.counts: Counter[str] = Counter()
        self._context = context
        self._identity = draft_identity(key)
        self._outbox = Outbox()
        self._keys = zmq.curve_keypair()
        self.sockets: dict[bytes, zmq.Socket[bytes]] = {}

    def connect(self, address: Address) -> bytes:
        """Connect to a verifier unless already connected; returns the peer."""
        peer = f"{address.endpoint} {address.public_key}".encode()
        if peer not in self.sockets:
            socket = _socket(self._context, zmq.DEALER, MAX_COMMITS)
            socket.routing_id = self._identity
            socket.curve_publickey, socket.curve_secretkey = self._keys
            socket.curve_serverkey = address.public_key.encode()
            socket.connect(address.endpoint)
            self.sockets[peer] = socket
        return peer

    def peers(self) -> set[bytes]:
        return set(self.sockets)

    def disconnect(self, peer: bytes) -> None:
        self._outbox.sent(peer)
        socket = self.sockets.pop(peer, None)
        if socket is not None:
            socket.close(0)

    def receive(self) -> Iterator[tuple[bytes, Commit | Close]]:
        """Yield the messages that have arrived, each with its verifier's peer."""
        for peer, socket in list(self.sockets.items()):
            for _ in range(QUEUED_FRAMES):
                if not (frames := _received(socket)):
                    break
                for frame in frames:
                    for message in _decoded(frame, _to_draft, self.counts):
                        yield peer, message

    def send(self, messages: Iterable[tuple[bytes, Propose]]) -> None:
        self._outbox.put(messages)
        for peer, frame in self._outbox.frames():
            try:
                self.sockets[peer].send(frame, zmq.NOBLOCK)
            except zmq.Again:
                continue
            self._outbox.sent(peer)
            os.sched_yield()  # ZeroMQ's thread wakes on this core and must not wait for the next draft pass

    def close(self) -> None:
        for peer in list(self.sockets):
            self.disconnect(peer)


def _received(socket: zmq.Socket[bytes]) -> list[bytes]:
    """The parts of the next message, or an empty list.

    It checks for a message first: an exception for an empty socket cost the verifier 30 us of a round (Zen 3).
    """
    if int(socket.get(zmq.EVENTS)) & zmq.POLLIN:
        with suppress(zmq.Again):  # its sender may have disconnected
            return socket.recv_multipart(zmq.NOBLOCK)
    return []


def _decoded(frame: bytes, decoder: msgspec.msgpack.Decoder[list[Received]], counts: Counter[str]) -> list[Received]:
    """The messages of a frame; a frame that does not decode is counted and gives none."""
    try:
        return decoder.decode(frame)
    except UNDECODABLE:
        counts["dropped_undecodable"] += 1
        return []


def _socket(context: zmq.Context[zmq.Socket[bytes]], kind: int, max_frame: int) -> zmq.Socket[bytes]:
    socket = context.socket(kind)
    socket.linger = 0
    socket.maxmsgsize = max_frame
    socket.sndhwm = socket.rcvhwm = QUEUED_FRAMES
    socket.reconnect_ivl, socket.reconnect_ivl_max = 20, 1000
    return socket
