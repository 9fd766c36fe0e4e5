"""The draft's thread: what is opened, opened again and closed from outside."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import msgspec
import pytest
import zmq

from core.draft.drafter import Drafter
from core.draft.engine import DraftConfig
from core.draft_key import DraftKey
from core.sampling.params import SamplingParams
from core.wire.messages import Address, OpenSession
from tests.core.toy import VOCAB_SIZE, ToyModel

KEY = zmq.curve_keypair()[0].decode()
OPENED = OpenSession(
    session=5,
    epoch=0,
    verifier=Address("tcp://127.0.0.1:9", KEY),  # nobody is there
    tokens=(1, 2, 3),
    prompt_length=3,
    params=SamplingParams(seed=0, max_tokens=20),
    choice=0,
    num_speculative_tokens=4,
)
PATIENCE = 60


@pytest.fixture
def drafter() -> Iterator[Drafter]:
    drafter = Drafter(ToyModel(), VOCAB_SIZE, DraftConfig(), DraftKey("math"))
    drafter.start()
    yield drafter
    drafter.stop()


def sessions(drafter: Drafter) -> int:
    return drafter.counts().result(PATIENCE)["sessions"]


def test_a_later_seat_ends_the_earlier_one_and_is_not_ended_by_it(drafter: Drafter) -> None:
    ended = threading.Event()
    later = msgspec.structs.replace(OPENED, epoch=1)
    drafter.open(OPENED, ended.set).result(PATIENCE)
    drafter.open(later, lambda: None).result(PATIENCE)
    assert ended.is_set()
    drafter.close(OPENED).result(PATIENCE)
    assert sessions(drafter) == 1
    drafter.close(later).result(PATIENCE)
    assert sessions(drafter) == 0


def test_a_stopped_draft_tells_whoever_holds_a_session(drafter: Drafter) -> None:
    ended = threading.Event()
    drafter.open(OPENED, ended.set).result(PATIENCE)
    drafter.stop()
    assert ended.is_set()


def test_connections_to_verifiers_without_sessions_end_when_a_new_verifier_appears(drafter: Drafter) -> None:
    for number in range(5):
        address = Address(f"tcp://127.0.0.1:{number + 1}", KEY)
        opened = msgspec.structs.replace(OPENED, session=number, verifier=address)
        drafter.open(opened, lambda: None).result(PATIENCE)
        drafter.close(opened).result(PATIENCE)
    assert len(drafter._wire.peers()) == 1
