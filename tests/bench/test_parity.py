"""The comparison of a device with the CPU, on the CPU: of what is the same, and of what is not."""

from __future__ import annotations

import pytest

from core.model.invariance import Found
from tests.bench import parity


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parity, "SHAPES", {"draft": parity.SHAPES["draft"]})
    monkeypatch.setattr(parity, "STEPS", 6)
    monkeypatch.setattr(parity, "DRAWS", 3)


def test_the_cpu_agrees_with_itself() -> None:
    single, half = parity.measure("cpu")
    assert (single.dtype, single.apart, single.bits, single.drawn) == ("float32", 0.0, Found(0, 160), 3)
    assert half.dtype == "bfloat16"
    assert 0.0 < half.apart < half.spread
    assert "0 of 160 | 3 of 3 |" in parity.table([single])


def test_what_differs_fails() -> None:
    found = parity.measure("cpu")
    parity.check(found)
    others = [{"apart": 0.1}, {"bits": Found(1, 160)}, {"drawn": parity.DRAWS - 1}]
    for other in others:
        with pytest.raises(SystemExit, match="draft, float32"):
            parity.check([found[0]._replace(**other)])


def test_other_logits_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    walk, calls = parity._walk, iter((0.5, 0.0) * 2)
    monkeypatch.setattr(
        parity, "_walk", lambda model: [logits + more for more in [next(calls)] for logits in walk(model)]
    )
    assert parity.measure("cpu")[0].apart == pytest.approx(0.5)
