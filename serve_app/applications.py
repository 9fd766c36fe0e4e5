"""What `serve run` and `serve.run` take: a service, or one draft pool of it."""

from __future__ import annotations

from ray.serve import Application

from serve_app.config import load_config
from serve_app.deployments.deploy.applications import core_application
from serve_app.deployments.deploy.bundle_applications import draft_application
from serve_app.deployments.models.served_models import with_bundle


def service(args: dict[str, str]) -> Application:
    """`serve run serve_app.applications:service config=family`; the pools are deployed separately."""
    return core_application(with_bundle(load_config(args["config"])))


def pool(args: dict[str, str]) -> Application:
    """The pool of one task: `serve.run(pool({"config": "family", "task": "math"}), name=NAME, route_prefix=None)`.

    The name must be that of the pool's application in `taskspec status`, by which the ingress finds it. `serve run`
    always opens an HTTP path, which no pool is to have.
    """
    return draft_application(with_bundle(load_config(args["config"])), args["task"])
