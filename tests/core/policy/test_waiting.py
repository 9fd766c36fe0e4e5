"""When the verifier steps: on a fake clock, with drafts that are quick, slow, wrong, dead or malicious."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.policy.draft_policy import CLEARLY, DraftPolicy, Readiness
from core.policy.latency import DraftLatency
from core.verify.draft_link import Requests
from core.verify.engine import VerifyConfig, VerifyEngine
from core.wire.messages import Commit, Propose
from tests.core.simulation import PASS, PartlyRight, Simulation, Target
from tests.core.toy import PROMPT, Clock, ToyModel, ToyVocabulary, plain_tokens, request

ANSWER = 300
NEVER = (math.inf, math.inf)
MISTAKEN = 1  # a salt that makes the draft disagree nearly everywhere


def lone(seconds: float, model: ToyModel | None = None, silence: tuple[float, float] = NEVER) -> Target:
    """One session of `ANSWER` tokens and one draft whose pass takes `seconds`, run to the end."""
    simulation = Simulation()
    asked = request(ANSWER)
    number = simulation.generate(asked)
    simulation.join(simulation.draft(seconds, model, silence), number, asked)
    simulation.run()
    assert tuple(token for run in simulation.target.runs[number] for token in run.tokens) == plain_tokens(asked)
    return simulation.target


def plain_seconds() -> float:
    simulation = Simulation()
    simulation.generate(request(ANSWER))
    simulation.run()
    return simulation.target.passes[-1][1]


def pauses(target: Target, since: float = 0.0) -> list[float]:
    """How long the target stood still after each pass that ended after `since`."""
    passes = target.passes
    return [begin - end for (_, end, _), (begin, _, _) in pairwise(passes) if end > since]


@pytest.mark.parametrize(("model", "speedup"), [(ToyModel(), 2.5), (PartlyRight(5), 1.5)])
def test_a_draft_of_an_eighth_of_a_pass_is_waited_for(model: ToyModel, speedup: float) -> None:
    target = lone(PASS / 8, model)
    after_prefill = target.passes[1:]
    assert sum(proposed == 0 for _, _, proposed in after_prefill) <= 0.05 * len(after_prefill)
    assert target.passes[-1][1] < plain_seconds() / speedup


def test_the_time_of_waiting_and_of_passes_is_counted() -> None:
    simulation = Simulation()
    for _ in range(2):  # between the two there is nothing to wait for
        asked = request(ANSWER // 2)
        number = simulation.generate(asked)
        simulation.join(simulation.draft(PASS / 8), number, asked)
        simulation.run()
        simulation.clock.now += 100 * PASS
    counts, target = simulation.target.engine.counts, simulation.target
    waited = sum(pause for pause in pauses(target) if pause < 50 * PASS)
    assert counts["waiting_us"] == pytest.approx(1e6 * waited, rel=1e-3)
    assert counts["stepping_us"] == pytest.approx(1e6 * sum(end - begin for begin, end, _ in target.passes), rel=1e-3)
    assert 0.0 < counts["waiting_us"] / (counts["waiting_us"] + counts["stepping_us"]) < 0.5


@pytest.mark.parametrize(("model", "least", "most"), [(ToyModel(), 2.5, 5.0), (PartlyRight(5), 1.5, 3.0)])
def test_what_plain_decoding_would_have_taken_is_counted(model: ToyModel, least: float, most: float) -> None:
    target = lone(PASS / 8, model)
    counts = target.engine.counts
    took = plain_seconds() / target.passes[-1][1]
    assert least < took < most
    assert counts["plain_us"] / counts["decoding_us"] == pytest.approx(took, rel=0.05)


def test_plain_decoding_takes_what_it_takes() -> None:
    simulation = Simulation()
    simulation.generate(request(ANSWER))
    simulation.run()
    counts = simulation.target.engine.counts
    assert counts["plain_us"] == pytest.approx(counts["decoding_us"], rel=0.01)


THOROUGH = pytest.mark.thorough
COSTS = [PASS / 4, pytest.param(PASS, marks=THOROUGH), pytest.param(3 * PASS, marks=THOROUGH), 100 * PASS]
MORE_COSTS = [pytest.param(cost, marks=pytest.mark.soak) for cost in (PASS / 2, 1.5 * PASS, 10 * PASS)]
MODELS = {"right": ToyModel(), "half": PartlyRight(2), "wrong": ToyModel(MISTAKEN)}


@pytest.mark.parametrize("seconds", [*COSTS, *MORE_COSTS])
@pytest.mark.parametrize("name", MODELS)
def test_no_draft_makes_a_lone_session_slower_than_plain(name: str, seconds: float) -> None:
    for nearby in (0.8, 0.9, 1.0, 1.1, 1.2):
        assert lone(nearby * seconds, MODELS[name]).passes[-1][1] < 1.03 * plain_seconds(), nearby


def test_a_draft_that_stops_answering_delays_two_passes_at_most() -> None:
    died = 0.5
    target = lone(PASS / 8, silence=(died, math.inf))
    late = [pause for pause in pauses(target, died) if pause > 0.0]
    assert len(late) <= 2
    assert sum(late) < 2 * PASS
    assert len(pauses(target, died)) > 30


def test_a_draft_that_answers_again_is_waited_for_again() -> None:
    died, back = 0.3, 0.8
    target = lone(PASS / 8, silence=(died, back))
    afterwards = [proposed for begin, _, proposed in target.passes if begin > back + 3 * PASS]
    assert len(afterwards) > 15
    assert sum(proposed == 0 for proposed in afterwards) <= 0.05 * len(afterwards)


@pytest.mark.parametrize("stalls", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("seconds", [PASS / 8, PASS / 3])
def test_a_draft_that_stalls_at_its_start_is_soon_asked_again(stalls: float, seconds: float) -> None:
    """Also where it is then thought too slow: it is looked at again."""
    back = (stalls + 20) * PASS
    target = lone(seconds, PartlyRight(8), silence=(stalls * PASS, back))
    afterwards = [proposed for begin, _, proposed in target.passes if begin > back + 40 * PASS]
    assert len(afterwards) > 20
    assert sum(afterwards) >= 2 * len(afterwards)


def test_a_dead_draft_does_not_hold_up_the_others() -> None:
    died = 0.4
    simulation = Simulation()
    for seed in range(4):
        asked = request(ANSWER, seed=seed)
        silence = (died, math.inf) if seed == 0 else NEVER
        simulation.join(simulation.draft(PASS / 8, silence=silence), simulation.generate(asked), asked)
    simulation.run()
    assert max(pauses(simulation.target, died)) < PASS
    assert sum(pause > 0.6 * PASS for pause in pauses(simulation.target, died)) <= 2


class Chatterer:
    """Speaks all the time and never answers what it was asked."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.engine = VerifyEngine(ToyModel(), ToyVocabulary(), VerifyConfig(), self.clock)
        [self.number] = self.engine.open([request(ANSWER)])
        self.paused = 0.0

    def hear(self, base: int, tokens: tuple[int, ...] = ()) -> None:
        self.engine.receive(b"evil#0", Propose(self.number, 0, base, tokens))

    def one_pass(self, chatter: tuple[int, tuple[int, ...]]) -> None:
        """Wait as long as the engine wants to, chattering all the while, then pass."""
        while (wait := self.engine.wait()) != 0.0:
            assert wait is not None
            self.clock.now += min(wait, PASS / 10)
            self.paused += min(wait, PASS / 10)
            self.hear(*chatter)
        self.engine.step()
        self.engine.policy.costs.observe(1, PASS)
        self.clock.now += PASS

    def told(self) -> int | None:
        """How many tokens the draft has been told of."""
        commits = [message for _, message in self.engine.outgoing() if isinstance(message, Commit)]
        return commits[-1].base + len(commits[-1].tokens) if commits else None


