"""What drafting costs is measured once, and once for drafts of one shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.bundle.store import open_live
from core.family import BUNDLE_DIR, DRAFT_DIR
from core.replay.speed import MOST_ROWS, draft_shape
from tests.train_jobs.retraining import TINY
from train_jobs.config import load_config
from train_jobs.drafts import costs
from train_jobs.drafts.costs import measured_costs


def test_they_are_measured_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle, workers = open_live(BUNDLE_DIR).bundle, list[Any]()
    assert bundle is not None

    def here(worker: Any, measure: Any, *arguments: Any) -> Any:
        workers.append(worker)
        return measure(*arguments)

    monkeypatch.setattr(costs, "_by_worker", here)
    config, drafts = load_config(TINY), [None, *(bundle.directory(slot) for slot in bundle.manifest.slots)]
    measured = measured_costs(config, drafts, tmp_path / "costs.json")
    assert measured.tokens.keys() == {draft_shape(None, DRAFT_DIR)}
    assert len(measured.passes) == MOST_ROWS
    assert list(measured.passes) == sorted(measured.passes)
    assert min(*measured.tokens.values(), *measured.passes) > 0.0
    assert workers == [config.collect.worker, config.evaluate.worker]
    assert measured_costs(config, drafts, tmp_path / "costs.json") == measured
    assert len(workers) == 2
