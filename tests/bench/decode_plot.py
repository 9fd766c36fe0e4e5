"""The decode table as a picture: times plain over all tokens, by contender, a panel per place and temperature."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from matplotlib.figure import Figure

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
        contenders = place.durations.contenders[::-1]
        ratios = [place.durations.overall(contender, BASELINE) for contender in contenders]
        values = [ratio.value for ratio in ratios]
        spread = [[r.value - r.low for r in ratios], [r.high - r.value for r in ratios]]
        colours = ["#b9770e" if name.startswith("transformers") else "#1f5fa8" for name in contenders]
        panel.barh(contenders, values, color=colours, height=0.6)
        panel.errorbar(values, contenders, xerr=spread, fmt="none", ecolor="#222222", elinewidth=0.8, capsize=2)
        panel.axvline(1.0, color="#767676", linewidth=0.6)
        panel.set_title(f"{place.name}, temperature {place.temperature:g}", fontsize=9)
        panel.set_xlabel("times plain decoding", fontsize=8)
        panel.tick_params(labelsize=8)
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(file)
