"""The log that Serve keeps of each replica, and its format.

Without this, what our own code says, and why spans cannot be sent, stands in no file that is read.
"""

from __future__ import annotations

import logging
from typing import Any

from ray import serve
from ray.serve.exceptions import RayServeException

from serve_app.config import LogFormat

PACKAGES = ("core", "serve_app", "opentelemetry")
SERVE = "ray.serve"  # Serve's own logger
QUIET = {"enable_access_log": False}  # Serve's own has a line per request and call, and is written on their path


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
