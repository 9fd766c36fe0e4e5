"""The benchmarks' own parts, at the smallest size: they run, take turns, and count what they say they count."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.progress import Progress

from core.verify.engine import VerifyConfig
from tests.bench import before_after, decode, step, streams
from tests.bench.before_after_side import Reply
from tests.bench.engines import Answered, Engines, processes
from tests.bench.expanded import target
from tests.bench.hugging_face import with_family_drafts
from tests.bench.items import GENERAL, held_out
from tests.bench.paired import Durations, rotated


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return target("tiny", tmp_path_factory.mktemp("bench"))


def test_a_ratio_is_taken_item_by_item() -> None:
    durations = Durations()
    for item, (slow, fast) in enumerate([(2.0, 1.0), (40.0, 10.0), (3.0, 1.0)]):  # the machine's speed drifts
        durations.add("slow", item, slow)
        durations.add("fast", item, fast)
    durations.add("slow", "unmatched", 100.0)
    ratio = durations.ratio("fast", "slow")
    assert (ratio.value, ratio.items) == (3.0, 3)
    assert 2.0 <= ratio.low <= 3.0 <= ratio.high <= 4.0
    assert durations.ratio("fast", "slow", {0: True, 1: False}).value == 2.0
    assert durations.ratio("fast", "slow", {0: True, 1: True}) == (3.0, 2.0, 4.0, 2)
    assert durations.quartiles("fast")[0] == 1.0


def test_over_all_units_a_long_item_counts_for_more() -> None:
    durations = Durations()
    for item, (slow, fast, units) in enumerate([(2.0, 1.0, 1), (40.0, 10.0, 10)]):
        durations.add("slow", item, slow, units)
        durations.add("fast", item, fast, units)
    assert durations.ratio("fast", "slow").value == 3.0
    assert durations.overall("fast", "slow") == pytest.approx((42 / 11, 2.0, 4.0, 2))


def test_everyone_comes_first_as_often_as_any_other() -> None:
    orders = [rotated(["a", "b", "c"], turn) for turn in range(6)]
    assert sorted(order[0] for order in orders) == ["a", "a", "b", "b", "c", "c"]
    assert all(sorted(order) == ["a", "b", "c"] for order in orders)


def test_passes_of_both_forwards_are_measured(tiny: Path) -> None:
    shapes = [step.Shape(sessions, tokens) for sessions in (1, 3) for tokens in (1, 5)]
    found = step.measure(tiny, turns=2, shapes=shapes)
    assert list(found.by_shape) == shapes
    assert all(durations.ratio(step.OURS, step.THEIRS).items == 2 for durations in found.by_shape.values())
    assert "| tokens of each | 1 session | 3 sessions |" in step.table(found)


def test_a_pass_is_held_against_the_time_its_weights_take_to_be_read() -> None:
    durations = Durations()
    for turn, (ours, floor) in enumerate([(6.0, 2.0), (4.0, 2.0), (16.0, 4.0)]):
        durations.add(step.OURS, turn, ours)
        durations.add(step.THEIRS, turn, 2 * ours)
        durations.add(step.FLOOR, turn, floor)
    passes = step.Passes(weight_bytes=3 * 10**9, by_shape={step.Shape(1, 1): durations})
    assert passes.bandwidth == 1.5e9
    assert "| 1 | 6000.00 | 12000.00 | 2.00 (2.00 to 2.00) | 2000.00 | 3.0 |" in step.table(passes)
    assert "3.00 GB at 1.5 GB/s" in step.table(passes)
    assert "tokens of each" not in step.table(passes)


def test_an_answer_that_differs_is_told_when_all_is_measured() -> None:
    first, second = held_out(1)[:2]

    def answers(contender: str) -> decode.Contender:
        flawed = contender == GENERAL
        return lambda item, _: Answered((1, 2 + (flawed and item is second)), 1.0, 0.5, 1, 0, 0)

    with Progress(disable=True) as progress:
        contenders = {name: answers(name) for name in decode.OURS}
        place = decode.measure("here", contenders, [first, second], 0.0, progress)
    assert place.differing == [second.prompt]
    assert "Ours answered 1 of 2 prompts alike." in decode.table([place])
    with pytest.raises(SystemExit, match="answers differ: here, temperature 0"):
        decode.check([place])
    place.differing.clear()
    decode.check([place])


@pytest.mark.soak
def test_every_contender_answers_every_prompt_and_ours_alike(tiny: Path) -> None:
    items = [item._replace(slot=GENERAL) for item in held_out(1)[:2]]
    [draft] = processes({GENERAL: None}).values()
    config = VerifyConfig(max_sessions=2, num_speculative_tokens=4)
    with (
        with_family_drafts(tiny, {GENERAL: None}, 4, threads=1) as theirs,
        Engines(tiny, {GENERAL: draft, "mixed": draft}, config) as engines,
        Progress(disable=True) as progress,
    ):
        place = decode.measure("here", decode.in_process(engines, theirs, 12), items, 0.0, progress)
        level = streams.Level(2)
        batches = streams.Batches(engines, theirs, 8, 1.0)
        for contender in (streams.PLAIN, streams.TASK, streams.ASSISTED):
            batches.run(level, contender, items, turn=0)
    assert set(place.durations.contenders) == {*decode.OURS, decode.GENERATE, decode.ASSISTED}
    assert place.tokens_per_pass(decode.PLAIN) == place.tokens_per_pass(decode.GENERATE) == 1.0
    assert place.tokens_per_pass(decode.ASSISTED) > 1.0
    assert len(decode.as_json([place])) == 1
    assert level.share_without(streams.PLAIN) == 1.0
    assert "transformers assisted" in decode.table([place])


def test_a_change_is_told_beside_plain_decoding_in_the_same_processes() -> None:
    found = before_after.Found()
    for code, slower in ((before_after.BEFORE, 1.0), (before_after.AFTER, 1.25)):  # its process is slow, not its code
        for number in range(2):
            for contender, seconds, passes in ((decode.PLAIN, 4.0, 4), (decode.TASK, 2.0, 2)):
                cell, tokens = before_after.Cell(1, 0.0, contender), (1, 2, 3, 4, 5)
                found.add(cell, code, number, 7, Reply(seconds * slower, passes, tokens))
    table = before_after.table(found)
    assert "| 1 | 0.0 | task | 400.0 | 2.00 | 500.0 | 2.00 | 0.800 (0.800 to 0.800) | 0.80, 0.80 | 1.00 |" in table
    assert "answered 1 of 1 prompts alike" in table
    found.add(before_after.Cell(1, 0.0, decode.TASK), before_after.AFTER, 2, 7, Reply(1.0, 1, (1, 2, 9)))
    assert found.differing == [(0.0, 7)]


@pytest.mark.soak
def test_a_checkout_beside_itself_answers_alike(tiny: Path, tmp_path: Path) -> None:
    options = ["--size", "tiny", "--cache", str(tiny.parent), "--per-task", "1", "--rounds", "1"]
    least = [*options, "--threads", "1", "--temperatures", "0", "--out", str(tmp_path)]
    before_after.main(["--before", str(before_after.TREE), *least])
    cells = json.loads((tmp_path / "before_after.json").read_text())["cells"]
    assert [cell["contender"] for cell in cells] == list(before_after.CONTENDERS)
    assert cells[-1]["before"]["tokens_per_pass"] > 1.0


def test_older_code_must_be_a_checkout_of_this_repository(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        before_after.main(["--before", str(tmp_path)])
    assert "--before: " in capsys.readouterr().err
