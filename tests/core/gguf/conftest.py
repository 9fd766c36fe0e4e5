"""Every test has a cache of its own, empty at first."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that holds the conversions."""
    monkeypatch.setenv("TASKSPEC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "gguf"
