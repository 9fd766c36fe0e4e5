"""Faults of the wire once more, with drafts that send branches in every round, and hostile ones that send any."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from core.wire.messages import Propose
from tests.core.toy import VOCAB_SIZE
from tests.core.wire.test_faults import FaultyWire
from tests.examples import examples

TOKENS = st.lists(st.integers(-1, VOCAB_SIZE), max_size=40).map(tuple)


class FaultyBranches(FaultyWire):
    """The answer is the plain target's, as in the class that this one extends."""

    @rule(
        peer=st.sampled_from([b"math#0", b"math#1"]),
        behind=st.integers(-2, 8),
        tokens=TOKENS,
        branches=st.lists(TOKENS, max_size=10).map(tuple),
        right=st.booleans(),
    )
    def branch_out(
        self, peer: bytes, behind: int, tokens: tuple[int, ...], branches: tuple[tuple[int, ...], ...], *, right: bool
    ) -> None:
        """Where it is `right`, one of the branches begins as what has been committed since."""
        since = tuple(self.answer[max(0, len(self.answer) - behind) :]) if behind > 0 else ()
        if right:
            branches = (*branches[:4], (*since, *tokens[:8]))
        base = 5 + len(self.answer) - behind
        self.verifier.receive(peer, Propose(self.session, 0, base, tokens[:16], branches=branches))
        self.flying += self.verifier.outgoing()


TestFaultyBranches = FaultyBranches.TestCase
TestFaultyBranches.settings = settings(
    max_examples=examples(80), stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
