"""What operators read of a part that does not run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from ray.serve.schema import ApplicationStatusOverview

from serve_app.deployments.deploy.failures import LONGEST, cause_in, failure_of

# As Ray 2.60 says it of a constructor that raised; the paths are shortened.
RAISED = """The deployment failed to start 3 times in a row. This may be due to a problem with its constructor or \
initial health check failing. See controller logs for details. Error:
\x1b[36mray::ServeReplica:bad:Bad.initialize_and_get_metadata()\x1b[39m (pid=29961, ip=192.0.2.2)
  File "concurrent/futures/_base.py", line 456, in result
    return self.__get_result()
           ^^^^^^^^^^^^^^^^^^^
RuntimeError: Traceback (most recent call last):
  File "replica.py", line 1867, in initialize
    await self._user_callable_wrapper.initialize_callable()
  File "main.py", line 8, in __init__
    if why: raise ConfigError("bundle: /nowhere/parts/ab: no such directory.\\nWrite another one.")
            ^^^^^^^^^^^^^^^^^^
core.errors.ConfigError: bundle: /nowhere/parts/ab: no such directory.
Write: another one."""


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (RAISED, "ConfigError: bundle: /nowhere/parts/ab: no such directory. Write: another one."),
        ("Failed to update the deployments ['DraftPool'].", "Failed to update the deployments ['DraftPool']."),
        ("\nWaiting for resources.\nMore of it.", "Waiting for resources."),
        ("", ""),
        ("x" * 5000, "x" * LONGEST),
    ],
)
def test_the_cause_is_a_line(message: str, line: str) -> None:
    assert cause_in(message) == line


def test_the_failure_of_an_application_is_that_of_its_deployments() -> None:
    deployments: dict[str, Any] = {
        "Bad": SimpleNamespace(status="DEPLOY_FAILED", message=RAISED),
        "Good": SimpleNamespace(status="HEALTHY", message=""),
    }
    application = SimpleNamespace(message="Failed to update the deployments ['Bad'].", deployments=deployments)
    assert failure_of(cast("ApplicationStatusOverview", application)) == cause_in(RAISED)
    application.deployments = {}
    assert failure_of(cast("ApplicationStatusOverview", application)) == application.message
