"""The wire over real sockets: keys, garbage, floods, unread mail, and two processes without Ray."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
import zmq

from core.draft_key import DraftKey
from core.family import TARGET_DIR
from core.generation import GenerationRequest
from core.sampling.params import SamplingParams
from core.text.tokenizer import load_tokenizer
from core.wire.messages import Address, Close, Commit, OpenSession, Propose, draft_key
from core.wire.transport import (
    MAX_PROPOSALS,
    MESSAGES_PER_TURN,
    QUEUED_FRAMES,
    QUEUED_SESSIONS,
    DraftWire,
    Outbox,
    VerifierWire,
)
from tests.family.corpora import TASKS, items

ROOT = Path(__file__).parents[3]
Result = TypeVar("Result")
PATIENCE = 60.0  # seconds after which something that has to happen has not happened


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    with zmq.Context() as context:
        yield context


@pytest.fixture
def verifier(context: zmq.Context[zmq.Socket[bytes]]) -> Iterator[VerifierWire]:
    wire = VerifierWire(context, "127.0.0.1")
    yield wire
    wire.close()


@pytest.fixture
def join(context: zmq.Context[zmq.Socket[bytes]]) -> Iterator[Callable[[], DraftWire]]:
    wires: list[DraftWire] = []

    def make() -> DraftWire:
        wires.append(DraftWire(context, DraftKey("math")))
        return wires[-1]

    yield make
    for wire in wires:
        wire.close()


def until(found: Callable[[], Result]) -> Result:
    """What `found` returns once that is something."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if result := found():
            return result
        time.sleep(0.001)
    raise AssertionError("it has not happened")


def proposals(wire: VerifierWire) -> list[tuple[bytes, Propose]]:
    return until(lambda: list(wire.receive()))


# ---- who gets in


@pytest.mark.parametrize(
    "key", [DraftKey("math"), DraftKey("math_0a1b", "20260101"), DraftKey("老师-一下"), DraftKey("c#-code", "1a")]
)
def test_a_draft_is_known_by_its_key(
    key: DraftKey, context: zmq.Context[zmq.Socket[bytes]], verifier: VerifierWire
) -> None:
    draft = DraftWire(context, key)
    draft.send([(draft.connect(verifier.address), Propose(1, 0, 3, ()))])
    [(peer, _)] = proposals(verifier)
    assert draft_key(peer) == key
    draft.close()


def test_a_proposal_and_its_answer_cross(verifier: VerifierWire, join: Callable[[], DraftWire]) -> None:
    draft = join()
    to = draft.connect(verifier.address)
    assert draft.connect(verifier.address) == to
    draft.send([(to, Propose(1, 0, 5, (7, 8))), (to, Propose(2, 0, 9, ()))])
    received = proposals(verifier)
    assert [message for _, message in received] == [Propose(1, 0, 5, (7, 8)), Propose(2, 0, 9, ())]
    peer = received[0][0]
    assert peer.startswith(b"math#")
    verifier.send([(peer, Commit(1, 5, (7,))), (peer, Close(2, 0))])
    assert until(lambda: list(draft.receive())) == [(to, Commit(1, 5, (7,))), (to, Close(2, 0))]


