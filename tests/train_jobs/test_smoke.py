"""The whole smoke configuration, as the README describes it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from core.bundle.store import open_live
from serve_app.config import load_config
from serve_app.deployments.models.served_models import with_bundle
from tests.train_jobs.retraining import ENVIRONMENT

pytestmark = pytest.mark.soak  # about six minutes on two cores
ROOT = Path(__file__).parents[2]


def test_it_ends_in_a_bundle_the_service_loads(tmp_path: Path) -> None:
    where = ["--work", str(tmp_path / "work"), "--bundles", str(tmp_path / "bundles")]
    command = [
        sys.executable,
        "-m",
        "serve_app.cli.main",
        "retrain",
        "--config",
        "train_jobs/configs/smoke.yaml",
        *where,
    ]
    subprocess.run(command, check=True, cwd=ROOT, env=ENVIRONMENT)
    bundle = open_live(tmp_path / "bundles").bundle
    assert bundle is not None
    served = with_bundle(load_config("family").model_copy(update={"bundle": str(tmp_path / "bundles")}))
    assert served.version == bundle.manifest.version
    assert set(served.drafts) <= set(bundle.manifest.slots)
