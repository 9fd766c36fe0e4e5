"""A pool under Serve's own wrapper of policies, with a clock of the test's: it follows its traffic and its worth."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ray.serve import autoscaling_policy
from ray.serve._private.common import DeploymentID, ReplicaID
from ray.serve.config import AutoscalingConfig, AutoscalingContext

from core.policy.pool_worth import ENOUGH, TOO_LITTLE
from serve_app.config import Actors, load_config
from serve_app.deployments.deploy.bundle_applications import draft_application
from serve_app.deployments.deploy.draft_scaling import DraftPoolScaling
from serve_app.deployments.models.served_models import ServedModels
from tests.examples import examples

POOL = DeploymentID("DraftPool", "draft-general")
UP, DOWN = 30, 600  # seconds, Serve's defaults
SERVES_OWN = "ray.serve.autoscaling_policy:replica_queue_length_autoscaling_policy"


class Span(NamedTuple):
    """So many seconds with `sessions` on average, of which a `share` is asked for tokens."""

    seconds: int
    sessions: float
    share: float


class Simulated:
    """A pool whose replicas come and go at once, decided on each second."""

    def __init__(self, policy: Callable[..., Any], **config: Any) -> None:
        self.config = AutoscalingConfig(**{"max_replicas": 8, "target_ongoing_requests": 12, **config})
        self.replicas = self.config.min_replicas
        self.history: list[int] = []
        self._policy = autoscaling_policy._apply_autoscaling_config(policy)
        self._state: dict[str, Any] = {}
        self._now = 0

    def run(self, span: Span) -> list[int]:
        """The replicas of every second."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(autoscaling_policy, "time", SimpleNamespace(time=lambda: float(self._now)))
            found = [self._decide(span) for _ in range(span.seconds)]
        self.history += found
        return found

    def _decide(self, span: Span) -> int:
        self._now += 1
        decision, self._state = self._policy(self._context(span))
        self.replicas = max(self.config.min_replicas, min(self.config.max_replicas, math.ceil(decision)))
        return self.replicas

    def _context(self, span: Span) -> AutoscalingContext:
        running = [ReplicaID(str(number), POOL) for number in range(self.replicas)]
        each = span.sessions / max(1, len(running))
        return AutoscalingContext(
            deployment_id=POOL,
            deployment_name=POOL.name,
            app_name=POOL.app_name,
            current_num_replicas=len(running),
            target_num_replicas=len(running),
            running_replicas=running,
            total_num_requests=span.sessions,
            total_queued_requests=0.0,
            aggregated_metrics={
                "sessions": dict.fromkeys(running, each),
                "asked_sessions": dict.fromkeys(running, each * span.share),
            },
            raw_metrics={},
            capacity_adjusted_min_replicas=self.config.min_replicas,
            capacity_adjusted_max_replicas=self.config.max_replicas,
            policy_state=self._state,
            last_scale_up_time=None,
            last_scale_down_time=None,
            current_time=float(self._now),
            config=self.config,
        )

    def needed(self, sessions: float) -> int:
        wanted = math.ceil(sessions / self.config.target_ongoing_requests)
        return max(self.config.min_replicas, min(self.config.max_replicas, wanted))


SPANS = st.lists(
    st.builds(Span, st.integers(1, 900), st.floats(0.0, 200.0), st.floats(0.0, 1.0)),
    min_size=1,
    max_size=4,
)
FEWEST = st.integers(0, 3)


def pool(spans: list[Span], fewest: int = 1) -> Simulated:
    simulated = Simulated(DraftPoolScaling(), min_replicas=fewest)
    for span in spans:
        simulated.run(span)
    return simulated


@settings(max_examples=examples(60))
@given(spans=SPANS, fewest=FEWEST)
def test_replicas_stay_within_their_bounds(spans: list[Span], fewest: int) -> None:
    assert all(fewest <= replicas <= 8 for replicas in pool(spans, fewest).history)


