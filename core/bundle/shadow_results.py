"""What a bundle would have had accepted on recorded answers, as `taskspec bundles shadow` found it last.

Each is a file `root/shadows/<version>.json`, replaced as a whole. So nobody has to wait for the lock of the store.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

import msgspec

from core.atomic_files import replace

_SHADOWS = "shadows"


def keep_shadow(root: Path, version: str, result: Mapping[str, Any]) -> None:
    """Keep a result, JSON values only, in place of the one before. Raises `OSError`."""
    (root / _SHADOWS).mkdir(exist_ok=True)
    replace(_file(root, version), msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")


def shadow_of(root: Path, version: str) -> dict[str, Any] | None:
    """The last result of a version; None if there is none that can be read."""
    try:
        return msgspec.json.decode(_file(root, version).read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError):
        return None


def drop_shadows(root: Path, remaining: Set[str]) -> None:
    """Drop the results of all versions but these."""
    for file in (root / _SHADOWS).glob("*.json"):
        if file.stem not in remaining:
            file.unlink()


def _file(root: Path, version: str) -> Path:
    return root / _SHADOWS / f"{version}.json"
