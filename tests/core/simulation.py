"""Verify and draft engines on one fake clock: passes take time, messages travel, and everybody works at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Any

import torch

from core.draft.engine import DraftConfig, DraftEngine
from core.generation import GenerationRequest, Run
from core.model.base import Rows
from core.verify.engine import VerifyConfig, VerifyEngine
from core.wire.messages import Address, Commit, OpenSession
from tests.core.toy import VOCAB_SIZE, Clock, ToyModel, ToyVocabulary

VERIFIER = b"verifier"
PASS = 0.010  # seconds of a target pass with few rows
TRIP = 0.0001  # seconds of a message


class Near(ToyModel):
    """Agrees with the target mostly; where it does not, the target's token is often among its next best."""

    def __init__(self, num_pages: int = 2048, *, loops: bool = False) -> None:
        super().__init__(num_pages=num_pages, loops=loops)
        self._table = self._table + 0.15 * torch.randn(self._table.shape, generator=torch.Generator().manual_seed(3))


class PartlyRight(ToyModel):
    """A draft that disagrees with the target after one in `every` pasts."""

    def __init__(self, every: int) -> None:
        super().__init__()
        self._every = every

    def _row(self, last: Sequence[int]) -> int:
        row = super()._row(last)
        return row if row % self._every else (row + 1) % 1009


class Actor:
    """Somebody with a mailbox who does one thing at a time."""

    def __init__(self) -> None:
        self.busy_until = 0.0
        self.due = 0.0
        self.inbox: list[tuple[float, bytes, Any]] = []

    def next_turn(self) -> float:
        return max(self.busy_until, min([self.due, *[at for at, _, _ in self.inbox]]))

    def arrived(self, now: float) -> list[tuple[bytes, Any]]:
        messages = [(peer, message) for at, peer, message in self.inbox if at <= now]
        self.inbox = [entry for entry in self.inbox if entry[0] > now]
        return messages


class Target(Actor):
    """`passes` are (begin, end, proposals put to the target).

    They take longer by the share `contention` while a draft is allowed to draft ahead.
    """

    def __init__(self, clock: Clock, config: VerifyConfig, contention: float = 0.0) -> None:
        super().__init__()
        self.clock = clock
        self.contention = contention
        self.looks_ahead = False
        self.model = ToyModel()
        self.model.on_forward = self._take_time
        self.engine = VerifyEngine(self.model, ToyVocabulary(), config, clock)
        self.runs: dict[int, list[Run]] = {}
        self.passes: list[tuple[float, float, int]] = []

    def turn(self) -> list[tuple[bytes, Any]]:
        for peer, message in self.arrived(self.clock.now):
            self.engine.receive(peer, message)
        wait = self.engine.wait()
        self.due = math.inf if wait is None else self.clock.now + wait
        if wait == 0.0:
            began = self.clock.now
            stepped = self.engine.step()
            for number, run in stepped:
                self.runs[number].append(run)
            self.passes.append((began, self.clock.now, sum(run.proposed for _, run in stepped)))
            self.due = self.clock.now
        messages = self.engine.outgoing()
        commits = [message for _, message in messages if isinstance(message, Commit)]
        if commits:
            self.looks_ahead = any(commit.lookahead and commit.num_tokens != 0 for commit in commits)
        return messages

    def _take_time(self, batch: Sequence[Rows]) -> None:
        rows = sum(len(rows.tokens) for rows in batch)
        self.clock.now += PASS * (1 + 0.01 * rows) * (1 + self.contention * self.looks_ahead)


class Draft(Actor):
    """A draft engine whose pass takes `seconds`, give or take a tenth, whatever its rows; silent within `silence`.

    With `dear_lines` more than four rows cost in proportion.
    """

    def __init__(
        self, clock: Clock, model: ToyModel, seconds: float, silence: tuple[float, float], dear_lines: bool
    ) -> None:
        super().__init__()
        self.clock = clock
        self.engine = DraftEngine(model, VOCAB_SIZE, DraftConfig(), clock)
        self.silence = silence
        self._seconds = seconds
        self._random = Random(5)
        self._dear_lines = dear_lines
        model.on_forward = self._take_time

    def turn(self) -> list[tuple[bytes, Any]]:
        begin, end = self.silence
        if begin <= self.clock.now < end:
            self.busy_until = end
            return []
        for _, message in self.arrived(self.clock.now):
            self.engine.receive(VERIFIER, message)
        self.engine.expired()
        messages = self.engine.outgoing()
        if not messages and self.engine.drafting:
            self.engine.step()
            messages = self.engine.outgoing()
        wait = self.engine.wait()
        self.due = math.inf if wait is None else self.clock.now + wait
        return messages

    def _take_time(self, batch: Sequence[Rows]) -> None:
        times = max(1.0, sum(len(rows.tokens) for rows in batch) / 4) if self._dear_lines else 1.0
        self.clock.now += self._seconds * self._random.uniform(0.9, 1.1) * times


class Simulation:
    """One target and any number of drafts, run until every answer is complete."""

    def __init__(self, config: VerifyConfig | None = None, contention: float = 0.0) -> None:
        self.clock = Clock()
        self.target = Target(self.clock, config or VerifyConfig(), contention)
        self.drafts: dict[bytes, Draft] = {}

    def generate(self, asked: GenerationRequest) -> int:
        [number] = self.target.engine.open([asked])
        self.target.runs[number] = []
        return number

    def draft(
        self,
        seconds: float,
        model: ToyModel | None = None,
        silence: tuple[float, float] = (math.inf, math.inf),
        *,
        dear_lines: bool = False,
    ) -> Draft:
        draft = Draft(self.clock, model or ToyModel(), seconds, silence, dear_lines)
        self.drafts[b"math#%d" % len(self.drafts)] = draft
        return draft

    def join(
        self, draft: Draft, number: int, asked: GenerationRequest, tokens: int = 4, *, lookahead: bool = True
    ) -> None:
        opened = OpenSession(
            session=number,
            epoch=0,
            verifier=Address("", ""),
            tokens=asked.tokens,
            prompt_length=asked.prompt_length,
            params=asked.params,
            choice=asked.choice,
            num_speculative_tokens=tokens,
            lookahead=lookahead,
        )
        draft.engine.open(opened, VERIFIER)
        draft.due = min(draft.due, self.clock.now)

    def run(self) -> None:
        while self.target.engine.gauges()["sessions"]:
            self.turn()
        for draft in self.drafts.values():  # they learn that it is over
            for _, _, message in draft.inbox:
                draft.engine.receive(VERIFIER, message)

    def turn(self) -> None:
        """The next thing that happens anywhere; it begins at its own time and ends at `busy_until`."""
        names: dict[bytes, Target | Draft] = {VERIFIER: self.target, **self.drafts}
        name = min(names, key=lambda name: names[name].next_turn())
        actor = names[name]
        self.clock.now = actor.next_turn()
        messages = actor.turn()
        actor.busy_until = max(actor.busy_until, self.clock.now)
        for peer, message in messages:
            receiver = names[peer] if name == VERIFIER else self.target
            receiver.inbox.append((self.clock.now + TRIP, name, message))
