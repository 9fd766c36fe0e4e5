"""The models of a retraining, loaded to run: its target, drafts, and what a pass of the target costs here."""

from __future__ import annotations

import time
from pathlib import Path

import torch

from core.model.base import Model
from core.model.causal_lm import load_draft_model, load_model
from core.model.draft_vocabulary import DraftVocabulary
from core.policy.cost_model import PassCosts, profile
from train_jobs.config import RetrainConfig
from train_jobs.work.models import model_directory, pages


def load_target(config: RetrainConfig, sessions: int = 1) -> Model:
    target = config.target
    num_pages, dtype = pages(target.model) * sessions, getattr(torch, target.dtype)
    return load_model(model_directory(target.model), dtype=dtype, device=target.device, num_pages=num_pages)


def load_draft(
    config: RetrainConfig,
    directory: Path | None,
    vocabulary: DraftVocabulary | None = None,
    dtype: torch.dtype = torch.float32,
) -> Model:
    """An adapter or a whole model, None for the draft without adapter; its head has the rows of `vocabulary`."""
    return load_draft_model(
        directory,
        model_directory(config.draft),
        dtype=dtype,
        device=config.align.device,
        vocabulary=vocabulary,
        target=model_directory(config.target.model),
    )


def target_costs(config: RetrainConfig) -> PassCosts:
    """Measured here and now."""
    costs = PassCosts()
    profile(load_target(config), time.perf_counter, costs)
    return costs
