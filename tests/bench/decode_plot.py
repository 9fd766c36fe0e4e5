"""The decode table as a picture: times plain over all tokens, by contender, a panel per place and temperature."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from matplotlib.figure import Figure

from tests.bench.bars import NEUTRAL, bars
from tests.bench.paired import Durations

BASELINE = "plain"


class Measured(Protocol):
    name: str
    temperature: float
    durations: Durations


def plot(places: Sequence[Measured], file: Path) -> None:
    """Write a PNG."""
    figure = Figure(figsize=(4.2 * len(places), 2.6), layout="constrained", dpi=150)
    panels = figure.subplots(1, len(places), sharey=True, squeeze=False)[0]
    for panel, place in zip(panels, places, strict=True):
        contenders = place.durations.contenders
        bars(panel, {contender: place.durations.overall(contender, BASELINE) for contender in contenders})
        panel.axvline(1.0, color=NEUTRAL, linewidth=0.6)
        panel.set_title(f"{place.name}, temperature {place.temperature:g}", fontsize=9)
        panel.set_xlabel("times plain decoding", fontsize=8)
    figure.savefig(file, metadata={"Software": None})
