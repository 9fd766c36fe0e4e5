"""The study of task drafts: all of it on the shipped family, and its figures on answers whose hits are known."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from core.distill.draft_making import make_narrow
from core.family import TARGET_DIR
from core.model.config import ModelConfig
from core.model.draft_vocabulary import DraftVocabulary
from core.model.loader import EMBEDDING, PROJECTION
from core.model.tensor_views import TensorCheckpoint
from core.replay.replay import Terms
from core.sampling.params import SamplingParams
from core.traces.store import Trace, parquet_of
from tests.bench import task_drafts
from tests.bench.narrow_tasks import TASKS
from tests.bench.task_drafts_speed import Costs, Outcome, outcome, times
from tests.bench.task_drafts_study import GENERAL, HEADS, SINGLES, Case, General, Shape, Study, with_head
from train_jobs.drafts.candidates import TASK

SHAPE = Shape(1, None)
TERMS = Terms(6, 100, 1000)
COSTS = Costs([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], {str(SHAPE): [0.0, 0.5, 0.1, 0.6]}, 1012)


def test_a_killed_study_goes_on_and_ends_in_the_same_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    family = ["--target", "family:target", "--shipped", ""]
    call = [*family, "--quick", "--work", str(tmp_path / "work"), "--out", str(tmp_path / "out")]
    task_drafts.main(call)
    first = capsys.readouterr().out
    assert "16 training steps left" in first
    (tmp_path / "work" / "answers" / f"{TASKS[1].name}-stop-0003.parquet").unlink()
    next((tmp_path / "work").glob(f"*/hits/{TASK}-*.json")).unlink()
    task_drafts.main(call)
    second = capsys.readouterr().out
    assert "1 shards to make" in second
    assert " 0 training steps left" in second
    assert first.partition("| tasks |")[2] == second.partition("| tasks |")[2] != ""
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        f"task_drafts.{end}" for end in ("md", "json", "png")
    }
    with pytest.raises(SystemExit, match="give another --work"):
        task_drafts.main([*call, "--shipped", "family:draft"])
    [result] = json.loads((tmp_path / "out" / "task_drafts.json").read_text())["outcomes"]
    assert set(result["speed"]) == {
        f"{name}{head}" for name in (*SINGLES, TASK) for head in ("", ", own head", ", small head")
    }


def test_a_head_is_made_for_the_ids_of_the_answers(tmp_path: Path) -> None:
    make_narrow(TARGET_DIR, "family:target", 1, 64, range(100, 110), tmp_path / "start")
    with_head(tmp_path / "start", {500: 3, 105: 2, 600: 1}, TARGET_DIR, tmp_path / "begun")
    old, new = (TensorCheckpoint(tmp_path / name) for name in ("start", "begun"))
    ids = DraftVocabulary.load(tmp_path / "begun").ids.tolist()
    assert ids == [100, 101, 102, 103, 104, 105, 106, 107, 500, 600]
    assert torch.equal(new["lm_head.weight"][:8], old["lm_head.weight"][:8])
    target = TensorCheckpoint(TARGET_DIR)
    whole = target[EMBEDDING if ModelConfig.load(TARGET_DIR).tied else "lm_head.weight"].float()
    rows = (whole[[500, 600]] @ new[PROJECTION].float()).to(torch.bfloat16)
    assert torch.equal(new["lm_head.weight"][8:], rows)
    assert DraftVocabulary.of_stored_head(tmp_path / "begun") is not None


def test_general_traffic_is_that_of_the_first_time(tmp_path: Path) -> None:
    for number in (0, 2):
        (tmp_path / f"test-000{number}.parquet").write_bytes(parquet_of([trace(3 + number)]))
    general = General(tmp_path, tmp_path)
    first = general.traces("test")
    (tmp_path / "test-0001.parquet").write_bytes(parquet_of([trace(4)]))
    assert general.traces("test") == first == [trace(3), trace(5)]
    with pytest.raises(SystemExit, match="0 train shards yet"):
        general.dataset()


def test_help_names_what_is_trained(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        task_drafts.main(["--help"])
    printed = capsys.readouterr().out
    assert all(re.search(rf"^ +{name} ", printed, re.MULTILINE) for name in (*SINGLES, TASK))


def trace(output: int, temperature: float = 0.0) -> Trace:
    params = SamplingParams(seed=1, max_tokens=100, temperature=temperature)
    return Trace(prompt_ids=(1,), output_ids=tuple(range(output)), params=params)


def test_times_are_those_of_every_number_of_tokens_drafted() -> None:
    counts, durations = times("0110", trace(4), TERMS, COSTS, 0.25)
    # after the token of the prefill: two hits and a miss; the last of three passes with one token drafted each
    assert counts.tokens == 3
    assert durations[0] == 3.0  # plain
    assert durations[1] == 2 * (1 + 0.25)
    assert durations[2] == 1 + 2 * 0.25


def test_a_token_costs_what_lies_between_the_heads_that_were_measured() -> None:
    assert COSTS.token(SHAPE, 512, sampled=False) == 0.0
    assert COSTS.token(SHAPE, 762, sampled=False) == pytest.approx(0.25)
    assert COSTS.token(SHAPE, 1012, sampled=True) == pytest.approx(0.6)


def outcome_of_two_tasks() -> Outcome:
    """Two tasks of two answers each. A task's draft guesses all of them, of another task none, single ones half."""
    first, second = (task.name for task in TASKS[:2])
    judging = {first: [trace(8), trace(8, 1.0)], second: [trace(8), trace(8, 1.0)], GENERAL: [trace(8), trace(8)]}
    half, every, none = "00101010", "01111111", "00000000"
    single = {"right": [half] * 4, "general": [half] * 2}
    own = {"right": [every] * 2, "wrong": [none] * 2, "general": [none]}
    hits = {name: dict.fromkeys(HEADS, single) for name in SINGLES}
    hits |= {f"{TASK}-{name}": dict.fromkeys(HEADS, own) for name in (first, second)}
    study: Any = SimpleNamespace(
        hits=lambda _: hits,
        judging=lambda _: dict(judging),
        head=lambda _case, _name, head: range(1012 if head == "whole" else 512),
        terms=TERMS,
    )
    return outcome(cast(Study, study), [Case(2, SHAPE, seed) for seed in (0, 1)], COSTS)


def test_what_hits_more_at_less_cost_is_best() -> None:
    result = outcome_of_two_tasks()
    assert result.best_task == f"{TASK}, own head"
    assert result.best_single.endswith(", own head")
    assert result.seeds == 2
    own = result.arms[result.best_task]
    assert own.tokens.tolist() == [14.0] * 4  # of both seeds
    # after the token of the prefill one pass with six drafted tokens, which cost nothing, or a tenth of a pass
    assert own.times.tolist() == pytest.approx([2.0, 3.2] * 2)
    assert result.over_single(own).low > 1.0
    assert result.arms["base"].ids == 1012


def test_a_wrong_draft_costs_and_the_break_even_is_where_both_are_alike() -> None:
    result = outcome_of_two_tasks()
    right, wrong = result.arms[result.best_task], result.wrong[result.best_task]
    assert wrong.times.tolist() == wrong.tokens.tolist()  # nothing is drafted: plain decoding
    assert 0.0 < result.break_even < 1.0
    assert result.over_single(right.wrong_in(result.break_even, wrong)).value == pytest.approx(1.0)
    greedy = result.over_single(right, 1 - result.sampled)
    assert greedy.value != result.over_single(right, result.sampled).value
    assert np.array_equal(result.sampled, [0, 1, 0, 1])
