"""The verifier with passes so long that drafts pay, whatever else the machine does: what is tested is speculation."""

from __future__ import annotations

from core.model.causal_lm import CausalLM
from serve_app.config import Target
from serve_app.target_verifier import TargetVerifier
from tests.core.unhurried import unhurried


class UnhurriedVerifier(TargetVerifier):
    """The real deployment, engine, wire and target."""

    def _model(self, target: Target) -> CausalLM:
        return unhurried(super()._model(target))
