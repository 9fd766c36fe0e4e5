"""One retraining for all tests in this folder."""

from __future__ import annotations

import pytest

from tests.train_jobs.retraining import Retraining


@pytest.fixture(scope="session")
def retrained(tmp_path_factory: pytest.TempPathFactory) -> Retraining:
    """A finished one."""
    retraining = Retraining(tmp_path_factory.mktemp("retraining"))
    outcome = retraining.again()
    assert outcome.returncode == 0, outcome.stderr
    return retraining
