"""Lets the general draft pool propose random ids, or be itself again: `hostile CONFIG on`, on a node of the cluster.

The pool is the real deployment with engine and wire; only its model knows nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

import ray
from ray import serve
from ray.serve import RunTarget

from core.draft_key import GENERAL
from serve_app.config import load_config
from serve_app.deployments.deploy import bundle_applications
from serve_app.deployments.deploy.bundle_applications import draft_application
from serve_app.deployments.models.served_models import with_bundle
from tests.service import adversarial


def main(config: str, switch: str) -> None:
    ray.init(address="auto", namespace="serve", log_to_driver=False)
    served = with_bundle(load_config(str(Path(config))))
    if switch == "on":
        vars(bundle_applications)["DraftPool"] = adversarial.DraftPool
    application = draft_application(served, GENERAL)
    serve.run_many([RunTarget(application, served.pool(GENERAL), None, external_scaler_enabled=True)])


if __name__ == "__main__":
    main(*sys.argv[1:])
