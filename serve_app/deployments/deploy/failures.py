"""What Serve says of a part that does not run, in a line: it says it with the tracebacks of several processes."""

from __future__ import annotations

import re
from itertools import takewhile

from ray.serve.schema import ApplicationStatusOverview

_EXCEPTION = re.compile(r"^(?:[\w.]+\.)?([A-Za-z_]\w*: .+)")  # the line that ends a traceback
_FRAME = '  File "'
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
FAILED = "DEPLOY_FAILED"  # the status of a deployment
LONGEST = 400  # characters


def failure_of(application: ApplicationStatusOverview) -> str:
    """Why an application failed, which Serve tells of its deployments only."""
    deployments = application.deployments.values()
    failed = (deployment.message for deployment in deployments if deployment.status == FAILED)
    return "; ".join(map(cause_in, failed)) or cause_in(application.message)


def cause_in(message: str) -> str:
    """The exception behind the last traceback in `message`, its lines as one; without a traceback the first line."""
    lines = [line.rstrip() for line in _COLOUR.sub("", message).splitlines() if line.strip()]
    frames = [number for number, line in enumerate(lines) if line.startswith(_FRAME)]
    behind = lines[frames[-1] + 1 :] if frames else []
    raised = next((number for number, line in enumerate(behind) if _EXCEPTION.match(line)), None)
    if raised is None:
        return (lines[0].strip() if lines else "")[:LONGEST]
    first = _EXCEPTION.sub(r"\1", behind[raised])
    return " ".join([first, *takewhile(_goes_on, behind[raised + 1 :])])[:LONGEST]


def _goes_on(line: str) -> bool:
    """Whether the line belongs to the text of an exception, and begins no other traceback."""
    return not line.startswith((" ", "Traceback ", "The above exception", "During handling"))
