"""Targets of a given size that answer as the shipped one does: its function-preserving expansions, made once.

Labelled as what they are: the size is real and so is the cost of a pass, the answers are those of 5 million parameters.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from core.family import DRAFT_DIR, TARGET_DIR
from core.family.expansion import Geometry, expand

GEOMETRIES = {
    "tiny": Geometry(hidden=256, layers=7, heads=4, kv_heads=2, head_dim=64, ffn=704),
    "100m": Geometry(hidden=768, layers=12, heads=12, kv_heads=12, head_dim=64, ffn=2560),
    "300m": Geometry(hidden=1024, layers=24, heads=16, kv_heads=16, head_dim=64, ffn=2816),
    "1b": Geometry(hidden=2048, layers=20, heads=32, kv_heads=8, head_dim=64, ffn=5632),
}
"""Parameters: 6, 101, 308 and 902 million."""


def target(size: str, cache: Path) -> Path:
    """The directory of the expansion, in bf16; made where `cache` does not hold it."""
    directory = cache / f"target-{size}"
    if not (directory / "config.json").exists():
        expand(TARGET_DIR, directory, GEOMETRIES[size])
    return directory


def useless_draft(cache: Path) -> Path:
    """The shipped draft with random weights."""
    directory = cache / "useless-draft"
    if not (directory / "config.json").exists():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(DRAFT_DIR))
        for name in ("tokenizer.json", "tokenizer_config.json"):
            directory.mkdir(parents=True, exist_ok=True)
            shutil.copy(DRAFT_DIR / name, directory / name)
        model.save_pretrained(directory)
    return directory
