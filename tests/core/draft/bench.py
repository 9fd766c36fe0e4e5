"""A draft engine over a toy model on a fake clock, and what it proposes."""

from __future__ import annotations

from typing import Any

from core.draft.engine import DraftConfig, DraftEngine
from core.wire.messages import Propose
from tests.core.toy import VOCAB_SIZE, Clock, ToyModel


def draft(context: int = 4096, **limits: Any) -> tuple[DraftEngine, ToyModel, Clock]:
    clock, model = Clock(), ToyModel(context=context)
    return DraftEngine(model, VOCAB_SIZE, DraftConfig(**limits), clock), model, clock


def drafted(engine: DraftEngine, passes: int = 8) -> list[Propose]:
    for _ in range(passes):
        engine.step()
    return [message for _, message in engine.outgoing()]
