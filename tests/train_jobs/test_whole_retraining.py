"""The whole tiny retraining on a Ray of its own: trials of ranks, a base; no stage is run twice."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from core.bundle.store import open_live
from core.draft_key import GENERAL
from core.family import DRAFT_DIR
from core.model.loader import adapted_model, is_adapter, lora_rank
from tests.train_jobs.retraining import Retraining
from train_jobs.drafts.candidates import TASK, draft_name, trial_name
from train_jobs.drafts.training_runs import base_runs, specialised_runs
from train_jobs.stages.align import live_drafts
from train_jobs.work.findings import Findings
from train_jobs.work.workspace import Workspace

pytestmark = [pytest.mark.cluster, pytest.mark.soak]  # two minutes: a whole retraining


@pytest.fixture(scope="module")
def retrained(tmp_path_factory: pytest.TempPathFactory) -> Retraining:
    retraining = Retraining(tmp_path_factory.mktemp("whole"))
    outcome = retraining.again()
    assert outcome.returncode == 0, outcome.stderr
    return retraining


def test_the_tasks_are_those_of_the_generators(retrained: Retraining) -> None:
    findings = Findings.load(retrained.work / "report" / "findings.json")
    assert {score.k for score in findings.ks} == {2, 3}
    assert findings.k == 2
    assert findings.purity is not None
    assert findings.purity > 0.9
    assert {slot.label for slot in findings.slots} == {"english", "chinese", None}


def test_the_ranks_of_adapters_are_those_that_accept_most_on_the_stop_set(retrained: Retraining) -> None:
    drafts = retrained.workspace.drafts()
    for task, slot in enumerate(retrained.workspace.tasks().routed):
        name = draft_name(TASK, slot, task, 0)
        tried = {rank: max(drafts.curve(trial_name(name, rank)).acceptance) for rank in (4, 8)}
        chosen = drafts.ranks()[slot]
        assert tried[chosen] == max(tried.values())
        assert lora_rank(drafts.draft(name)) == chosen
        assert drafts.curve(name).acceptance == drafts.curve(trial_name(name, chosen)).acceptance


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
