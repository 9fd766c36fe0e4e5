"""One retraining for all tests in this folder."""

from __future__ import annotations

import pytest

from tests.train_jobs.retraining import Retraining, as_short_as_can_be


@pytest.fixture(scope="session")
def retrained(tmp_path_factory: pytest.TempPathFactory) -> Retraining:
    """A finished one, up to its bundle and the report of it."""
    directory = tmp_path_factory.mktemp("retraining")
    retraining = Retraining(directory, as_short_as_can_be(directory))
    outcome = retraining.again()
    assert outcome.returncode == 0, outcome.stderr
    return retraining
