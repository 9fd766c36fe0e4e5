"""The family: a tiny target, its general draft and a router, shipped so that everything runs without a download.

These are ordinary Hugging Face directories; `python -m core.family.build` makes target and draft again from seeds.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["DRAFT_DIR", "ROUTER_DIR", "TARGET_DIR"]

_MODELS = Path(__file__).parent / "models"
TARGET_DIR = _MODELS / "target"
DRAFT_DIR = _MODELS / "draft"
ROUTER_DIR = _MODELS / "router"
