"""Targets of a given size that answer as the shipped one does: its function-preserving expansions, made once.

Labelled as what they are: the size is real and so is the cost of a pass, the answers are those of 5 million parameters.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from core.family import DRAFT_DIR, TARGET_DIR
from tests.bench.expansion import Geometry, expand

GEOMETRIES = {
    "tiny": Geometry(hidden=256, layers=7, heads=4, kv_heads=2, head_dim=64, ffn=704),
    "100m": Geometry(hidden=768, layers=12, heads=12, kv_heads=12, head_dim=64, ffn=2560),
    "300m": Geometry(hidden=1024, layers=24, heads=16, kv_heads=16, head_dim=64, ffn=2816),
    "1b": Geometry(hidden=2048, layers=20, heads=32, kv_heads=8, head_dim=64, ffn=5632),
    "13b": Geometry(hidden=5120, layers=40, heads=40, kv_heads=40, head_dim=128, ffn=13824),  # LLaMA-2-13B's
}
"""Parameters: 6, 101, 308 and 902 million, 12.7 billion."""

DRAFT_68M = Geometry(hidden=768, layers=2, heads=12, kv_heads=12, head_dim=64, ffn=3072)  # LLaMA-68M's


def target(size: str, cache: Path) -> Path:
    """The directory of the expansion, in bf16; made where `cache` does not hold it."""
    return _expanded(TARGET_DIR, cache / f"target-{size}", GEOMETRIES[size])


def draft_68m(cache: Path) -> Path:
    """The shipped draft at LLaMA-68M's geometry."""
    return _expanded(DRAFT_DIR, cache / "draft-68m", DRAFT_68M)


def _expanded(source: Path, directory: Path, geometry: Geometry) -> Path:
    if not (directory / "config.json").exists():
        expand(source, directory, geometry)
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
