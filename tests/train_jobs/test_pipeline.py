"""A whole retraining, small, on a Ray of its own: what it leaves is a bundle anyone can load, and it is made once."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from core.acceptance import session_forward
from core.bundle import open_live
from core.classifier import GENERAL, TaskClassifier
from core.family import DRAFT_DIR
from core.model.causal_lm import load_model
from tests.train_jobs.retraining import Retraining
from train_jobs import evaluate, routing
from train_jobs.findings import Findings

pytestmark = [
    pytest.mark.cluster,
    # peft, loading: a tied lm_head is changed apart from the embedding, which is what is meant
    pytest.mark.filterwarnings("ignore:.*tie.*"),
    pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning"),
]
TOKENS = list(range(40, 140))


def test_it_ends_in_a_bundle_of_what_the_gate_ruled(retrained: Retraining) -> None:
    live = open_live(retrained.bundles)
    assert live.bundle is not None
    assert not live.problems
    manifest, verdict = live.bundle.manifest, evaluate.verdict(retrained.config)
    rulings = {GENERAL: verdict.general} | ({} if verdict.one_draft else verdict.tasks)
    assert {task: slot.decision for task, slot in manifest.slots.items()} == {
        task: ruling.decision for task, ruling in rulings.items()
    }
    assert (live.bundle.router is None) == verdict.one_draft  # one pool has nothing to route
    for task, slot in manifest.slots.items():
        assert (slot.part is None) == (slot.decision == GENERAL), task
        assert slot.decision in slot.scores


def test_the_router_knows_the_tasks(retrained: Retraining) -> None:
    router = TaskClassifier.load(routing.fitted(retrained.config))
    assert set(router.tasks) == set(evaluate.verdict(retrained.config).tasks)


def test_the_findings_hold_every_candidate_of_every_slot(retrained: Retraining) -> None:
    findings = Findings.load(retrained.work / "report" / "findings.json")
    assert findings.k == 2
    assert findings.purity is not None
    assert findings.purity > 0.9
    assert {slot.label for slot in findings.slots} == {"english", "chinese", None}
    for slot in findings.slots:
        assert {candidate.name for candidate in slot.candidates} == {"general", "mixed", "full", "task"}
        assert slot.prompts["test"] > 0
    assert [point.pairs for point in findings.pairs] == [32]
    assert {point.k for point in findings.ks} == {1, 2, 3}
    assert {served.temperature for served in findings.served} == {0.0, 1.0}


def test_parts_of_the_prompts_are_apart(retrained: Retraining) -> None:
    parts = [
        {trace.prompt_ids for trace in retrained.collected.traces(part)} for part in ("train", "stop", "gate", "test")
    ]
    assert all(parts)
    assert sum(map(len, parts)) == len(set().union(*parts))


def test_adapters_load_in_plain_peft_and_say_the_same(retrained: Retraining) -> None:
    adapters = sorted(retrained.bundles.glob("parts/*/adapter_config.json"))
    assert adapters
    for config in adapters:
        base = AutoModelForCausalLM.from_pretrained(DRAFT_DIR, dtype=torch.float32)
        theirs = PeftModel.from_pretrained(base, str(config.parent))(torch.tensor([TOKENS])).logits[0]
        ours = load_model(DRAFT_DIR, dtype=torch.float32, num_pages=16, adapter=config.parent)
        with torch.inference_mode():
            torch.testing.assert_close(session_forward(ours)(TOKENS, len(TOKENS)), theirs, atol=1e-4, rtol=0)


def test_align_runs_overlap(retrained: Retraining) -> None:
    """Two workers' worth of CPU: two Ray Train runs at a time, by their own times, their start included."""
    findings = Findings.load(retrained.work / "report" / "findings.json")
    spans = sorted((run.began, run.ended) for run in findings.runs)
    assert any(later[0] < earlier[1] for earlier, later in itertools.pairwise(spans))


def test_done_once_it_is_not_done_again(retrained: Retraining) -> None:
    before = retrained.files()
    outcome = retrained.again()
    assert outcome.returncode == 0, outcome.stderr
    assert json.loads(outcome.stdout)["seconds"] == {}
    assert retrained.files() == before


def test_a_stage_whose_turn_has_not_come_says_what_is_missing(retrained: Retraining, tmp_path: Path) -> None:
    outcome = retrained.stage("evaluate", work=tmp_path)
    assert outcome.returncode == 2
    assert "stage evaluate needs collect, partition, align, router first" in outcome.stderr


def test_the_report_names_every_task(retrained: Retraining) -> None:
    text = (retrained.work / "report" / "report.html").read_text()
    assert all(task in text for task in evaluate.verdict(retrained.config).tasks)
