"""Prompts and their splits: a prompt is always in the same split, whatever its source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from core.errors import ConfigError, TooFewPrompts
from core.family import TARGET_DIR
from core.sampling.params import SamplingParams
from core.text.tokenizer import load_tokenizer
from core.traces.store import Trace, TraceStore
from tests.family.prompts import write_prompts
from train_jobs.config import CollectConfig, RetrainConfig, TargetConfig
from train_jobs.prompts.sources import gather, held_out_per_task
from train_jobs.work.artefacts import SPLITS

TOKENIZER = load_tokenizer(TARGET_DIR)
CONTEXT = 1024


def config(**collect: Any) -> RetrainConfig:
    target = TargetConfig(model="family:target")
    return RetrainConfig(
        target=target, draft="family:draft", work=Path("w"), bundles=Path("b"), collect=CollectConfig(**collect)
    )


def jsonl(directory: Path, prompts: list[str]) -> Path:
    file = directory / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
    return file


def test_a_conversation_that_the_template_refuses_is_named_by_its_line(tmp_path: Path) -> None:
    file = jsonl(tmp_path, ["What is 7?"])
    turns = [{"role": "user", "content": "What is 7?"}, {"role": "tool", "content": "8"}]
    file.write_text(file.read_text() + json.dumps({"messages": turns}))
    with pytest.raises(ConfigError, match=r"prompts\.jsonl, line 2: 'messages\[1\]\.role': this model's chat"):
        gather(config(files=[file]), CONTEXT)


def test_a_prompt_asked_twice_is_in_one_part(tmp_path: Path) -> None:
    prompts = [f"What is {number}?" for number in range(200)]
    parts = gather(config(files=[jsonl(tmp_path, prompts + prompts)]), CONTEXT)
    seen = [{trace.prompt_ids for trace in parts[split]} for split in SPLITS]
    assert sum(map(len, seen)) == len(set().union(*seen)) == 200
    assert sum(map(len, parts.values())) == 400


def test_a_prompt_stays_in_its_part_when_more_come(tmp_path: Path) -> None:
    prompts = [f"What is {number}?" for number in range(300)]
    few, many = (gather(config(files=[jsonl(tmp_path, prompts[:count])]), CONTEXT) for count in (150, 300))
    for split in SPLITS:
        assert {trace.prompt_ids for trace in few[split]} <= {trace.prompt_ids for trace in many[split]}


def test_as_many_are_held_out_as_the_effect_needs(tmp_path: Path) -> None:
    """Of many prompts a smaller share; what was learned from is never held out later."""
    few, many = (
        gather(config(files=[jsonl(tmp_path, [f"What is {number}?" for number in range(count)])], effect=0.05), CONTEXT)
        for count in (100, 2000)
    )
    held_out = [sum(len(parts[split]) for split in SPLITS[1:]) for parts in (few, many)]
    assert 30 <= held_out[0] <= 50
    assert held_out[1] == pytest.approx(10 * held_out_per_task(0.05), rel=0.15)
    assert {trace.prompt_ids for trace in few["train"]} <= {trace.prompt_ids for trace in many["train"]}


def test_prompts_of_a_file_keep_their_labels_and_their_temperatures_take_turns(tmp_path: Path) -> None:
    file = write_prompts(tmp_path / "prompts.jsonl", ("math", "logic"), 50)
    parts = gather(config(files=[file], held_out_share=0.3), CONTEXT)
    assert sum(len(parts[split]) for split in SPLITS[1:]) == pytest.approx(30, abs=10)
    assert {prompt.task for prompt in parts["train"]} == {"math", "logic"}
    assert {prompt.params.temperature for prompt in parts["train"]} == {0.0, 1.0}


def test_a_trace_without_output_teaches_nothing(tmp_path: Path) -> None:
    law = SamplingParams(seed=3, max_tokens=9)
    traces = [Trace(prompt_ids=(number, 7), output_ids=(5,) * (number % 2), params=law) for number in range(200)]
    TraceStore(tmp_path).append(traces)
    parts = gather(config(traces=tmp_path), CONTEXT)
    assert sum(map(len, parts.values())) == 100
    assert all(trace.prompt_ids[0] % 2 for split in SPLITS for trace in parts[split])


def test_traces_come_with_their_answers(tmp_path: Path) -> None:
    law = SamplingParams(seed=3, max_tokens=9)
    served = Trace(prompt_ids=(), output_ids=(5, 6), params=law, prior={"math": 1.0}, bundle="v7", ended_at=1.5e9)
    kept = [msgspec.structs.replace(served, prompt_ids=(number, 7)) for number in range(100)]
    TraceStore(tmp_path).append(kept)
    parts = gather(config(traces=tmp_path), CONTEXT)
    found = [trace for split in SPLITS for trace in parts[split]]
    assert sorted(found, key=lambda trace: trace.prompt_ids) == kept


def test_the_last_traces_alone_are_learned_from_to_the_exact_number(tmp_path: Path) -> None:
    law = SamplingParams(seed=3, max_tokens=9)
    kept = [Trace(prompt_ids=(number, 7), output_ids=(5,), params=law) for number in range(300)]
    for start in range(0, 300, 60):
        TraceStore(tmp_path).append(kept[start : start + 60])
    for most, expected in ((140, kept[160:]), (120, kept[180:]), (999, kept)):
        parts = gather(config(traces=tmp_path, most=most), CONTEXT)
        assert sorted((one for split in SPLITS for one in parts[split]), key=lambda one: one.prompt_ids) == expected
    asked = gather(config(traces=tmp_path, most=140), CONTEXT)
    assert asked == gather(config(traces=tmp_path, most=140), CONTEXT)
    assert [one.prompt_ids for one in asked["train"]] == sorted(one.prompt_ids for one in asked["train"])


def test_too_few_prompts_are_an_error_of_their_own(tmp_path: Path) -> None:
    with pytest.raises(TooFewPrompts, match=r"collect: no prompts for .*; bring more prompts"):
        gather(config(files=[jsonl(tmp_path, ["one"])]), CONTEXT)


def test_prompts_that_are_learned_from_may_be_answered_at_every_temperature(tmp_path: Path) -> None:
    file = jsonl(tmp_path, [f"What is {number}?" for number in range(200)])
    once, more = (gather(config(files=[file], every_temperature=every), CONTEXT) for every in (False, True))
    assert [trace.prompt_ids for trace in more["train"]] == [one.prompt_ids for one in once["train"] for _ in "01"]
    assert [trace.params.temperature for trace in more["train"]] == [0.0, 1.0] * len(once["train"])
    assert [more[split] for split in SPLITS[1:]] == [once[split] for split in SPLITS[1:]]


def test_what_leaves_no_room_for_an_answer_is_dropped(tmp_path: Path) -> None:
    prompts = ["short " + str(number) for number in range(100)] + ["long " * 40]
    parts = gather(config(files=[jsonl(tmp_path, prompts)]), 40)
    assert sum(map(len, parts.values())) == 100
    assert all(len(prompt.prompt_ids) + prompt.params.max_tokens <= 40 for split in SPLITS for prompt in parts[split])


@pytest.mark.parametrize(
    ("collect", "said"),
    [
        ({"traces": Path("nowhere")}, "`taskspec traces import` makes one"),
        ({"files": [Path("nowhere.jsonl")]}, "nowhere.jsonl cannot be read"),
    ],
)
def test_what_is_missing_is_named(collect: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        gather(config(**collect), CONTEXT)
