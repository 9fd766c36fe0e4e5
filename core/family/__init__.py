"""The family: a tiny target, its general draft and a bundle for them; shipped, so that all runs without a download.

Target and draft are ordinary Hugging Face directories that `python -m core.family.build` makes again from seeds; the
bundle is what training published for them.
"""

from __future__ import annotations

from pathlib import Path

from core.errors import ConfigError

__all__ = ["BUNDLE_DIR", "DRAFT_DIR", "TARGET_DIR", "locate"]

_MODELS = Path(__file__).parent / "models"
TARGET_DIR = _MODELS / "target"
DRAFT_DIR = _MODELS / "draft"
BUNDLE_DIR = _MODELS / "bundle"


def locate(name: str) -> str:
    """Where a model is: `family:target`, `family:draft` and `family:bundle` are the shipped ones, all else as it is."""
    shipped = {
        "family:target": TARGET_DIR,
        "family:draft": DRAFT_DIR,
        "family:bundle": BUNDLE_DIR,
    }
    if name.startswith("family:") and name not in shipped:
        raise ConfigError(f"the family has no {name!r}; write one of {sorted(shipped)}")
    return str(shipped.get(name, name))