def test_a_wrong_key_gets_nothing_and_breaks_nothing(
    verifier: VerifierWire, join: Callable[[], DraftWire], context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    stranger, draft = join(), join()
    other_key, _ = zmq.curve_keypair()
    wrong = stranger.connect(Address(verifier.address.endpoint, other_key.decode()))
    stranger.send([(wrong, Propose(1, 0, 5, (6,)))])
    plain = context.socket(zmq.DEALER)
    plain.linger = 0
    plain.connect(verifier.address.endpoint)
    plain.send(msgspec.msgpack.encode([Propose(1, 0, 5, (6,))]))
    with socket.create_connection(("127.0.0.1", int(verifier.address.endpoint.rsplit(":")[-1]))) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\n\r\n" * 1000)
    for number in range(20):
        to = draft.connect(verifier.address)
        draft.send([(to, Propose(number, 0, 5, (7,)))])
        assert [message for _, message in proposals(verifier)] == [Propose(number, 0, 5, (7,))]
        time.sleep(0.01)
    assert list(stranger.receive()) == []
    plain.close()


GARBAGE = [
    b"",
    b"\xc1",
    b"\x91\x95\xa7propo\xff\xfe\x01\x00\x05\x90",  # a tag that is not UTF-8
    bytes(range(256)) * 20,
    b"\x91" * 5000,
    msgspec.msgpack.encode({"session": 1}),
    msgspec.msgpack.encode([["propose", 1, 0, 5, ["seven"]]]),
    msgspec.msgpack.encode([["propose", 1, 0, 5]]),
    msgspec.msgpack.encode([["propose", 1.5, 0, 5, []]]),
    msgspec.msgpack.encode([["commit", 1, 5, [7]]]),
    msgspec.msgpack.encode([Propose(1, 0, 5, (7,)), None]),
]


def test_garbage_is_counted_and_dropped(verifier: VerifierWire, join: Callable[[], DraftWire]) -> None:
    evil, draft = join(), join()
    to = evil.connect(verifier.address)
    for frame in GARBAGE:
        evil.sockets[to].send_multipart([frame, frame])
        evil.sockets[to].send(b"x" * (MAX_PROPOSALS + 1))  # ZeroMQ hangs up on it
        evil.sockets[to].send(frame)
        until(lambda: list(verifier.receive()) or verifier.counts["dropped_undecodable"] > 0)
    draft.send([(draft.connect(verifier.address), Propose(3, 0, 5, (7,)))])
    assert [message for _, message in proposals(verifier)] == [Propose(3, 0, 5, (7,))]
    assert verifier.counts["dropped_undecodable"] >= len(GARBAGE)


def test_garbage_from_a_verifier_is_counted_and_dropped(verifier: VerifierWire, join: Callable[[], DraftWire]) -> None:
    draft = join()
    draft.send([(draft.connect(verifier.address), Propose(1, 0, 5, ()))])
    [(peer, _)] = proposals(verifier)
    verifier.socket.send_multipart([peer, b"\xc1", b"\x91", b"\x91\x93\xa5clo\xff\xfe\x01\x00"])
    verifier.send([(peer, Close(1, 0))])
    assert [message for _, message in until(lambda: list(draft.receive()))] == [Close(1, 0)]
    assert draft.counts["dropped_undecodable"] == 3


# ---- too much of it


def test_a_flooding_peer_does_not_stop_the_others(verifier: VerifierWire, join: Callable[[], DraftWire]) -> None:
    flood, draft = join(), join()
    to = flood.connect(verifier.address)
    frame = msgspec.msgpack.encode([Propose(number, 0, 0, ()) for number in range(4000)])
    sent = 0
    while sent < 100:
        try:
            flood.sockets[to].send(frame, zmq.NOBLOCK)
            sent += 1
        except zmq.Again:
            if sent > QUEUED_FRAMES:
                break
            time.sleep(0.01)
    draft.send([(draft.connect(verifier.address), Propose(1, 0, 5, (7,)))])
    turns = [list(verifier.receive())]
    while not any(message == Propose(1, 0, 5, (7,)) for _, message in turns[-1]):
        turns.append(until(lambda: list(verifier.receive())))
    assert max(len(turn) for turn in turns) <= MESSAGES_PER_TURN + len(frame)
    assert sum(len(turn) for turn in turns) > 4000


def test_unread_mail_is_replaced_by_newer_mail(verifier: VerifierWire, join: Callable[[], DraftWire]) -> None:
    draft = join()
    draft.send([(draft.connect(verifier.address), Propose(1, 0, 0, ()))])
    [(peer, _)] = proposals(verifier)
    for number in range(1000):  # 50 MB: more than the buffers on the way hold
        verifier.send([(peer, Commit(1, number, (50_000,) * 16_000))])
    read: list[int] = []

    def newest_read() -> bool:
        read.extend(message.base for _, message in draft.receive() if isinstance(message, Commit))
        verifier.send([])
        return read[-1:] == [999]

    until(newest_read)
    assert read == sorted(read)
    assert len(read) < 900


def test_the_outbox_keeps_the_newest_message_of_a_bounded_number_of_sessions() -> None:
    outbox = Outbox()
    for session in range(QUEUED_SESSIONS + 5):
        outbox.put([(b"peer", Close(session, 0)), (b"peer", Close(session, 1))])
    [(peer, frame)] = outbox.frames()
    messages = msgspec.msgpack.decode(frame, type=list[Close])
    assert (peer, len(messages), messages[-1]) == (b"peer", QUEUED_SESSIONS, Close(QUEUED_SESSIONS + 4, 1))
    outbox.sent(b"peer")
    assert list(outbox.frames()) == []


def test_mail_for_a_peer_that_is_gone_is_counted(verifier: VerifierWire) -> None:
    verifier.send([(b"nobody", Close(1, 0))])
    verifier.send([])
    assert verifier.counts == {"dropped_unreachable": 1}


# ---- two processes without Ray


WITHOUT_RAY = """
import runpy, sys
sys.modules["ray"] = None  # importing it fails as if it were not installed
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Process:
    """`two_processes.py` as the target or the draft; JSON lines in and out."""

    def __init__(self, role: str) -> None:
        script = Path(__file__).with_name("two_processes.py")
        self._process = subprocess.Popen(
            [sys.executable, "-c", WITHOUT_RAY, script, role],
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(PATIENCE)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe
            pipe.close()

    def tell(self, message: object) -> None:
        assert self._process.stdin
        self._process.stdin.write(msgspec.json.encode(message) + b"\n")
        self._process.stdin.flush()

    def hear(self, kind: type[Result]) -> Result:
        assert self._process.stdout
        return msgspec.json.decode(self._process.stdout.readline(), type=kind)

    def end(self) -> dict[str, int]:
        """What it counted."""
        assert self._process.stdin
        self._process.stdin.close()
        counts = self.hear(dict[str, int])
        assert self._process.wait(PATIENCE) == 0
        return counts


def family_requests(temperature: float) -> list[GenerationRequest]:
    """A prompt per task; answers as long as asked for, so that the draft is there in time."""
    tokenizer = load_tokenizer(TARGET_DIR)
    requests = []
    for task in TASKS:
        [item] = items(task, 1, 5, split="held_out")
        prompt = tuple(tokenizer.encode_chat([{"role": "user", "content": item.prompt}]))
        bias = dict.fromkeys(tokenizer.eos_ids, -100.0)
        params = SamplingParams(seed=11, max_tokens=60, temperature=temperature, logit_bias=bias)
        requests.append(GenerationRequest(tokens=prompt, prompt_length=len(prompt), params=params))
    return requests


def test_two_processes_without_ray_answer_as_without_speculation() -> None:
    requests = family_requests(0.0) + family_requests(1.0)
    plain = [msgspec.structs.replace(request, num_speculative_tokens=0) for request in requests]
    with Process("target") as target, Process("draft") as draft:
        address = target.hear(Address)
        target.tell(plain)
        target.hear(list[int])
        expected = target.hear(list[list[int]])
        target.tell(requests)
        numbers = target.hear(list[int])
        draft.tell([opened(request, number, address) for request, number in zip(requests, numbers, strict=True)])
        assert target.hear(list[list[int]]) == expected
        drafted, counts = draft.end(), target.end()
    assert [len(answer) for answer in expected] == [60] * len(requests)
    assert counts["accepted"] > 0
    assert counts["proposed"] >= counts["accepted"]
    assert counts.get("sessions", 0) == counts.get("pages", 0) == 0
    assert drafted["drafted"] >= counts["proposed_draft"]


def opened(request: GenerationRequest, number: int, address: Address) -> OpenSession:
    return OpenSession(
        session=number,
        epoch=0,
        verifier=address,
        tokens=request.tokens,
        prompt_length=request.prompt_length,
        params=request.params,
        choice=request.choice,
        num_speculative_tokens=4,
    )
