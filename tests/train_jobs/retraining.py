"""`taskspec retrain` on the tiny configuration, run as a command, and its results."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from core.bundle.store import open_live
from train_jobs.config import load_config
from train_jobs.stages import open_workspace
from train_jobs.work.workspace import Workspace

TINY = Path(__file__).with_name("tiny.yaml")
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


class Retraining:
    """One work directory and one bundle root."""

    TASKSPEC = (sys.executable, "-m", "serve_app.cli.main")

    def __init__(self, directory: Path, file: Path = TINY) -> None:
        self.file = file
        self.work = directory / "work"
        self.bundles = directory / "bundles"

    def command(self, *words: str, work: Path | None = None) -> list[str]:
        where = ["--work", str(work or self.work), "--bundles", str(self.bundles)]
        return [*self.TASKSPEC, *words, "--config", str(self.file), *where]

    def again(self) -> subprocess.CompletedProcess[str]:
        return _run(self.command("retrain", "--json"))

    def stage(self, name: str, work: Path | None = None) -> subprocess.CompletedProcess[str]:
        return _run(self.command("stage", name, work=work))

    @property
    def workspace(self) -> Workspace:
        return open_workspace(load_config(self.file).model_copy(update={"work": self.work, "bundles": self.bundles}))

    @property
    def version(self) -> str:
        bundle = open_live(self.bundles).bundle
        assert bundle is not None
        return bundle.manifest.version

    def files(self) -> dict[Path, int]:
        """Every file and when it was written."""
        roots = (self.work, self.bundles)
        return {file: file.stat().st_mtime_ns for root in roots for file in root.rglob("*") if file.name != ".lock"}


def as_short_as_can_be(directory: Path) -> Path:
    """The tiny configuration without trials, as every run takes half a minute to start."""
    settings = yaml.safe_load(TINY.read_text())
    del settings["align"]["ranks"]
    file = directory / "short.yaml"
    file.write_text(yaml.safe_dump(settings))
    return file


def _run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT, **options)
