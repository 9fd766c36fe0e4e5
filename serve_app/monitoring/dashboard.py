"""The dashboard as JSON for Grafana, made with Grafana's own builders, which also lay the panels out.

python -m serve_app.monitoring.dashboard     # writes dashboard.json beside this file
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path

from grafana_foundation_sdk.builders import common as option
from grafana_foundation_sdk.builders import dashboard as grafana
from grafana_foundation_sdk.builders import prometheus, stat, statetimeline, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMappingResult,
    VariableOption,
    VariableRefresh,
)

from serve_app.monitoring.panels import ROWS, SERVICE, Kind, Panel

FILE = Path(__file__).with_name("dashboard.json")
SOURCE = DataSourceRef("prometheus", "${datasource}")
WIDTH = 24  # of Grafana's grid
HEIGHT, HEIGHT_OF_NUMBER = 8, 4

GrafanaPanel = timeseries.Panel | stat.Panel | statetimeline.Panel


def render() -> str:
    """What Grafana imports."""
    dashboard = (
        grafana.Dashboard("TaskSpec")
        .uid("taskspec")
        .description("A service with speculative decoding, a draft for each task: its answers, drafts and machines.")
        .tags(["taskspec", "ray"])
        .time("now-3h", "now")
        .refresh("30s")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(grafana.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .with_variable(_choice("job", "ray_taskspec_ingress_verifiers"))
        .with_variable(_choice("task", f"ray_taskspec_answer_tokens_total{{{SERVICE}}}"))
        .with_variable(_choice("version", f"ray_taskspec_answer_tokens_total{{{SERVICE}}}"))
    )
    numbers = count(1)
    for title, panels in ROWS.items():
        dashboard.with_row(grafana.Row(title).id(next(numbers)))
        for panel in panels:
            dashboard.with_panel(_panel(panel).id(next(numbers)))
    return json.dumps(dashboard.build(), cls=JSONEncoder, indent=1) + "\n"


def _choice(label: str, series: str) -> grafana.QueryVariable:
    """Any number of the values that a label has; all of them at first."""
    every = VariableOption(selected=True, text=["All"], value=["$__all"])
    return (
        grafana.QueryVariable(label)
        .query(f"label_values({series}, {label})")
        .datasource(SOURCE)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(every)
    )


def _panel(panel: Panel) -> GrafanaPanel:
    shown = _KINDS[panel.kind](panel)
    shown.title(panel.title).description(panel.description).datasource(SOURCE).unit(panel.unit)
    for letter, query in zip("ABCDEF", panel.queries, strict=False):
        shown.with_target(
            prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(letter).datasource(SOURCE)
        )
    return shown


def _lines(panel: Panel) -> timeseries.Panel:
    lines = (
        timeseries.Panel()
        .height(HEIGHT)
        .span(WIDTH // 3)
        .min(0)
        .fill_opacity(8)
        .legend(option.VizLegendOptions().show_legend(True).placement(common.LegendPlacement.BOTTOM))
        .tooltip(option.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING))
    )
    if panel.limit is not None:
        style = option.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED)
        lines.thresholds_style(style).thresholds(_thresholds("transparent", panel.limit, "red"))
    return lines


def _stacked(panel: Panel) -> timeseries.Panel:
    return _lines(panel).fill_opacity(40).stacking(option.StackingConfig().mode(common.StackingMode.NORMAL))


def _number(panel: Panel) -> stat.Panel:
    number = (
        stat.Panel()
        .height(HEIGHT_OF_NUMBER)
        .span(WIDTH // 6)
        .reduce_options(option.ReduceDataOptions().calcs(["lastNotNull"]))
        .graph_mode(common.BigValueGraphMode.AREA)
        .text_mode(common.BigValueTextMode.VALUE)
    )
    if panel.limit is None:
        return number.color_mode(common.BigValueColorMode.NONE)
    return number.thresholds(_thresholds("red", panel.limit, "green"))


def _states(_: Panel) -> statetimeline.Panel:
    """A series is there while its state holds."""
    return (
        statetimeline.Panel()
        .height(HEIGHT)
        .span(WIDTH // 3)
        .merge_values(True)
        .mappings([ValueMap({"1": ValueMappingResult(text=" ", color="blue")})])
    )


def _thresholds(below: str, limit: float, above: str) -> grafana.ThresholdsConfig:
    steps = [Threshold(value=None, color=below), Threshold(value=limit, color=above)]
    return grafana.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)


_KINDS: dict[Kind, Callable[[Panel], GrafanaPanel]] = {
    "lines": _lines,
    "stacked": _stacked,
    "number": _number,
    "states": _states,
}


if __name__ == "__main__":
    FILE.write_text(render())
