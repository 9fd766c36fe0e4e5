"""The shipped family as package data: a tiny target, its draft, a bundle for the pair, and held-out prompts.

Everything runs with it and without a download. Target and draft are ordinary Hugging Face directories; they and the
prompts are rebuilt from seeds by `python -m train_jobs.family.build`. The bundle is what a retraining published for
them. `locate` gives the directory behind a name like `family:target`.
"""

from __future__ import annotations

from pathlib import Path

from core.errors import ConfigError
from core.text.prompts import Prompt, read_prompts

__all__ = ["BUNDLE_DIR", "DRAFT_DIR", "PROMPTS_FILE", "TARGET_DIR", "held_out_prompts", "locate"]

_MODELS = Path(__file__).parent / "models"
TARGET_DIR = _MODELS / "target"
DRAFT_DIR = _MODELS / "draft"
BUNDLE_DIR = _MODELS / "bundle"
PROMPTS_FILE = _MODELS / "prompts.jsonl"


def locate(name: str) -> str:
    """The directory of `family:target`, `family:draft` or `family:bundle`; any other name is returned unchanged."""
    shipped = {
        "family:target": TARGET_DIR,
        "family:draft": DRAFT_DIR,
        "family:bundle": BUNDLE_DIR,
    }
    if name.startswith("family:") and name not in shipped:
        raise ConfigError(f"the family has no {name!r}; write one of {sorted(shipped)}")
    return str(shipped.get(name, name))


def held_out_prompts() -> list[Prompt]:
    """Prompts that target and draft were not trained on, each with its task; the tasks take turns."""
    return read_prompts(PROMPTS_FILE)
