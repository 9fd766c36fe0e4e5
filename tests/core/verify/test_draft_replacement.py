"""Drafts that replace one another in the middle of an answer, in any order and however wrong, change no token of it."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from core.draft.engine import DraftConfig, DraftEngine
from core.wire.messages import Propose
from tests.core.pair import opened
from tests.core.simulation import VERIFIER, Near, PartlyRight
from tests.core.toy import VOCAB_SIZE, ToyModel, plain_tokens, request
from tests.core.verify.bench import Bench

PEERS = (b"right#1", b"near#1", b"wrong#1")
MODELS = (ToyModel, Near, lambda: PartlyRight(2))
REPLACE, SPEAK, LISTEN, PASS = "replace", "speak", "listen", "pass"

# What happens next, and whose draft it is; a replacement may lag behind by some epochs, as a lost one's retry would.
STEPS = st.lists(
    st.tuples(st.sampled_from([REPLACE, SPEAK, LISTEN, PASS, PASS]), st.integers(0, 2), st.integers(0, 1)), max_size=60
)


class Replacing:
    """A verifier, and drafts of three pools that join the same session one after another, and may all be in it."""

    def __init__(self, tokens: int, temperature: float) -> None:
        self.asked = request(tokens, temperature=temperature)
        self.bench = Bench()
        [self.number] = self.bench.engine.open([self.asked])
        self.drafts = [DraftEngine(make(), VOCAB_SIZE, DraftConfig(), self.bench.clock) for make in MODELS]
        self.posts: list[list[object]] = [[] for _ in MODELS]
        self.epoch = 0

    def take(self, what: str, pool: int, lag: int) -> None:
        draft = self.drafts[pool]
        if what == REPLACE:
            known = (*self.asked.tokens, *self.bench.tokens(self.number))
            draft.open(opened(self.asked, self.number, known, max(0, self.epoch - lag)), VERIFIER)
            self.epoch += 1
        elif what == SPEAK:
            while draft.drafting:
                draft.step()
            for _, message in draft.outgoing():
                assert isinstance(message, Propose)
                self.bench.engine.receive(PEERS[pool], message)
        elif what == LISTEN:
            for message in self.posts[pool]:
                draft.receive(VERIFIER, message)  # type: ignore[arg-type]
            self.posts[pool].clear()
        else:
            self.bench.clock.now += 0.01
            self.bench.step()
            for peer, message in self.bench.engine.outgoing():
                self.posts[PEERS.index(peer)].append(message)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.sampled_from([0.0, 1.0]))
def test_no_order_of_replacements_changes_a_token(steps: Sequence[tuple[str, int, int]], temperature: float) -> None:
    run = Replacing(40, temperature)
    for step in steps:
        if run.bench.sessions:
            run.take(*step)
    run.bench.finish()
    assert run.bench.tokens(run.number) == plain_tokens(run.asked)


def test_the_proposals_of_every_replacement_are_used() -> None:
    run = Replacing(60, 1.0)
    accepted = []
    for pool in (1, 2, 0):
        run.take(REPLACE, pool, 0)
        before = sum(one.accepted for one in run.bench.runs[run.number])
        for _ in range(4):
            for what in (SPEAK, PASS, LISTEN):
                run.take(what, pool, 0)
        accepted.append(sum(one.accepted for one in run.bench.runs[run.number]) - before)
    assert min(accepted) > 0
    run.bench.finish()
    assert run.bench.tokens(run.number) == plain_tokens(run.asked)
