"""The replay of a retraining's drafts, on a few answers of the shipped target with the shipped bundle."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from rich.console import Console

from core.draft_key import GENERAL
from core.family import DRAFT_DIR
from core.model.causal_lm import load_draft_model
from core.replay.replay import score_draft
from serve_app.terminal.progress import step
from tests.bench import real_drafts
from tests.bench.real_drafts import ALL, OWN_TEXT, ROUTED, TOGETHER, UNADAPTED, Drafts, made, parts, replayed
from train_jobs.config import load_config
from train_jobs.stages import open_workspace
from train_jobs.work.models import replay_terms


def test_all_that_exists_is_replayed_and_the_un_adapted_draft_as_a_retraining_scores_it(collected: Path) -> None:
    work = open_workspace(load_config(collected))
    traces, drafts = work.traces("test"), made(work)
    with step(Console(quiet=True), "") as shown:
        found = replayed(work, traces, drafts, shown)
    assert list(found) == [OWN_TEXT, UNADAPTED, ROUTED, TOGETHER]
    draft = load_draft_model(None, DRAFT_DIR, dtype=torch.float32)
    assert found[UNADAPTED] == score_draft(draft, traces, replay_terms(work.config))
    assert shown.done == len(traces) * len({None, *drafts.slots.values()})
    for part in parts(traces, found):
        assert part.of in {"math", "english", ALL}
        assert all(ratio.low <= ratio.value <= ratio.high for ratio in part.tokens_per_pass().values())
        assert set(part.gains()) == {(ROUTED, UNADAPTED), (TOGETHER, ROUTED)}
    assert {trace.params.temperature for trace in traces} == {0.0, 1.0}


def test_without_a_bundle_every_prompt_goes_to_the_un_adapted_draft() -> None:
    assert Drafts({UNADAPTED: None}, {GENERAL: None}, None).slot([1, 2, 3]) == GENERAL


def test_the_page_is_written(collected: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    real_drafts.main(["--config", str(collected), "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert f"| temperature | prompts of | answers | {OWN_TEXT} | {UNADAPTED} | {ROUTED} | {TOGETHER} |" in printed
    assert "| 1 | all |" in printed
    assert {file.name for file in tmp_path.iterdir()} == {f"real_drafts.{end}" for end in ("md", "json")}
