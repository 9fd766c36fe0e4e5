"""Experiments 1 and 3 as a picture: tokens per target pass by task, and by kind of prompt, for every way to choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.bench.items import BASE, GENERAL, MIXED
from tests.bench.policies import BEST, OWN_TEXT, POLICIES, REROUTED, ROUTED, TOGETHER, whole
from tests.bench.replays import Trial

_COLOURS = {
    GENERAL: "#767676",
    BASE: "#a3386f",
    MIXED: "#b9770e",
    ROUTED: "#7fb2e5",
    REROUTED: "#1f5fa8",
    OWN_TEXT: "#c3ccd6",
    TOGETHER: "#12806a",
    BEST: "#222222",
}


def plot(tasks: Mapping[str, Sequence[Trial]], kinds: Mapping[str, Sequence[Trial]], file: Path) -> None:
    """Write a PNG."""
    figure = Figure(figsize=(11, 3.2), layout="constrained", dpi=150)
    by_task, by_kind = figure.subplots(1, 2, sharey=True)
    _bars(by_task, tasks, "experiment 1: prompts as generated")
    _bars(by_kind, kinds, "experiment 3: router stress")
    by_task.set_ylabel("tokens per target pass", fontsize=8)
    figure.legend(*by_kind.get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=8)
    figure.savefig(file)


def _bars(panel: Axes, groups: Mapping[str, Sequence[Trial]], title: str) -> None:
    width = 0.8 / len(POLICIES)
    for place, policy in enumerate(POLICIES):
        heights = [whole(policy, trials).tokens_per_pass for trials in groups.values()]
        lefts = [group + (place - (len(POLICIES) - 1) / 2) * width for group in range(len(groups))]
        panel.bar(lefts, heights, width, color=_COLOURS[policy], label=policy)
    panel.axhline(1.0, color="#767676", linewidth=0.6)
    panel.set_xticks(range(len(groups)), list(groups))
    panel.set_title(title, fontsize=9)
    panel.tick_params(labelsize=8)
    panel.spines[["top", "right"]].set_visible(False)
