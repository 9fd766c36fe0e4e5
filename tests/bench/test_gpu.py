"""The script for GPUs, whole, on the CPU at tiny geometry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bench import decode, gpu, parity, step


@pytest.mark.thorough
def test_the_script_for_gpus_measures_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = ["--turns", "1", "--prompts", "1", "--warm", "1", "--max-tokens", "6"]
    monkeypatch.setattr(parity, "SHAPES", {"draft": parity.SHAPES["draft"]})
    gpu.main(["--device", "cpu", "--target", "tiny", *few, "--cache", str(tmp_path), "--out", str(tmp_path)])
    passes, decoding = _left(tmp_path, "passes"), _left(tmp_path, "decoding")
    for of, shapes in (("target", gpu.SHAPES), ("draft", [step.Shape(1, 1)])):
        measured = passes[of]
        assert [step.Shape(one["sessions"], one["tokens"]) for one in measured["by_shape"]] == shapes
        for durations in measured["by_shape"]:
            assert durations.keys() == {*step.Shape._fields, step.OURS, step.THEIRS, step.FLOOR, "ratio", "over_floor"}
            assert durations["over_floor"] == pytest.approx(durations[step.OURS][0] / durations[step.FLOOR][0])
        assert min(_numbers(measured)) > 0
    assert min(passes["draft_in_a_loop"]) > 0
    assert [one["drawn"] for one in json.loads((tmp_path / "parity.json").read_text())["models"]] == [parity.DRAWS] * 2
    numerics = _left(tmp_path, "numerics")
    assert numerics["differing"] == {name: {"differing": 0, "positions": 160} for name in ("exact", "fast")}
    assert list(numerics["by_tokens"]) == [str(size) for size in gpu.TOKENS]
    assert min(_numbers(numerics["by_tokens"])) > 0
    assert passes["draft"]["weight_bytes"] > passes["target"]["weight_bytes"]
    assert [place["temperature"] for place in decoding["places"]] == [0.0, 1.0]
    for place in decoding["places"]:
        assert place["contenders"].keys() == {*decode.OURS, decode.GENERATE, decode.ASSISTED}
        assert place["differing"] == []
        assert min(_numbers(place["contenders"])) > 0


def _left(out: Path, name: str) -> dict[str, Any]:
    """The figures, which the text beside them is about."""
    found: dict[str, Any] = json.loads((out / f"{name}.json").read_text())
    assert found["facts"]["device_name"] == found["facts"]["device"] == "cpu"
    text = (out / f"{name}.md").read_text()
    assert "tiny target in bf16 on cpu" in text
    told = {
        "passes": "Draft's token",
        "numerics": "exact: 0 of 160, fast: 0 of 160",
        "decoding": "Ours answered 2 of 2 prompts alike.",
    }
    assert told[name] in text
    return found


def _numbers(found: object) -> Iterator[float]:
    if isinstance(found, float | int):
        yield found
    elif isinstance(found, dict | list):
        for value in found.values() if isinstance(found, dict) else found:
            yield from _numbers(value)
