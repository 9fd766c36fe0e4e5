"""One loop for all tests in this folder: a service, its traffic, and the retraining that learns from it."""

from __future__ import annotations

import pytest

from tests.train_jobs import loop
from train_jobs.stages import open_workspace
from train_jobs.work.workspace import Workspace


@pytest.fixture(scope="session")
def looped(tmp_path_factory: pytest.TempPathFactory) -> loop.Loop:
    """Gone around once; nothing of it runs any more."""
    return loop.run(tmp_path_factory.mktemp("loop"))


@pytest.fixture
def retrained(looped: loop.Loop) -> Workspace:
    """The work directory of the finished retraining, whose bundle is live."""
    return open_workspace(looped.config)
