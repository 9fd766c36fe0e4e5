"""The benchmark of the paper's points: kinds of prompts, sums of counts, files of the rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.progress import Progress

from core.replay.replay import AcceptanceCounts
from tests.bench import decode, elsewhere, streams, stress
from tests.bench.foreign_words import ForeignWords
from tests.bench.items import BASE, GENERAL, GENERAL_SLOT, MIXED, SEED
from tests.bench.paper import RESULTS
from tests.bench.paper_tables import as_json, by_kind, page, rows
from tests.bench.policies import (
    ABSTAINED,
    BEST,
    ELSEWHERE,
    OTHERS,
    REQUESTS,
    ROUTED,
    best_by_chance,
    best_found,
    best_pools,
    counts,
    over,
    went,
)
from tests.bench.replays import TEMPERATURES, Trial, measure, shipped
from tests.bench.stress import ADVERSARIAL, GENERATED, KINDS, MIXED_DOMAIN, REWORDED, Prompt
from tests.family.corpora import TASKS, items

PER_KIND = len(TASKS)


@pytest.fixture(scope="module")
def prompts() -> list[Prompt]:
    return stress.prompts(PER_KIND)


@pytest.fixture(scope="module")
def trials(prompts: list[Prompt]) -> list[Trial]:
    with Progress(disable=True) as progress:
        return measure(prompts, shipped(), length=4, max_tokens=12, progress=progress)


def trial(routed: str, request: str, other: str | None = None, **passes: int) -> Trial:
    prompt = Prompt(GENERATED, f"{routed}/{request}/{other}", "math", "")
    pools = ("a", "b", "c", GENERAL_SLOT)
    found = dict.fromkeys(pools, 9) | passes
    return Trial(
        prompt, 0.0, pools, routed, request, other, {pool: AcceptanceCounts(9, n) for pool, n in found.items()}
    )


def test_no_prompt_was_drawn_by_the_retraining() -> None:
    drawn = {item.prompt for item in items("chemistry", 180, 0, "held_out")}
    assert drawn & {item.prompt for item in items("chemistry", 60, SEED, "held_out")}
    found = {item.prompt for item in stress.fresh("chemistry", 60)}
    assert len(found) == 60
    assert not drawn & found


def test_every_kind_is_made_of_the_same_requests(prompts: list[Prompt]) -> None:
    requests = [prompt.request for prompt in prompts if prompt.kind == GENERATED]
    assert [prompt.kind for prompt in prompts] == [kind for kind in KINDS for _ in range(PER_KIND)]
    assert [prompt.request for prompt in prompts] == requests * len(KINDS)
    assert [prompt.task for prompt in prompts[:PER_KIND]] == list(TASKS)


def test_reworded_prompts_are_other_prompts(prompts: list[Prompt]) -> None:
    assert all(prompt.text != prompt.request for prompt in prompts if prompt.kind == REWORDED)


def test_a_mixed_domain_prompt_holds_requests_of_two_tasks(prompts: list[Prompt]) -> None:
    for prompt in prompts:
        if prompt.kind == MIXED_DOMAIN:
            assert prompt.request in prompt.text
            assert prompt.other is not None
            assert prompt.other in prompt.text
            assert prompt.other_task != prompt.task


def test_an_adversarial_prompt_holds_a_request_and_the_words_of_another_task(prompts: list[Prompt]) -> None:
    words = ForeignWords().of
    assert len({word for own in words.values() for word in own}) == sum(map(len, words.values()))
    for prompt in prompts:
        if prompt.kind == ADVERSARIAL:
            assert prompt.other_task not in (None, prompt.task)
            around = prompt.text.replace(prompt.request, "")
            assert prompt.request in prompt.text
            assert sum(word in around for word in words[str(prompt.other_task)]) >= 6


def test_every_draft_is_counted_on_the_same_answers(trials: list[Trial]) -> None:
    assert len(trials) == len(KINDS) * PER_KIND * len(TEMPERATURES)
    for found in trials:
        assert found.counts.keys() == {*found.pools, GENERAL, BASE, MIXED}
        assert len({counted.tokens for counted in found.counts.values()}) == 1
        assert found.routed in found.pools
        for played in (found.rerouted, found.misrouted):
            assert played.counts.tokens == found.counts[GENERAL].tokens
            assert {GENERAL_SLOT if slot == GENERAL else slot for slot in played.slots} <= set(found.pools)
        for counted in found.counts.values():
            assert counted.passes <= counted.tokens <= counted.passes + counted.accepted
    assert any(len({counted.passes for counted in found.counts.values()}) > 1 for found in trials)


def test_no_regret_is_negative_and_no_prompt_is_lost(trials: list[Trial]) -> None:
    for one in trials:
        assert counts(BEST, [one])[0].passes <= counts(ROUTED, [one])[0].passes
    for kind, found in by_kind(trials).items():
        regret = over(BEST, ROUTED, found, "tokens_per_pass")
        assert min(regret) >= 0
        assert sum(went(found).values()) == len(found)
        share = best_found(found)
        assert 0 <= share.low <= share.share <= share.high <= 1
        assert 1 / len(found[0].pools) <= best_by_chance(found) <= 1
        if kind == GENERATED:
            assert went(found).keys() <= {REQUESTS, ABSTAINED}


def test_several_drafts_may_be_best() -> None:
    found = [trial("a", "a", a=2, b=2), trial("b", "b", a=2, b=3)]
    assert [best_pools(one) for one in found] == [["a", "b"], ["a"]]
    assert best_found(found).share == 0.5
    assert best_by_chance(found) == (2 / 4 + 1 / 4) / 2


def test_where_a_prompt_went_is_told_by_its_parts() -> None:
    found = [trial("a", "a", "b"), trial("b", "a", "b"), trial("c", "a", "b"), trial(GENERAL_SLOT, "a", GENERAL_SLOT)]
    assert went(found) == {REQUESTS: 1, OTHERS: 1, ELSEWHERE: 1, ABSTAINED: 1}


def test_every_point_of_the_paper_has_a_row(trials: list[Trial]) -> None:
    found = rows(trials, RESULTS)
    points = [row.point.split(",")[0].split(":")[0] for row in found]
    assert [*dict.fromkeys(points)] == [
        *(f"experiment {number}" for number in (1, 2, 3)),
        *(f"open {number}" for number in (1, 2, 3)),
        "limit",
    ]
    text = page(found, trials, RESULTS, "below")
    widths = [[line.count("|") for line in table.splitlines()] for table in text.split("\n\n") if table[0] == "|"]
    assert len(widths) == 6
    assert all(len(set(table)) == 1 for table in widths)
    assert len(json.loads(json.dumps(as_json(found, trials)))["experiment_3"]) == len(KINDS)


def test_other_benchmarks_are_read_as_they_are_written(tmp_path: Path) -> None:
    place = decode.Place("in process", 0.0)
    level = streams.Level(4)
    for turn in range(3):
        for name, seconds in ((decode.PLAIN, 6.0), (GENERAL, 3.0), (decode.TASK, 2.0)):
            place.durations.add(name, turn, seconds)
            place.first.add(name, turn, seconds)
        for name, seconds in ((streams.PLAIN, 3.0), (streams.TASK, 2.0), (streams.USELESS, 3.0)):
            level.durations.add(name, turn, seconds)
    written = {
        "decode/decode.json": {"facts": {}, "places": decode.as_json([place])},
        "decode-300m/decode.json": {"facts": {}, "places": decode.as_json([place])},
        "streams/streams.json": {"facts": {}, "levels": streams.as_json([level])},
    }
    for name, content in written.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(json.dumps(content))
    told = "in process, temperature 0: general 2.00 (2.00 to 2.00), routed 3.00 (3.00 to 3.00) times plain"
    assert elsewhere.speed(tmp_path).found == told
    assert elsewhere.larger_targets(tmp_path).found.startswith(f"300m: {told}; 1b: not measured")
    assert "1.50 (1.50 to 1.50) at 4" in elsewhere.mixed_batches(tmp_path).found


def test_what_was_not_measured_is_said(tmp_path: Path) -> None:
    for row in (elsewhere.speed(tmp_path), elsewhere.mixed_batches(tmp_path), elsewhere.overfit(None)):
        assert row.found == "not measured yet"
        assert row.command