@settings(max_examples=examples(60))
@given(spans=SPANS, fewest=FEWEST, sessions=st.floats(0.1, 200.0), share=st.floats(ENOUGH, 1.0))
def test_a_pool_that_pays_has_what_its_sessions_need_whatever_was_before(
    spans: list[Span], fewest: int, sessions: float, share: float
) -> None:
    simulated = pool(spans, fewest)
    before, needed = simulated.replicas, simulated.needed(sessions)
    found = simulated.run(Span(2 * UP + 2, sessions, share))
    assert all(replicas >= min(before, needed) for replicas in found)
    assert simulated.replicas >= needed


@settings(max_examples=examples(60))
@given(spans=SPANS, fewest=FEWEST, sessions=st.floats(0.1, 200.0), share=st.floats(0.0, 0.99 * TOO_LITTLE))
def test_a_pool_that_does_not_pay_has_its_fewest_replicas_however_many_sessions_there_are(
    spans: list[Span], fewest: int, sessions: float, share: float
) -> None:
    simulated = pool(spans, max(1, fewest))  # from none Serve itself starts one
    simulated.run(Span(DOWN + 2, sessions, share))
    assert simulated.replicas == max(1, fewest)
    found = simulated.run(Span(UP + 2, sessions, 1.0))
    assert found[-1] >= simulated.needed(sessions), "it does not come back"


def test_a_pool_may_end_for_want_of_worth_and_of_sessions() -> None:
    for sessions in (0.0, 20.0):
        simulated = pool([Span(60, 50.0, 1.0)], fewest=0)
        assert simulated.replicas == 5
        found = simulated.run(Span(2 * DOWN + 3, sessions, 0.0))
        assert 0 in found
        assert found == sorted(found, reverse=True) if not sessions else True
        assert pool([], fewest=0).run(Span(1, 1.0, 0.0)) == [1], "a session that waits starts a pool at once"


@settings(max_examples=examples(60))
@given(sessions=st.floats(13.0, 200.0), pays=st.booleans(), shares=st.lists(st.floats(0.126, 0.249), max_size=8))
def test_a_share_between_the_thresholds_changes_nothing(sessions: float, pays: bool, shares: list[float]) -> None:
    simulated = pool([Span(DOWN + UP, sessions, float(pays))])
    settled = simulated.replicas
    for share in shares:
        assert set(simulated.run(Span(DOWN, sessions, share))) == {settled}


@settings(max_examples=examples(30))
@given(traffic=st.lists(st.tuples(st.integers(1, 900), st.floats(0.0, 200.0)), min_size=1, max_size=4), fewest=FEWEST)
def test_a_pool_that_pays_is_scaled_as_by_serve_itself(traffic: list[tuple[int, float]], fewest: int) -> None:
    ours = Simulated(DraftPoolScaling(), min_replicas=fewest)
    serves = Simulated(autoscaling_policy.replica_queue_length_autoscaling_policy, min_replicas=fewest)
    for seconds, sessions in traffic:
        span = Span(seconds, sessions, 1.0)
        assert ours.run(span) == serves.run(span)


def test_pools_with_autoscaling_have_this_policy_unless_they_name_another() -> None:
    assert policy_of({"max_replicas": 4}).get_policy().__name__ == DraftPoolScaling.__name__
    named = policy_of({"max_replicas": 4, "policy": {"policy_function": SERVES_OWN}})
    assert named.policy_function == SERVES_OWN
    assert policy_of(None) is None


def policy_of(autoscaling: dict[str, Any] | None) -> Any:
    family = load_config("family")
    draft = family.draft.model_copy(update={"actors": Actors(autoscaling=autoscaling)})
    application = draft_application(ServedModels(family.model_copy(update={"draft": draft})), "general")
    config = application._bound_deployment._deployment_config.autoscaling_config
    return None if config is None else config.policy
