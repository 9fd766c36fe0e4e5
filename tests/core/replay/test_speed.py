"""Speed: tokens a second by exact counts and by costs, in times plain decoding."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.bundle.manifest import MeasuredCosts
from core.bundle.store import open_live
from core.confidence_intervals import over_prompts
from core.family import BUNDLE_DIR, DRAFT_DIR
from core.model.draft_vocabulary import DraftVocabulary
from core.replay.promotion import promote
from core.replay.replay import AcceptanceCounts, Terms, replay, score_draft, total
from core.replay.speed import DraftCosts, draft_shape
from core.smollm2 import DRAFT_DIR as SMOLLM2_DRAFT
from tests.core.family_records import TERMS, answered, draft, requests
from tests.core.replay.test_replay import record_of
from tests.core.toy import VOCAB_SIZE

LENGTHS = Terms(6, VOCAB_SIZE, 4096)
FLAT = (1.0,) * 6  # more rows cost nothing
STEEP = (1.1, 1.2, 1.3, 1.4, 1.5, 1.6)
TRUE, FALSE = True, False


def replayed(hit: list[bool], costs: DraftCosts) -> AcceptanceCounts:
    return replay(hit, record_of((7,) * len(hit)), LENGTHS, costs)


def answers(rate: float, costs: DraftCosts, seed: int, count: int = 60) -> list[AcceptanceCounts]:
    """Of a draft that hits each token with this probability."""
    chance = Random(seed)
    return [replayed([chance.random() < rate for _ in range(40)], costs) for _ in range(count)]


def test_a_time_is_that_of_the_passes_and_of_the_drafted_tokens() -> None:
    """Ten tokens after the first, of which every third is missed."""
    counts = replayed([FALSE, *[TRUE, TRUE, FALSE] * 3, TRUE], DraftCosts(0.1, STEEP))
    assert counts.times[:3] == pytest.approx(
        (
            7 * 1.1 + 7 * 0.1,  # 2 tokens a pass, then 1, and so on
            4 * 1.2 + 8 * 0.1,  # 3 tokens a pass, and the last
            4 * 1.3 + 12 * 0.1,
        )
    )
    assert counts.length == 2
    assert counts.speedup == pytest.approx(10 / (4 * 1.2 + 8 * 0.1))


def test_the_times_are_of_exact_replays_with_each_number_of_tokens() -> None:
    records, costs = answered(requests("chinese", 2, 3, temperature=1.0)), DraftCosts(0.07, STEEP)
    for record, counts in zip(records, score_draft(draft(), records, TERMS, costs), strict=True):
        for length, passing in enumerate(STEEP[: TERMS.num_speculative_tokens], 1):
            [shorter] = score_draft(draft(), [record], TERMS._replace(num_speculative_tokens=length))
            assert counts.times[length - 1] == pytest.approx(shorter.passes * passing + shorter.proposed * 0.07)
        assert counts._replace(times=()) == shorter
        assert len(counts.times) == TERMS.num_speculative_tokens


def test_over_answers_one_number_of_tokens_is_the_best_for_all() -> None:
    costs = DraftCosts(0.2, STEEP)
    sure, poor = replayed([TRUE] * 30, costs), replayed([TRUE, FALSE] * 15, costs)
    assert sure.length > 4 > poor.length
    both = total([sure, poor])
    assert both.times == pytest.approx([sum(pair) for pair in zip(sure.times, poor.times, strict=True)])
    assert both.speedup == pytest.approx(both.tokens / min(both.times))
    assert over_prompts([sure, poor], "ab", "speedup").value == pytest.approx(both.speedup)
    assert both.speedup < 2 / (1 / sure.speedup + 1 / poor.speedup)  # which have a number each
    assert replayed([TRUE], costs).speedup == 1.0


def test_a_cheap_draft_with_lower_acceptance_wins_and_a_slow_one_with_higher_loses() -> None:
    drafts = {
        "usual": answers(0.6, DraftCosts(0.1, FLAT), 1),
        "slow": answers(0.7, DraftCosts(0.5, FLAT), 2),
        "cheap": answers(0.5, DraftCosts(0.005, FLAT), 3),
    }
    rates = {name: total(counts).acceptance_rate for name, counts in drafts.items()}
    assert rates["cheap"] < rates["usual"] < rates["slow"]
    choice = promote(drafts, range(60))
    assert choice.name == "cheap"
    assert "not better than usual; cheap" in choice.reason


@given(st.lists(st.booleans(), min_size=2, max_size=40), st.sets(st.integers(0, 39)), st.floats(0.0, 1.0))
def test_at_equal_costs_a_draft_that_guesses_more_is_never_slower(
    hit: list[bool], more: set[int], token: float
) -> None:
    costs = DraftCosts(token, STEEP)
    usual, better = (replayed(hits, costs) for hits in (hit, [own or at in more for at, own in enumerate(hit)]))
    assert better.speedup >= usual.speedup - 1e-9
    assert all(quick <= slow + 1e-9 for quick, slow in zip(better.times, usual.times, strict=True))


def test_at_equal_costs_the_order_is_that_of_acceptance() -> None:
    costs = DraftCosts(0.1, STEEP)
    drafts = {str(rate): answers(rate, costs, seed) for seed, rate in enumerate((0.2, 0.6, 0.4, 0.8))}
    by_speed = sorted(drafts, key=lambda name: total(drafts[name]).speedup)
    assert by_speed == sorted(drafts, key=lambda name: total(drafts[name]).acceptance_rate)
    assert promote(drafts, range(60)).name == "0.8"


def test_noise_is_promoted_as_seldom_as_stated_although_the_best_number_is_chosen_on_the_same_prompts() -> None:
    """One of 40 may be. Numbers from 3 to 6 are nearly as good here, so that there is a choice."""
    costs = DraftCosts(0.16, (1.02, 1.04, 1.06, 1.08, 1.1, 1.12))
    promoted = 0
    for seed in range(60):
        drafts = {"one": answers(0.6, costs, 2 * seed), "same": answers(0.6, costs, 2 * seed + 1)}
        promoted += promote(drafts, range(60)).name == "same"
    assert promoted <= 4


def test_drafts_of_one_shape_cost_the_same() -> None:
    bundle = open_live(BUNDLE_DIR).bundle
    assert bundle is not None
    base, adapter = bundle.directory("general"), bundle.directory("python-print")
    shapes = {draft_shape(directory, DRAFT_DIR) for directory in (None, base, adapter)}
    assert shapes == {"1 layers of 64, 2 and 1 heads of 32, MLP of 176, 2048 ids"}
    cut = draft_shape(base, DRAFT_DIR, DraftVocabulary.from_ids(range(99), 2048))
    assert cut.endswith(" 99 ids")
    costs = MeasuredCosts(passes=(0.02, 0.022, 0.03), tokens={**dict.fromkeys(shapes, 0.004), cut: 0.001})
    assert DraftCosts.of(costs, cut).token == pytest.approx(0.05)
    assert DraftCosts.of(costs, cut).passes == pytest.approx((1.1, 1.5))
    assert draft_shape(None, SMOLLM2_DRAFT).endswith(" 4096 ids")  # its own, in its directory
