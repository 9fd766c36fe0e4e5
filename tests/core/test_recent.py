"""The least recently asked for give way."""

from __future__ import annotations

from core.recent import Recent


def test_the_same_value_as_long_as_it_is_asked_for() -> None:
    recent: Recent[str, list[int]] = Recent(list, most=2)
    recent.of("kept").append(1)
    recent.of("old").append(2)
    recent.of("kept").append(3)
    recent.of("new")
    assert recent.of("kept") == [1, 3]
    assert recent.of("old") == []
