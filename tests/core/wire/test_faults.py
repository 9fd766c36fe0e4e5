"""The answer is the plain target's, even if messages are delayed, doubled, dropped or reordered."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from core.draft.engine import DraftConfig, DraftEngine
from core.model.base import Rows
from core.policy.cost_model import PROFILED_ROWS
from core.verify.engine import VerifyConfig, VerifyEngine
from core.wire.messages import Address, Close, Commit, OpenSession, Propose
from tests.core.toy import PROMPT, VOCAB_SIZE, Clock, ToyModel, ToyVocabulary, plain_tokens, request
from tests.examples import examples

ANSWER = 4000  # longer than any example gets
STEP = 0.010
VERIFIER = b"verifier"
MISTAKEN = 1  # a draft's salt: a model that disagrees with the target nearly everywhere


@cache
def expected() -> tuple[int, ...]:
    return plain_tokens(request(ANSWER))


class Draft:
    """A draft engine and the name the verifier knows it by."""

    def __init__(self, peer: bytes, salt: int, clock: Clock) -> None:
        self.peer = peer
        self.engine = DraftEngine(ToyModel(salt), VOCAB_SIZE, DraftConfig(), clock)


class FaultyWire(RuleBasedStateMachine):
    """One generation, drafts that come and go, and a network that delays, doubles, drops and reorders."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.target = ToyModel()
        self.target.on_forward = self.check_pass
        self.verifier = VerifyEngine(self.target, ToyVocabulary(), VerifyConfig(), self.clock)
        for rows in PROFILED_ROWS:  # before there is work
            self.verifier.policy.costs.observe(rows, STEP)
        [self.session] = self.verifier.open([request(ANSWER)])
        self.answer: list[int] = []
        self.drafts: list[Draft] = []
        self.seats = 0
        self.flying: list[tuple[bytes, Propose | Commit | Close]] = []
        self.join(salt=0, known=0)

    # ---- what happens

    @rule(salt=st.sampled_from([0, 0, MISTAKEN]), known=st.integers(0, 50))
    @precondition(lambda self: self.seats < 3)
    def join(self, salt: int, known: int) -> None:
        """The ingress wires a draft, from what it has received so far."""
        draft = Draft(b"math#%d" % self.seats, salt, self.clock)
        tokens = (*PROMPT, *self.answer[: max(0, len(self.answer) - known)])
        params = request(ANSWER).params
        opened = OpenSession(
            session=self.session,
            epoch=self.seats,
            verifier=Address("", ""),
            tokens=tokens,
            prompt_length=len(PROMPT),
            params=params,
            choice=0,
            num_speculative_tokens=4,
        )
        draft.engine.open(opened, VERIFIER)
        self.drafts.append(draft)
        self.seats += 1

    @rule(passes=st.integers(1, 6))
    def draft_works(self, passes: int) -> None:
        for draft in self.drafts:
            for _ in range(passes):
                draft.engine.step()
            self.flying += [(draft.peer, message) for _, message in draft.engine.outgoing()]

    @rule()
    def verifier_steps(self) -> None:
        self.clock.now += STEP
        for _, run in self.verifier.step():
            self.answer += run.tokens
        self.flying += self.verifier.outgoing()

    @rule(data=st.data())
    @precondition(lambda self: self.flying)
    def deliver_any(self, data: st.DataObject) -> None:
        """In any order: reordering and delay."""
        self.deliver(self.flying.pop(data.draw(st.integers(0, len(self.flying) - 1))))

    @rule()
    def deliver_all(self) -> None:
        while self.flying:
            self.deliver(self.flying.pop(0))

    @rule(data=st.data())
    @precondition(lambda self: self.flying)
    def duplicate(self, data: st.DataObject) -> None:
        self.flying.append(data.draw(st.sampled_from(self.flying)))

    @rule(data=st.data())
    @precondition(lambda self: self.flying)
    def lose(self, data: st.DataObject) -> None:
        self.flying.pop(data.draw(st.integers(0, len(self.flying) - 1)))

    @rule()
    def reconnect(self) -> None:
        """Everything under way is gone."""
        self.flying.clear()

    @rule(seconds=st.sampled_from([0.001, 0.05, 3.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule(
        peer=st.sampled_from([b"math#0", b"math#1", b"stranger"]),
        right_session=st.booleans(),
        epoch=st.integers(-1, 0),
        base=st.integers(-3, 60),
        tokens=st.lists(st.integers(-2, VOCAB_SIZE + 2) | st.integers(-(2**70), 2**70), max_size=40),
    )
    def hostile(self, peer: bytes, right_session: bool, epoch: int, base: int, tokens: list[int]) -> None:
        session = self.session if right_session else self.session ^ 1
        self.verifier.receive(peer, Propose(session, epoch, base, tuple(tokens)))
        self.flying += self.verifier.outgoing()

    # ---- what must hold

    @invariant()
    def answer_is_the_plain_one(self) -> None:
        assert tuple(self.answer) == expected()[: len(self.answer)]

    def check_pass(self, batch: Sequence[Rows]) -> None:
        """Every token is put to the target behind committed ones or behind others of the same run."""
        for rows in batch:
            committed = [*PROMPT, *self.answer]
            cached = self.target.cached[rows.session]
            assert cached == committed[: len(cached)]
            behind = committed[len(cached) :]
            assert list(rows.tokens[: len(behind)]) == behind[: len(rows.tokens)]

    def teardown(self) -> None:
        """Faults stop: a draft equal to the target is soon verified at nearly its full length."""
        self.reconnect()
        self.join(salt=0, known=3)
        for _ in range(10):
            self.round()
        before = self.verifier.counts.copy()
        for _ in range(20):
            self.round()
        gained = self.verifier.counts - before
        assert gained["proposed"] >= 0.9 * 20 * 4
        assert gained["accepted"] >= 0.9 * gained["proposed"]

    def round(self) -> None:
        self.clock.now += STEP / 8
        self.draft_works(passes=8)
        self.deliver_all()
        self.verifier_steps()
        self.deliver_all()

    def deliver(self, message: tuple[bytes, Propose | Commit | Close]) -> None:
        peer, content = message
        if isinstance(content, Propose):
            self.verifier.receive(peer, content)
            self.flying += self.verifier.outgoing()
        else:
            for draft in self.drafts:
                if draft.peer == peer:
                    draft.engine.receive(VERIFIER, content)


TestFaultyWire = FaultyWire.TestCase
TestFaultyWire.settings = settings(
    max_examples=examples(120), stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
