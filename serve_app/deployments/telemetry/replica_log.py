"""The log that Serve keeps of each replica, and its format.

Without this, what our own code says, and why spans cannot be sent, stands in no file that is read. A replica that tells
of its last faults keeps these lines, too.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

from ray import serve
from ray.serve.exceptions import RayServeException

from serve_app.config import LogFormat
from serve_app.deployments.telemetry.reports import Fault

PACKAGES = ("core", "serve_app", "opentelemetry")
SERVE = "ray.serve"  # Serve's own logger
QUIET = {"enable_access_log": False}  # Serve's own has a line per request and call, and is written on their path
MOST_FAULTS = 50


class RecentFaults(logging.Handler):
    """Keeps the last warnings and errors of our packages; their lines hold no secrets and no texts of clients."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._last: deque[Fault] = deque(maxlen=MOST_FAULTS)
        for package in PACKAGES:
            logging.getLogger(package).addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self._last.append(Fault(record.created, record.getMessage()))

    @property
    def last(self) -> tuple[Fault, ...]:
        """The oldest first."""
        return tuple(self._last)


def log_settings(log_format: LogFormat) -> dict[str, Any]:
    """Serve's `logging_config` for replicas and proxies."""
    return {**QUIET, "encoding": "JSON"} if log_format == "json" else QUIET


def log_into_replica() -> None:
    """In a replica, what loggers of these packages say goes into its log from now on; elsewhere nothing changes."""
    try:
        serve.get_replica_context()
    except RayServeException:
        return
    for package in PACKAGES:
        logging.getLogger(package).parent = logging.getLogger(SERVE)
