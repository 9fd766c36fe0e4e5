"""The bench of task drafts at its smallest: two tasks, a step or two; and drafts that are begun from a target."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.distill.draft_making import make_from_layers
from core.family import TARGET_DIR
from core.model.config import ModelConfig
from core.model.draft_vocabulary import DraftVocabulary
from tests.bench import specialising
from tests.bench.specialising import Case, measure, options, page, untrained, write
from train_jobs.config import load_config
from train_jobs.drafts.candidates import BASE, CONTINUED, MIXED, TASK
from train_jobs.stages import open_workspace


def test_a_case_is_measured_once(
    collected: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = ["--base-steps", "2", "--steps", "1", "--budget", "256"]
    places = ["--config", str(collected), "--cache", str(tmp_path / "cache"), "--out", str(tmp_path / "out")]
    chosen, case = options().parse_args([*places, *steps]), Case(32, 4)
    found = measure(chosen, case, 1)
    assert list(found.kinds) == [BASE, CONTINUED, MIXED, TASK]
    assert found.kinds[CONTINUED].gain == (0.0, 0.0, 0.0)
    assert set(found.by_task) == {"math", "english"}
    assert found.fewer == {}
    assert "width 32, 4 answers: base: 2 of 2 steps" in capsys.readouterr().out
    monkeypatch.setattr(specialising, "align", None)
    assert measure(chosen, case, 1) == found
    write(chosen, [found], {})
    assert (tmp_path / "out" / "specialising.png").read_bytes().startswith(b"\x89PNG")
    more = found._replace(fewer={"math": 6})
    assert "| 32 | 4 | continued |" in page([more], {"math": 0.5, "english": 0.5})
    assert "There are no more answers than these: math 6." in page([more], {})


def test_a_draft_is_begun_as_that_of_the_retraining_was(collected: Path, tmp_path: Path) -> None:
    made, ids = tmp_path / "made", [0, 1, 2, *range(3, 2048, 2)]
    make_from_layers(TARGET_DIR, "family:target", [0, 5], ids, made)
    work = open_workspace(load_config(collected).model_copy(update={"draft": str(made)}))
    for width in (64, ModelConfig.load(TARGET_DIR).hidden_size):
        draft = untrained(work, width, tmp_path / f"width-{width}", 0)
        assert (ModelConfig.load(draft).hidden_size, ModelConfig.load(draft).num_layers) == (width, 2)
        vocabulary = DraftVocabulary.of_stored_head(draft)
        assert vocabulary is not None
        assert vocabulary.ids.tolist() == ids
