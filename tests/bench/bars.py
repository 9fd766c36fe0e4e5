"""Ratios as horizontal bars, each with its 95 % interval, the first at the top."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes

from tests.bench.paired import Ratio

OURS, THEIRS, NEUTRAL = "#1f5fa8", "#b9770e", "#767676"  # the last of what others are held against


def bars(panel: Axes, ratios: Mapping[str, Ratio]) -> None:
    """Those whose names begin with transformers are coloured as theirs."""
    names, values = list(ratios), [ratio.value for ratio in ratios.values()]
    below = [ratio.value - ratio.low for ratio in ratios.values()]
    above = [ratio.high - ratio.value for ratio in ratios.values()]
    panel.barh(names, values, color=[THEIRS if name.startswith("transformers") else OURS for name in names], height=0.6)
    panel.errorbar(values, names, xerr=[below, above], fmt="none", ecolor="#222222", elinewidth=0.8, capsize=2)
    panel.yaxis.set_inverted(True)
    panel.tick_params(labelsize=8)
    panel.spines[["top", "right"]].set_visible(False)
