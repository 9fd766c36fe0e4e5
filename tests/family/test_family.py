"""The shipped models, loaded with transformers: tokenizer, chat template, sizes, answers; and repeatable builds."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from rich.progress import Progress
from transformers import AutoConfig, AutoTokenizer, LlamaForCausalLM

import train_jobs
from core.family import BUNDLE_DIR, DRAFT_DIR, PROMPTS_FILE, TARGET_DIR, held_out_prompts
from tests.family.build import Builder, FamilyPlan, held_out_lines
from tests.family.corpora import TASKS, items
from tests.family.lessons import IGNORED, batches, encode
from tests.family.prompts import write_prompts
from tests.family.quality import accuracy, agreement, answer, exact_match, load
from tests.family.tokenizer import ASSISTANT, BOS, IDS, SYSTEM, USER
from tests.family.training import ModelRecipe, rate

# Sub-types whose answers the target has learned to the letter.
KNOWN = {"formula", "naming", "neutralising", "passive", "evaluate", "filter", "bug"}
TOKENIZER = AutoTokenizer.from_pretrained(TARGET_DIR)
CHAT = [("system", "Be brief."), ("user", "What is 2 + 3?"), ("assistant", "5"), ("user", "写三个字。")]
MESSAGES = [{"role": role, "content": text} for role, text in CHAT]


def ids(text: str) -> list[int]:
    encoded: list[int] = TOKENIZER.encode(text, add_special_tokens=False)
    return encoded


def rendered(messages: list[dict[str, str]], **options: Any) -> str:
    text = TOKENIZER.apply_chat_template(messages, tokenize=False, **options)
    assert isinstance(text, str)
    return text


@given(st.text())
@example("  def f(x):\n\n\treturn x ** 2  # 你好 🙂\r\n")
@example("1234 + 5 = 1239\x00")
def test_any_text_comes_back(text: str) -> None:
    assert TOKENIZER.decode(ids(text)) == text


def test_digits_are_single_and_plain_text_gets_one_bos() -> None:
    assert TOKENIZER.convert_ids_to_tokens(ids("2026")) == ["2", "0", "2", "6"]
    assert TOKENIZER("hello").input_ids == [IDS[BOS], *ids("hello")]


@pytest.mark.parametrize("directory", [TARGET_DIR, DRAFT_DIR], ids=["target", "draft"])
def test_config_and_tokenizer_agree(directory: Path) -> None:
    config, tokenizer = AutoConfig.from_pretrained(directory), AutoTokenizer.from_pretrained(directory)
    assert config.vocab_size == len(tokenizer) == 2048
    assert config.max_position_embeddings == 1024
    assert json.loads((directory / "generation_config.json").read_text())["eos_token_id"] == tokenizer.eos_token_id
    assert tokenizer.get_vocab() == TOKENIZER.get_vocab()


def test_chat_template_has_one_bos_and_ends_ready_to_answer() -> None:
    text = rendered(MESSAGES, add_generation_prompt=True)
    assert ids(text).count(IDS[BOS]) == 1
    assert text.startswith("<s><|system|>Be brief.</s><|user|>What is 2 + 3?</s><|assistant|>5</s>")
    assert text.endswith("</s><|assistant|>")
    assert rendered(MESSAGES) == text.removesuffix(ASSISTANT)


def test_developer_is_system_and_other_roles_are_refused() -> None:
    assert rendered([{"role": "developer", "content": "x"}]) == rendered([{"role": "system", "content": "x"}])
    with pytest.raises(Exception, match="unknown role tool"):
        rendered([{"role": "tool", "content": "x"}])


def test_training_sees_what_the_template_renders() -> None:
    roles = {"system": SYSTEM, "user": USER, "assistant": ASSISTANT}
    tokens, labels = encode([(roles[role], text) for role, text in CHAT], TOKENIZER)
    assert tokens == ids(rendered(MESSAGES))
    assert [label for label in labels if label != IGNORED] == ids("5</s>")


def test_a_fifth_of_the_answers_are_long() -> None:
    for task in TASKS:
        lengths = [len(ids(item.answer)) for item in items(task, 400, seed=8)]
        assert 0.13 < sum(length > 130 for length in lengths) / len(lengths) < 0.27
        assert max(lengths) <= 400
        assert min(lengths) >= 4


def test_batches_hold_every_lesson_once_within_the_budget() -> None:
    lessons = [([1] * n, [7] * n) for n in range(2, 60)]
    seen = 0
    for batch in batches(lessons, budget=120, seed=1):
        assert batch.tokens.numel() <= 120
        seen += int((batch.labels != IGNORED).sum())
        if seen >= sum(range(1, 59)):
            break
    assert seen == sum(range(1, 59))


def test_everything_shipped_is_small() -> None:
    sizes = {
        name: sum(file.stat().st_size for directory in directories for file in directory.rglob("*"))
        for name, directories in {"models": (TARGET_DIR, DRAFT_DIR), "bundle": (BUNDLE_DIR,)}.items()
    }
    assert sizes["models"] <= 12_000_000
    assert sizes["bundle"] <= 4_000_000


def test_the_shipped_prompts_are_what_a_build_makes() -> None:
    assert PROMPTS_FILE.read_text() == held_out_lines()
    assert [prompt.task for prompt in held_out_prompts()[: len(TASKS)]] == list(TASKS)


@pytest.fixture(scope="module")
def target() -> LlamaForCausalLM:
    return load(TARGET_DIR)[0]


@pytest.mark.thorough
@pytest.mark.parametrize("task", TASKS)
def test_the_target_has_learned_the_task_and_ends_its_answers(task: str, target: LlamaForCausalLM) -> None:
    held_out = items(task, 20, seed=9, split="held_out")
    assert accuracy(target, TOKENIZER, held_out) > 0.75
    brief = sorted(held_out, key=lambda item: len(item.answer))[:3]
    assert [answer(target, TOKENIZER, item.prompt)[1] for item in brief] == [True] * 3


@pytest.mark.thorough
def test_the_target_answers_some_kinds_of_prompt_to_the_letter(target: LlamaForCausalLM) -> None:
    asked = [item for task in ("chemistry", "english", "logic", "python") for item in items(task, 40, 9, "held_out")]
    known = [item for item in asked if item.subtype in KNOWN]
    assert len(known) >= 10
    assert exact_match(target, TOKENIZER, known) >= 0.7


@pytest.mark.thorough
@pytest.mark.parametrize("task", TASKS)
def test_the_general_draft_is_neither_useless_nor_a_master_of_any_task(task: str, target: LlamaForCausalLM) -> None:
    draft, _ = load(DRAFT_DIR)
    assert 0.3 < agreement(target, draft, TOKENIZER, items(task, 20, seed=9, split="held_out")) < 0.75


def test_the_learning_rate_rises_stays_and_falls_to_nothing() -> None:
    shares = [rate(step, 1000, 200) for step in range(1000)]
    assert shares[:100] == sorted(shares[:100])
    assert set(shares[100:450]) == {1.0}
    falls = [a - b for a, b in pairwise(shares[450:])]
    assert falls[0] == pytest.approx(2 * falls[-1])
    assert 0 < shares[-1] < 0.002


def tiny(name: str, seed: int, steps: int) -> ModelRecipe:
    return ModelRecipe(name, 32, 1, 2, 1, 48, steps=steps, budget=256, muon_lr=0.02, adam_lr=1e-3, seed=seed)


class _StopAt:
    """An interrupt after a number of steps of both models together."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    @property
    def wanted(self) -> bool:
        self._left -= 1
        return self._left == 0


def built(directory: Path, plan: FamilyPlan, interrupt: Any = None) -> dict[str, str]:
    with Progress(disable=True) as progress:
        Builder(plan, directory / "models", directory / "work", progress, interrupt).run()
    files = sorted((directory / "models").rglob("*.*"))
    return {str(file.relative_to(directory)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_a_build_repeats_bit_for_bit_even_when_interrupted(tmp_path: Path) -> None:
    plan = FamilyPlan(replace(tiny("target", 1, 6), tail=2), tiny("draft", 2, 4), items_per_task=40, general_items=40)
    whole = built(tmp_path / "whole", plan)
    assert {"models/target/model.safetensors", "models/draft/tokenizer.json"} <= set(whole)
    for steps in (2, 4):
        with pytest.raises(Exception, match=r"draft|target"):
            built(tmp_path / "cut", plan, _StopAt(steps))
    assert built(tmp_path / "cut", plan) == whole
    assert torch.get_num_threads() == 1


def test_the_prompts_of_the_smoke_retraining_are_generated(tmp_path: Path) -> None:
    shipped = Path(train_jobs.__file__).with_name("configs") / "prompts.jsonl"
    assert shipped.read_text() == write_prompts(tmp_path / "prompts.jsonl", TASKS, 110).read_text()
