"""The verifier with passes so long that drafts pay, whatever else the machine does: what is tested is speculation."""

from __future__ import annotations

from core.model.causal_lm import CausalLM
from serve_app.config import ServiceConfig, Target
from serve_app.deployments import target_verifier
from serve_app.deployments.loading import load_target
from tests.core.unhurried import unhurried


class TargetVerifier(target_verifier.TargetVerifier):
    """The real deployment, under its own name, with its engine, wire and target."""

    def __init__(self, config: ServiceConfig) -> None:
        target_verifier.load_target = unhurried_target
        super().__init__(config)


def unhurried_target(target: Target) -> CausalLM:
    return unhurried(load_target(target))
