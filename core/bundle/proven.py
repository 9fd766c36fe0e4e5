"""Which bundles of a directory need no trial any more, since they gave a service every prompt before.

Each is an empty file `root/proven/<version>`. None is ever changed, so nobody has to wait for the lock of the store.
"""

from __future__ import annotations

from pathlib import Path

_PROVEN = "proven"


def prove(root: Path, version: str) -> None:
    """Remember that a service has every prompt served with this bundle, and holds it to nothing. Raises `OSError`."""
    (root / _PROVEN).mkdir(exist_ok=True)
    (root / _PROVEN / version).touch()


def is_proven(root: Path, version: str) -> bool:
    """Whether any service has told so."""
    return (root / _PROVEN / version).exists()
