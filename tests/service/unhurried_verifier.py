"""The verifier with passes so long that drafts pay, whatever else the machine does: what is tested is speculation."""

from __future__ import annotations

import os
import time
from pathlib import Path

from core.model.causal_lm import CausalLM
from serve_app.config import ServiceConfig, Target
from serve_app.deployments.actors import target_verifier
from serve_app.deployments.models.target_loading import load_target
from tests.core.unhurried import unhurried

GATE = "TASKSPEC_TEST_GATE"  # an environment variable: while the file that it names exists, no verifier starts


class TargetVerifier(target_verifier.TargetVerifier):
    """The real deployment, under its own name, with its engine, wire and target."""

    def __init__(self, config: ServiceConfig) -> None:
        gate = Path(os.environ[GATE])
        while gate.exists():
            time.sleep(0.05)
        vars(target_verifier)["load_target"] = unhurried_target
        super().__init__(config)


def unhurried_target(target: Target) -> CausalLM:
    return unhurried(load_target(target))
