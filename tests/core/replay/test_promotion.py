"""Promotion: only a significantly better candidate takes a slot, and the reason is stated."""

from __future__ import annotations

import random
import re
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.bundle.manifest import Evidence
from core.replay.promotion import PROMPT_SPREAD, evidence, pooled, promote, promote_tasks, prompts_needed
from core.replay.replay import AcceptanceCounts

PROMPTS = range(40)


def counts(accepted: int, proposed: int = 10) -> AcceptanceCounts:
    """As much quicker than plain decoding as tokens are accepted."""
    return AcceptanceCounts(proposed + accepted, 5, proposed, accepted, (float(proposed),))


def accepting(*rates: int) -> list[AcceptanceCounts]:
    """Ten proposed tokens per prompt, with these numbers of accepted ones in turn."""
    return [counts(rates[prompt % len(rates)]) for prompt in PROMPTS]


def test_the_best_of_all_takes_the_slot() -> None:
    drafts = {"general": accepting(2), "mixed": accepting(5), "task": accepting(8)}
    choice = promote(drafts, PROMPTS)
    assert choice.name == "task"
    assert "mixed +25.0% (+25.0% to +25.0%), better than general" in choice.reason
    assert "task +20.0% (+20.0% to +20.0%), better than mixed" in choice.reason
    assert choice.reason.startswith("tokens a second on 40 prompts: ")


def test_it_is_speed_that_decides_and_not_acceptance() -> None:
    """A cheap draft wins although less is accepted, and a slow one loses although more is."""
    usual, cheap = counts(5), AcceptanceCounts(15, 5, 10, 4, (9.0,))
    slow = AcceptanceCounts(15, 5, 10, 9, (11.0,))
    drafts = {"general": [usual] * 40, "slow": [slow] * 40, "cheap": [cheap] * 40}
    assert promote(drafts, PROMPTS).name == "cheap"
    assert evidence(drafts["slow"], drafts["general"], PROMPTS).gain < 0.0 < usual.accepted < slow.accepted


def test_a_draft_that_may_be_no_better_does_not() -> None:
    drafts = {"general": accepting(4, 4), "task": accepting(0, 9)}  # better on average, but not significantly
    choice = promote(drafts, PROMPTS)
    assert choice.name == "general"
    assert "not better than general" in choice.reason


def test_a_later_candidate_must_beat_the_one_that_took_the_slot() -> None:
    drafts = {"general": accepting(3), "mixed": accepting(8), "task": accepting(6)}
    assert promote(drafts, PROMPTS).name == "mixed"


def test_whoever_is_alone_keeps_the_slot_and_nothing_cannot_be_compared() -> None:
    assert promote({"live": accepting(1)}, PROMPTS) == ("live", "the only candidate")
    with pytest.raises(ValueError, match="no records"):
        promote({"live": [], "task": []}, [])


def seen(gain: float, error: float = 0.01, prompts: int = 70, looks: int = 1) -> Evidence:
    return Evidence(gain=gain, variance=error**2, prompts=prompts, looks=looks)


def test_a_gain_that_no_task_shows_alone_is_shown_by_all_together() -> None:
    alone = promote_tasks({"math": seen(0.015)}, "base")["math"]
    assert not alone.promoted
    together = promote_tasks({f"task {number}": seen(0.015) for number in range(6)}, "base")
    assert all(one.promoted for one in together.values())


def test_a_task_unlike_the_others_is_judged_by_itself() -> None:
    found = {f"task {number}": seen(0.04, 0.005) for number in range(5)} | {"odd": seen(-0.04, 0.005)}
    judged = promote_tasks(found, "base")
    assert not judged["odd"].promoted
    assert sum(one.promoted for one in judged.values()) == 5


@given(st.lists(st.tuples(st.floats(-0.2, 0.2), st.floats(0.002, 0.1)), min_size=1, max_size=8))
def test_what_all_tasks_show_draws_each_towards_their_mean(tasks: list[tuple[float, float]]) -> None:
    found = {str(number): seen(*task) for number, task in enumerate(tasks)}
    gains = [gain for gain, _ in tasks]
    for task, posterior in pooled(found).items():
        assert min(gains) - 1e-9 <= posterior.gain <= max(gains) + 1e-9
        assert 0.0 <= posterior.better <= 1.0 + 1e-9
        assert posterior.deviation > 0.0
        assert posterior.deviation <= 1.5 * tasks[int(task)][1] + 0.2


