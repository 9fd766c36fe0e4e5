"""A small retraining on a Ray of its own: its bundle loads in plain peft, and no stage is run twice."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from core.bundle.store import Winner, open_live
from core.distill.replay import session_forward
from core.family import DRAFT_DIR
from core.model.causal_lm import load_model
from core.model.draft_vocabulary import DraftVocabulary
from core.model.loader import adapted_model, is_adapter
from core.tasks import GENERAL
from core.tasks.classifier import TaskClassifier
from core.tasks.identity import TaskCentroids
from tests.train_jobs.retraining import Retraining
from train_jobs import vocabularies
from train_jobs.artefacts import SPLITS
from train_jobs.candidates import BASE
from train_jobs.findings import Findings
from train_jobs.models import target_tokenizer
from train_jobs.stages.align import live_drafts
from train_jobs.stages.evaluate import candidate_jobs
from train_jobs.training_runs import base_runs, specialised_runs
from train_jobs.workspace import Workspace

pytestmark = [
    pytest.mark.cluster,
    # peft, loading: LoRA on a tied lm_head leaves the embedding alone, as intended
    pytest.mark.filterwarnings("ignore:.*tie.*"),
    pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning"),
]
TOKENS = list(range(40, 140))


def test_it_ends_in_a_bundle_of_the_promoted_drafts(retrained: Retraining) -> None:
    live = open_live(retrained.bundles)
    assert live.bundle is not None
    assert not live.problems
    manifest, winners = live.bundle.manifest, retrained.workspace.winners()
    assert {task: slot.decision for task, slot in manifest.slots.items()} == {
        task: winner.decision for task, winner in winners.slots.items()
    }
    assert (live.bundle.router is None) == winners.one_draft  # one slot needs no router
    assert live.bundle.control("base") is not None
    assert live.bundle.centroids is not None
    assert TaskCentroids.load(live.bundle.centroids).names == retrained.workspace.tasks().names
    for task, slot in manifest.slots.items():
        assert (slot.part is None) == (slot.decision == GENERAL), task
        assert slot.decision in slot.scores


def test_the_router_knows_the_tasks(retrained: Retraining) -> None:
    router = TaskClassifier.load(retrained.workspace.router())
    assert set(router.tasks) == set(retrained.workspace.winners().tasks)


def test_the_findings_hold_every_candidate_of_every_slot(retrained: Retraining) -> None:
    findings = Findings.load(retrained.work / "report" / "findings.json")
    assert findings.k == 2
    assert findings.purity is not None
    assert findings.purity > 0.9
    assert {slot.label for slot in findings.slots} == {"english", "chinese", None}
    for slot in findings.slots:
        assert {candidate.name for candidate in slot.candidates} == {"general", "base", "continued", "mixed", "task"}
        assert slot.prompts["test"] > 0
    assert {served.temperature for served in findings.served} == {0.0, 1.0}


def test_the_splits_share_no_prompt(retrained: Retraining) -> None:
    splits = [{trace.prompt_ids for trace in retrained.workspace.traces(split)} for split in SPLITS]
    assert all(splits)
    assert sum(map(len, splits)) == len(set().union(*splits))


def test_adapters_load_in_plain_peft_and_say_the_same(retrained: Retraining) -> None:
    adapters = sorted(retrained.bundles.glob("parts/*/adapter_config.json"))
    assert adapters
    for config in adapters:
        named = config.parent.parent / json.loads(config.read_text())["base_model_name_or_path"]
        base = AutoModelForCausalLM.from_pretrained(named, dtype=torch.float32)
        theirs = PeftModel.from_pretrained(base, str(config.parent))(torch.tensor([TOKENS])).logits[0]
        ours = load_model(
            adapted_model(config.parent, str(DRAFT_DIR)), dtype=torch.float32, num_pages=16, adapter=config.parent
        )
        with torch.inference_mode():
            torch.testing.assert_close(session_forward(ours)(TOKENS, len(TOKENS)), theirs, atol=1e-4, rtol=0)


def test_the_manifest_says_how_every_draft_does_on_every_task(retrained: Retraining) -> None:
    live = open_live(retrained.bundles).bundle
    assert live is not None
    names = {*retrained.workspace.tasks().names, GENERAL}
    assert live.manifest.acceptance.keys() == live.manifest.slots.keys()
    for slot, rates in live.manifest.acceptance.items():
        assert rates.keys() == names
        own = live.manifest.slots[slot]
        assert rates[slot] == pytest.approx(own.scores[own.decision])
    assert live.manifest.evidence.keys() == set(retrained.workspace.tasks().names)


def test_a_second_retraining_goes_on_from_what_is_live(retrained: Retraining, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle, work = open_live(retrained.bundles).bundle, retrained.workspace
    assert bundle is not None
    live = live_drafts(work)
    general = bundle.directory(GENERAL)
    assert live.version == bundle.manifest.version
    assert live.base == (None if general is None or is_adapter(general) else general)
    assert live.evidence.keys() == set(work.tasks().names)
    for adapter in live.adapters.values():
        assert adapted_model(adapter, "") == str(live.base)
    monkeypatch.setattr(Workspace, "live", lambda _: live)
    [base] = base_runs(work)
    assert base.draft == str(live.base or DRAFT_DIR)
    for run in specialised_runs(work):
        assert (run.adapter is not None) == (run.adapter in live.adapters.values())


def test_without_steps_for_a_base_the_draft_is_the_base(retrained: Retraining) -> None:
    work = retrained.workspace
    work.config = work.config.model_copy(update={"align": work.config.align.model_copy(update={"base_steps": 0})})
    assert base_runs(work) == []
    assert {run.draft for run in specialised_runs(work)} == {str(DRAFT_DIR)}
    assert live_drafts(work).base is None
    [base] = [job for job in candidate_jobs(work) if job.name.startswith(BASE)]
    assert base.draft is None


@pytest.mark.parametrize(("pass_seconds", "cut"), [(0.0, True), (1e6, False)])
def test_a_head_is_cut_where_drafting_costs_much_beside_a_pass(
    retrained: Retraining, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pass_seconds: float, *, cut: bool
) -> None:
    work = retrained.workspace
    evaluate = work.config.evaluate.model_copy(update={"vocabulary_sizes": (400,)})
    work.config = work.config.model_copy(update={"evaluate": evaluate})
    monkeypatch.setattr(vocabularies, "_pass_seconds", lambda _: pass_seconds)
    shutil.copytree(work.drafts().draft(""), tmp_path / "drafts")
    base = tmp_path / "drafts" / work.drafts().base(0).name
    winner = Winner(directory=base, decision="base", reason="better")
    chooser = vocabularies.VocabularyChooser(work, lambda *_: None)
    slot, found = chooser.work(vocabularies.PromotedDraft(GENERAL, None, winner))
    assert slot == GENERAL
    assert (found.directory != base) == cut
    if cut:
        assert found.directory is not None
        vocabulary = DraftVocabulary.find(found.directory)
        assert vocabulary is not None
        assert set(target_tokenizer(work.config).eos_ids) <= set(vocabulary.ids.tolist())
        assert "of 2048 ids" in found.reason


def test_align_runs_overlap(retrained: Retraining) -> None:
    """Two workers fit on the CPUs, so two Ray Train runs are active at a time, by their recorded times."""
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
    assert all(task in text for task in retrained.workspace.winners().tasks)