def test_chatter_that_answers_nothing_is_not_waited_for() -> None:
    evil = Chatterer()
    evil.one_pass((0, ()))
    for _ in range(3):  # a good start: prompt answers
        evil.hear(evil.told() or len(PROMPT))
        evil.hear(evil.told() or len(PROMPT), (1, 2, 3, 4))
        evil.one_pass((0, (23,)))
    before = evil.paused
    for _ in range(60):
        evil.one_pass((0, (23,)))
    assert evil.paused - before <= 2 * PASS


def test_a_draft_that_answers_with_nothing_is_not_waited_for() -> None:
    evil = Chatterer()
    evil.one_pass((0, ()))
    base = len(PROMPT)
    for _ in range(40):
        evil.clock.now += PASS / 2
        base = evil.told() or base
        evil.hear(base)
        evil.one_pass((base, ()))
    assert evil.paused == 0.0


# ---- the rule by itself


def seconds_to_wait(sessions: Sequence[Readiness], seconds: float = 1.0) -> float:
    """By a policy that knows passes of up to 32 rows to take so long; 0 stands for one that knows none."""
    policy = DraftPolicy()
    for rows in (1, 2, 4, 8, 16, 32):
        policy.costs.observe(rows, seconds)
    return policy.seconds_to_wait(sessions, 0)


