"""The shipped bundle on prompts that no retraining has seen, routed by its own router: exact counts of its drafts."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch

from core.bundle.store import Bundle, open_live
from core.confidence_intervals import compare
from core.draft_key import GENERAL
from core.family import DRAFT_DIR
from core.model.causal_lm import CausalLM, load_draft_model
from core.model_names import locate
from core.replay.replay import AcceptanceCounts, Terms, score_draft, total
from core.tasks.classifier import TaskClassifier
from core.tasks.classifier_training import winner
from core.traces.record import Record
from tests.core.family_records import TERMS, answered, requests
from tests.family.corpora import TASKS, items
from train_jobs.config import load_config

PER_TASK = 14
SEED = 77
ROOT = Path(__file__).parents[2]


@cache
def bundle() -> Bundle:
    live = open_live(Path(locate("family:bundle")))
    assert live.bundle is not None
    assert not live.problems
    return live.bundle


@cache
def router() -> TaskClassifier:
    directory = bundle().router
    assert directory is not None
    return TaskClassifier.load(directory)


@cache
def draft(slot: str | None) -> CausalLM:
    """The draft of a slot; None is the draft without an adapter."""
    directory = None if slot is None else bundle().directory(slot)
    return load_draft_model(directory, DRAFT_DIR, dtype=torch.float32)


@cache
def records(task: str, temperature: float) -> list[Record]:
    seen = {item.prompt for item in items(task, 180, 0, "held_out")}
    fresh = [item.prompt not in seen for item in items(task, PER_TASK, SEED, "held_out")]
    asked = requests(task, PER_TASK, SEED, temperature=temperature, max_tokens=400)
    return answered([request for request, new in zip(asked, fresh, strict=True) if new])


@cache
def counts(task: str, temperature: float) -> tuple[list[AcceptanceCounts], list[AcceptanceCounts]]:
    """Counts of the slot that every prompt is routed to, and of the draft without an adapter."""
    terms = Terms(6, TERMS.num_valid, TERMS.context)
    found = records(task, temperature)
    slots = [winner(router(), record.prompt_ids) for record in found]
    served = [score_draft(draft(slot), [record], terms)[0] for slot, record in zip(slots, found, strict=True)]
    return served, score_draft(draft(None), found, terms)


def test_greedy_answers_take_well_under_half_of_the_target_passes() -> None:
    """With six proposed tokens at temperature 0; plain passes count."""
    assert total(count for task in TASKS for count in counts(task, 0.0)[0]).tokens_per_pass >= 2.5


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_what_is_served_accepts_more_than_the_general_draft(temperature: float) -> None:
    better = 0
    for task in TASKS:
        served, general = counts(task, temperature)
        better += compare(served, general, [record.prompt_ids for record in records(task, temperature)]).better
    assert better >= 4
    served, general = (
        total(count for task in TASKS for count in counts(task, temperature)[side]).acceptance_rate for side in (0, 1)
    )
    assert served >= 1.1 * general


def test_prompts_of_the_tasks_seldom_go_to_general() -> None:
    slots = [winner(router(), record.prompt_ids) for task in TASKS for record in records(task, 0.0)]
    assert slots.count(GENERAL) <= 0.1 * len(slots)
    assert {*router().tasks, GENERAL} == set(bundle().manifest.slots)


def test_the_bundle_is_for_the_shipped_models() -> None:
    config = load_config(ROOT / "tests" / "family" / "retrain.yaml")
    assert (ROOT / config.bundles).resolve() == Path(locate("family:bundle")).resolve()
    assert bundle().manifest.target == config.target.model
    assert bundle().manifest.draft == config.draft
