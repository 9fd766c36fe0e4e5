"""The bench of near-ties, at a tiny size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.audit import audit
from tests.bench import near_ties


def test_gaps_of_kernels_and_of_wrong_tokens_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = audit.NEAR_TIE
    monkeypatch.setattr(audit, "NEAR_TIE", limit)  # which the bench widens
    few = ["--prompts", "2", "--max-tokens", "12", "--out", str(tmp_path)]
    near_ties.main(["--target", "family:target", "--draft", "family:draft", *few])
    found = json.loads((tmp_path / "near_ties.json").read_text())["gaps"]
    assert [(one["name"], one["temperature"]) for one in found] == [
        *((name, temperature) for name in near_ties.OTHERS for temperature in (0.0, 1.0)),
        *(("wrong tokens of the draft", temperature) for temperature in (0.0, 1.0)),
    ]
    assert all(gap < limit for one in found[:4] for gap in one["gaps"])
    assert any(gap > limit for one in found[4:] for gap in one["gaps"])
