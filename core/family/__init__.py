"""The shipped family as package data: a tiny target, its draft, a bundle for the pair, and held-out prompts.

Everything runs with it and without a download. Target and draft are ordinary Hugging Face directories; they and the
prompts are rebuilt from seeds by `python -m tests.family.build`. The bundle is what a retraining published for
them. A configuration names them `family:target`, `family:draft` and `family:bundle` (`core.model_names`).
"""

from __future__ import annotations

from pathlib import Path

from core.text.prompt_files import read_prompts
from core.text.prompts import Prompt

__all__ = ["BUNDLE_DIR", "DRAFT_DIR", "PROMPTS_FILE", "TARGET_DIR", "held_out_prompts"]

_MODELS = Path(__file__).parent / "models"
TARGET_DIR = _MODELS / "target"
DRAFT_DIR = _MODELS / "draft"
BUNDLE_DIR = _MODELS / "bundle"
PROMPTS_FILE = _MODELS / "prompts.jsonl"


def held_out_prompts() -> list[Prompt]:
    """Prompts that target and draft were not trained on, each with its task; the tasks take turns."""
    return read_prompts(PROMPTS_FILE)
