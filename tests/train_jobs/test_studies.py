"""The whole tiny retraining: its trials of ranks, and its studies, which come after its bundle."""

from __future__ import annotations

import pytest

from core.model.loader import lora_rank
from tests.train_jobs.retraining import Retraining
from train_jobs.candidates import TASK, draft_name, trial_name
from train_jobs.findings import Findings

pytestmark = [pytest.mark.cluster, pytest.mark.soak]  # two minutes: a whole retraining and eleven runs more


@pytest.fixture(scope="module")
def retrained(tmp_path_factory: pytest.TempPathFactory) -> Retraining:
    retraining = Retraining(tmp_path_factory.mktemp("whole"))
    outcome = retraining.again()
    assert outcome.returncode == 0, outcome.stderr
    return retraining


def test_the_findings_hold_every_point_of_the_studies(retrained: Retraining) -> None:
    findings = Findings.load(retrained.work / "report" / "findings.json")
    assert [point.pairs for point in findings.pairs] == [32]
    assert {point.k for point in findings.ks} == {1, 2, 3}
    assert [point.loss for point in findings.losses] == ["kl", "lk"]


def test_the_ranks_of_adapters_are_those_that_accept_most_on_the_stop_set(retrained: Retraining) -> None:
    drafts = retrained.workspace.drafts()
    for task, slot in enumerate(retrained.workspace.tasks().routed):
        name = draft_name(TASK, slot, task, 0)
        tried = {rank: max(drafts.curve(trial_name(name, rank)).acceptance) for rank in (4, 8)}
        chosen = drafts.ranks()[slot]
        assert tried[chosen] == max(tried.values())
        assert lora_rank(drafts.draft(name)) == chosen
        assert drafts.curve(name).acceptance == drafts.curve(trial_name(name, chosen)).acceptance