def test_an_answer_that_is_just_missed_is_waited_for_a_little_longer() -> None:
    latency, takes, elapsed = DraftLatency(), 0.0025, 0.0
    requests = Requests(latency)
    for _ in range(50):
        latency.observe(1, None, 0.0020)
    for length in range(20):
        now = float(length)
        requests.add(length, now, lookahead=False)
        while wait := requests.arrival(length, 1, 1, now):
            now += wait
            elapsed = now - length
            if elapsed >= takes:
                break
        requests.receive(Propose(0, 0, length, (7,)), length + max(takes, elapsed), waited=elapsed >= takes)
    assert elapsed >= takes
    assert 0.0022 < latency.expected(1) < 1.3 * takes, "it was 0.0020"


@pytest.mark.parametrize(("took", "known"), [(0.002, True), (None, False), (-1.0, False), (math.nan, False)])
def test_a_proposal_read_after_a_pass_is_as_quick_as_its_draft_reports(took: float | None, known: bool) -> None:
    latency = DraftLatency()
    requests = Requests(latency)
    for length in range(150):
        quick = length >= 50  # and only read after a pass of twenty milliseconds
        requests.add(length, float(length), lookahead=False)
        now = length + (0.020 if quick else 0.013)
        requests.receive(Propose(0, 0, length, (7,), took if quick else 0.012), now, waited=not quick)
    assert latency.expected(1) == pytest.approx(0.003 if known else 0.013, rel=0.1)


@pytest.mark.parametrize("took", [5.0, 1e300, math.inf])
def test_a_draft_cannot_make_passes_wait_by_what_it_says(took: float) -> None:
    requests = Requests(DraftLatency())
    for length in range(20):
        requests.add(length, float(length), lookahead=False)
        requests.receive(Propose(0, 0, length, (7,), took), length + 0.013, waited=False)
    requests.add(20, 20.0, lookahead=False)
    assert 0.0 < requests.arrival(20, 1, 1, 20.0) < 0.015


def test_nothing_to_wait_for_means_now() -> None:
    assert seconds_to_wait([Readiness(0.0, 1.0, 1.0, 1, 0)]) == 0.0
    assert seconds_to_wait([Readiness(0.0, 3.0, 3.0, 4, 5)]) == 0.0


def test_before_any_measurement_nothing_is_waited_for() -> None:
    assert seconds_to_wait([Readiness(0.5, 1.0, 4.0, 1, 5)], seconds=0.0) == 0.0


@pytest.mark.parametrize(("arrival", "expected"), [(0.5, 0.5), (1.9, 1.9), (1.95, 0.0), (2.1, 0.0)])
def test_a_lone_session_waits_while_the_gain_outweighs_the_time(arrival: float, expected: float) -> None:
    # 3 tokens in arrival + 1 seconds against 1 token in 1 second: worth it below 2 seconds, clearly below 1.94
    assert seconds_to_wait([Readiness(arrival, 1.0, 3.0, 1, 5)]) == expected


def test_the_others_in_the_batch_count_against_waiting() -> None:
    waiting, plain = Readiness(0.5, 1.0, 3.0, 1, 5), Readiness(0.0, 1.0, 1.0, 1, 0)
    assert seconds_to_wait([waiting, *[plain] * 2]) == 0.5  # 5 / 1.5 > 3
    assert seconds_to_wait([waiting, *[plain] * 4]) == 0.0  # 7 / 1.5 < 5


def test_several_drafts_are_waited_for_as_far_as_each_pays() -> None:
    soon, later = Readiness(0.2, 1.0, 3.0, 1, 5), Readiness(5.0, 1.0, 3.0, 1, 5)
    assert seconds_to_wait([soon, later]) == 0.2
    assert seconds_to_wait([soon, Readiness(0.3, 1.0, 3.0, 1, 5)]) == 0.3


standings = st.builds(
    Readiness,
    st.just(0.0) | st.floats(1e-4, 10.0),
    st.floats(1.0, 5.0),
    st.floats(1.0, 5.0),
    st.integers(1, 8),
    st.integers(1, 8),
    st.just(value=False),
)


@given(st.lists(standings, min_size=1, max_size=8))
def test_the_chosen_moment_has_the_best_rate_where_that_is_clearly_better_than_now(batch: list[Readiness]) -> None:
    def rate(wait: float) -> float:
        there = [0.0 < one.arrival <= wait for one in batch]
        tokens = sum(one.tokens_then if late else one.tokens_now for one, late in zip(batch, there, strict=True))
        return tokens / (wait + 1.0)

    chosen = seconds_to_wait(batch)
    assert chosen in {0.0, *[one.arrival for one in batch]}
    best = max(rate(moment) for moment in [0.0, *[one.arrival for one in batch]])
    assert rate(chosen) == (best if best > CLEARLY * rate(0.0) else rate(0.0))
