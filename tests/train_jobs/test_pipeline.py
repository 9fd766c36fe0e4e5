"""What the retraining of the loop leaves: its splits, its drafts, which load in plain peft, its bundle, its report."""

from __future__ import annotations

import json

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from core.bundle.store import open_live, open_version
from core.draft_key import GENERAL
from core.family import DRAFT_DIR
from core.model.causal_lm import load_model
from core.model.loader import adapted_model
from core.replay.replay import session_forward, total
from core.tasks.classifier import TaskClassifier
from core.tasks.identity import TaskCentroids
from tests.train_jobs.loop import BOUND, Loop
from train_jobs.drafts.candidates import BASE
from train_jobs.drafts.training_runs import base_runs, specialised_runs
from train_jobs.stages.align import live_drafts
from train_jobs.stages.evaluate import candidate_jobs
from train_jobs.work.artefacts import SPLITS
from train_jobs.work.findings import Findings
from train_jobs.work.workspace import Workspace

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(3 * BOUND),  # the first test has the loop made
    # peft, loading: LoRA on a tied lm_head leaves the embedding alone, as intended
    pytest.mark.filterwarnings("ignore:.*tie.*"),
    pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning"),
]
TOKENS = list(range(40, 140))


def test_it_ends_in_a_bundle_of_the_promoted_drafts(retrained: Workspace) -> None:
    live = open_live(retrained.config.bundles)
    assert live.bundle is not None
    assert not live.problems
    manifest, winners = live.bundle.manifest, retrained.winners()
    assert {task: slot.decision for task, slot in manifest.slots.items()} == {
        task: winner.decision for task, winner in winners.slots.items()
    }
    assert (live.bundle.router is None) == winners.one_draft  # one slot needs no router
    assert live.bundle.control("mixed") is not None
    assert live.bundle.centroids is not None
    assert TaskCentroids.load(live.bundle.centroids).names == retrained.tasks().names
    for task, slot in manifest.slots.items():
        assert (slot.part is None) == (slot.decision == GENERAL), task
        assert slot.decision in slot.scores


def test_the_router_knows_the_tasks(retrained: Workspace) -> None:
    router = TaskClassifier.load(retrained.router())
    assert set(router.tasks) == set(retrained.winners().tasks)


def test_the_findings_hold_every_candidate_of_every_slot(retrained: Workspace) -> None:
    findings = Findings.load(retrained.config.work / "report" / "findings.json")
    assert findings.k == 3
    for slot in findings.slots:
        names = {candidate.name for candidate in slot.candidates}
        assert names - {"live"} == {"general", "base", "continued", "mixed", "task"}
        assert slot.prompts["test"] > 0
    assert {served.temperature for served in findings.served} == {0.0, 1.0}


def test_the_splits_share_no_prompt(retrained: Workspace) -> None:
    splits = [{trace.prompt_ids for trace in retrained.traces(split)} for split in SPLITS]
    assert all(splits)
    assert sum(map(len, splits)) == len(set().union(*splits))


def test_adapters_load_in_plain_peft_and_say_the_same(retrained: Workspace) -> None:
    adapters = sorted(retrained.config.bundles.glob("parts/*/adapter_config.json"))
    assert adapters
    for config in adapters:
        assert json.loads(config.read_text())["base_model_name_or_path"] == DRAFT_DIR.name
        base = AutoModelForCausalLM.from_pretrained(DRAFT_DIR, dtype=torch.float32)
        theirs = PeftModel.from_pretrained(base, str(config.parent))(torch.tensor([TOKENS])).logits[0]
        ours = load_model(
            adapted_model(config.parent, str(DRAFT_DIR)), dtype=torch.float32, num_pages=16, adapter=config.parent
        )
        with torch.inference_mode():
            torch.testing.assert_close(session_forward(ours)(TOKENS, len(TOKENS)), theirs, atol=1e-4, rtol=0)


def test_the_manifest_says_how_every_draft_does_on_every_task(retrained: Workspace) -> None:
    live = open_live(retrained.config.bundles).bundle
    assert live is not None
    tasks, scores = retrained.tasks(), retrained.scores()
    numbers = {slot: tasks.numbers("promotion", task) for task, slot in enumerate(tasks.routed)}
    numbers[GENERAL] = tasks.numbers("promotion", None)
    assert live.manifest.acceptance.keys() == live.manifest.slots.keys()
    for slot, rates in live.manifest.acceptance.items():
        assert rates.keys() == {*tasks.names, GENERAL}
        own, judged = live.manifest.slots[slot], numbers[slot]
        jobs = [job for job in candidate_jobs(retrained) if set(judged) <= set(job.numbers["promotion"])]
        totals = [total(scores.of(job.name, "promotion", judged)) for job in jobs]
        figures = pytest.approx((own.scores[own.decision], rates[slot]))
        assert any((counts.speedup, counts.acceptance_rate) == figures for counts in totals)
    assert live.manifest.evidence.keys() == live.manifest.words.keys() == set(retrained.tasks().names)
    for words in live.manifest.words.values():  # a name skips those that another task's name has
        assert 0 < len(words) == len(set(words)) <= 6


def test_without_steps_for_a_base_the_draft_is_the_base(retrained: Workspace) -> None:
    assert base_runs(retrained) == []
    assert {run.draft for run in specialised_runs(retrained)} == {str(DRAFT_DIR)}
    assert live_drafts(retrained).base is None
    [base] = [job for job in candidate_jobs(retrained) if job.name.startswith(BASE)]
    assert base.draft is None


def test_it_went_on_from_the_adapter_that_was_live(looped: Loop, retrained: Workspace) -> None:
    live, first = retrained.live(), open_version(looped.config.bundles, looped.first)
    assert live.version == looped.first
    [adapted] = [task for task, slot in first.manifest.slots.items() if slot.part is not None]
    assert live.adapters == {adapted: first.directory(adapted)}
    continued = {run.name: run.adapter for run in specialised_runs(retrained) if run.adapter is not None}
    assert list(continued.values()) == [first.directory(adapted)]


def test_the_report_names_every_task(retrained: Workspace) -> None:
    text = (retrained.config.work / "report" / "report.html").read_text()
    assert all(task in text for task in retrained.winners().tasks)
