"""The models of a retraining, loaded to run: its target and drafts."""

from __future__ import annotations

from pathlib import Path

import torch

from core import target as targets
from core.model.base import Model
from core.model.causal_lm import load_draft_model
from core.model.draft_vocabulary import DraftVocabulary
from train_jobs.config import RetrainConfig
from train_jobs.work.models import model_directory


def load_target(config: RetrainConfig, sessions: int = 1) -> Model:
    return targets.load_target(config.target, sessions)


def load_draft(
    config: RetrainConfig, directory: Path | None, vocabulary: DraftVocabulary | None = None, *, served: bool = False
) -> Model:
    """An adapter or a whole model, None for the draft without adapter; its head has the rows of `vocabulary`.

    It computes in float32, or, if `served`, as in the pools of a service.
    """
    return load_draft_model(
        directory,
        model_directory(config.draft),
        dtype=torch.bfloat16 if served else torch.float32,
        device=config.align.device,
        exact=not served,
        vocabulary=vocabulary,
        target=model_directory(config.target.model),
    )