def test_one_task_alone_is_what_its_own_records_say() -> None:
    [posterior] = pooled({"math": seen(0.03, 0.012)}).values()
    assert posterior.gain == pytest.approx(0.03)
    assert posterior.deviation == pytest.approx(0.012)
    assert posterior.better == pytest.approx(NormalDist().cdf(0.03 / 0.012))


def test_noise_is_promoted_as_seldom_as_stated_however_many_retrainings_look() -> None:
    """No draft is better; six tasks, five retrainings that add up. 5 % may err, all of them together."""
    chance, erred = random.Random(1), 0
    for _ in range(300):
        sums = [0.0] * 6
        promoted = False
        for look in range(1, 6):
            sums = [total + chance.gauss(0.0, 0.01) for total in sums]
            found = {str(t): seen(total / look, 0.01 / look**0.5, looks=look) for t, total in enumerate(sums)}
            promoted |= promote_tasks(found, "base")["0"].promoted
        erred += promoted
    assert erred <= 0.08 * 300


def test_evidence_adds_up_and_earlier_evidence_counts_half() -> None:
    now = evidence(accepting(7, 9), accepting(5, 5), PROMPTS)
    assert now.gain == pytest.approx(0.2)
    assert (now.prompts, now.looks) == (40, 1)
    both = evidence(accepting(7, 9), accepting(5, 5), PROMPTS, earlier=now)
    assert both.gain == pytest.approx(0.2)
    assert both.variance == pytest.approx(now.variance / 1.5)
    assert (both.prompts, both.looks) == (80, 2)


def test_one_prompt_proves_nothing() -> None:
    """Nor do a few that happen to agree: the bootstrap finds no spread among them."""
    for count in (1, 3):
        found = evidence(accepting(6)[:count], accepting(5)[:count], range(count))
        assert found.variance == pytest.approx(PROMPT_SPREAD**2 / count)
    one = evidence([counts(55, 100)], [counts(50, 100)], [0])
    assert not promote_tasks({"math": one}, "base")["math"].promoted


def test_drafts_that_were_equal_once_do_not_bind_later_retrainings() -> None:
    """Such evidence of earlier versions is in manifests, and is read with the spread that it cannot have had."""
    equal = evidence(accepting(6), accepting(6), PROMPTS)
    assert (equal.gain, equal.variance) == (0.0, pytest.approx(PROMPT_SPREAD**2 / len(PROMPTS)))
    certain = Evidence(gain=0.0, variance=1e-12, prompts=len(PROMPTS))
    later = [evidence(accepting(7, 9), accepting(6, 6), PROMPTS, earlier=one) for one in (equal, certain)]
    assert later[0] == later[1]
    assert later[0].gain > 0.05
    assert promote_tasks({"math": later[0]}, "base")["math"].promoted


def test_a_refusal_says_how_many_prompts_would_have_been_needed() -> None:
    [judged] = promote_tasks({"math": seen(0.01, 0.01, prompts=100)}, "base").values()
    assert "not better than base" in judged.reason
    needed = int(re.findall(r"would take (\d+) prompts", judged.reason)[0])
    assert needed == prompts_needed(0.01, spread=0.1) == 785
    [worse] = promote_tasks({"math": seen(-0.01)}, "base").values()
    assert "would take" not in worse.reason


def test_held_out_sizes_follow_from_the_effect() -> None:
    """Of normal gains with the spread assumed, the effect is shown in 80 % of samples of that size."""
    chance, size = random.Random(2), prompts_needed(0.02)
    shown = 0
    for _ in range(1000):
        mean = sum(chance.gauss(0.02, 0.06) for _ in range(size)) / size
        shown += mean > 1.96 * 0.06 / size**0.5
    assert 0.77 < shown / 1000 < 0.83
    assert prompts_needed(0.01) > 3.9 * size
