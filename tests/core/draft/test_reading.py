"""A draft that reads a long prompt: others have their proposals meanwhile, and the prompt is read all the same."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from core.model.base import Rows
from core.wire.messages import Commit
from tests.core.draft.bench import draft
from tests.core.pair import opened
from tests.core.simulation import VERIFIER
from tests.core.toy import PROMPT, VOCAB_SIZE, request

LONG, CHUNK = 1500, 256
PASS, ROW, ROUND = 0.0003, 0.00005, 0.010  # seconds: of a pass, of each of its rows, and of the verifier's round


class Timed:
    """A draft engine whose passes take time; `passes` has the rows of each by session."""

    def __init__(self) -> None:
        self.engine, self.model, self.clock = draft(prefill_chunk=CHUNK)
        self.model.on_forward = self._take_time
        self.passes: list[dict[int, int]] = []
        self.proposed: dict[int, list[tuple[float, tuple[int, ...]]]] = {}  # when, and what

    def join(self, session: int, tokens: Sequence[int] = PROMPT, length: int = 4) -> None:
        self.proposed[session] = []
        self.engine.open(opened(request(2000, tokens=tokens, seed=session), session, ahead=length), VERIFIER)

    def commit(self, session: int, base: int, tokens: Sequence[int]) -> None:
        self.engine.receive(VERIFIER, Commit(session, base, tuple(tokens)))

    def step(self) -> None:
        self.engine.step()
        for _, proposal in self.engine.outgoing():
            if proposal.tokens:
                self.proposed[proposal.session].append((self.clock.now, proposal.tokens))

    def settled(self, sessions: Sequence[int] = (1, 2, 3)) -> None:
        """Sessions that have been asked and answered for some rounds."""
        for session in sessions:
            self.join(session)
        lengths = dict.fromkeys(sessions, len(PROMPT))
        for _ in range(20):
            while self.engine.drafting and not all(self.proposed[session] for session in sessions):
                self.step()
            self.clock.now += ROUND
            for session in sessions:
                _, tokens = self.proposed[session].pop()
                self.commit(session, lengths[session], tokens)
                lengths[session] += len(tokens)
        self.passes.clear()

    def _take_time(self, batch: Sequence[Rows]) -> None:
        self.passes.append({rows.session: len(rows.tokens) for rows in batch})
        self.clock.now += PASS + ROW * sum(len(rows.tokens) for rows in batch)


def text(length: int, seed: int = 1) -> list[int]:
    return Random(seed).choices(range(VOCAB_SIZE), k=length)


def test_a_prompt_alone_is_read_in_the_largest_chunks() -> None:
    timed = Timed()
    timed.join(9, text(LONG))
    while not timed.proposed[9]:
        timed.step()
    assert [rows[9] for rows in timed.passes][:6] == [CHUNK] * 5 + [LONG % CHUNK]


def test_prompts_share_the_chunk_of_a_pass() -> None:
    timed = Timed()
    for session in (7, 8, 9):
        timed.join(session, text(400, session))
    while not all(timed.proposed[session] for session in (7, 8, 9)):
        timed.step()
    assert max(sum(rows.values()) for rows in timed.passes) <= CHUNK


@pytest.mark.parametrize("joining", [1, 3])
def test_proposals_are_late_by_half_a_round_while_prompts_are_read(joining: int) -> None:
    timed = Timed()
    timed.settled()
    asked, quick = timed.clock.now, 5 * (PASS + 3 * ROW)
    for session in range(10, 10 + joining):
        timed.join(session, text(LONG, session))
    timed.step()
    while not all(timed.proposed[session] for session in (1, 2, 3)):
        timed.step()
    late = max(at for session in (1, 2, 3) for at, _ in timed.proposed[session]) - asked
    assert late <= quick + 1.2 * ROUND / 2


def test_a_prompt_is_read_though_others_are_always_asked() -> None:
    timed = Timed()
    timed.settled()
    timed.join(9, text(LONG))
    lengths = {session: len(timed.engine._sessions[session].committed) for session in (1, 2, 3)}
    for _ in range(400):
        timed.step()
        for session in (1, 2, 3):
            if timed.proposed[session]:
                _, tokens = timed.proposed[session].pop()
                timed.commit(session, lengths[session], tokens)
                lengths[session] += len(tokens)
        if timed.proposed[9]:
            break
    reads = [rows[9] for rows in timed.passes if 9 in rows]
    assert timed.proposed[9]
    assert sum(reads) == LONG + 3
    assert sum(9 not in rows for rows in timed.passes) <= 6 * len(reads)
    alone = Timed()
    alone.join(9, text(LONG))
    while not alone.proposed[9]:
        alone.step()
    assert timed.proposed[9][0][1] == alone.proposed[9][0][1]


def test_what_prompts_begin_with_alike_is_read_once() -> None:
    timed = Timed()
    timed.settled()
    system = text(640)
    for session in (7, 8, 9):
        timed.join(session, [*system, *text(100, session)])
    while not all(timed.proposed[session] for session in (7, 8, 9)):
        timed.step()
    read = sum(rows.get(session, 0) for rows in timed.passes for session in (7, 8, 9))
    assert read < 640 + 3 * (100 + 3) + 64
