"""The log that Serve keeps of each replica: without this, what our own code says stands in no file that is read."""

from __future__ import annotations

import logging

from ray import serve
from ray.serve.exceptions import RayServeException

PACKAGES = ("core", "serve_app")
SERVE = "ray.serve"  # Serve's own logger


def log_into_replica() -> None:
    """In a replica, what loggers of our packages say goes into its log from now on; elsewhere nothing changes."""
    try:
        serve.get_replica_context()
    except RayServeException:
        return
    for package in PACKAGES:
        logging.getLogger(package).parent = logging.getLogger(SERVE)
