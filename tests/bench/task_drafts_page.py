"""What the study of task drafts shows: tables in Markdown, and one plot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from core.confidence_intervals import Estimate
from tests.bench.output import header
from tests.bench.task_drafts_speed import Arm, Outcome, ratio
from train_jobs.report.drawing import COLOURS, INK, RULE, WIDE, drawn

GUESSED = (0.0, 0.1, 0.3)  # shares of answers that a router gives the wrong task's draft
_MARKS = "osD^v"


def page(outcomes: Sequence[Outcome]) -> str:
    parts = (_drafts(outcomes), _any_shape(outcomes), _routing(outcomes), _general(outcomes))
    return "\n\n".join("\n".join(lines) for part in parts if (lines := list(part))) + "\n"


def plot(outcomes: Sequence[Outcome], file: Path) -> None:
    """The gain of task drafts by number of tasks, and by what a drafted token costs."""

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2, sharey=True)
        shapes = list(dict.fromkeys(outcome.shape for outcome in outcomes))
        numbers = sorted({outcome.tasks for outcome in outcomes})
        colours = list(COLOURS.values())
        for place, shape in enumerate(shapes):
            of = [outcome for outcome in outcomes if outcome.shape == shape]
            _line(left, [outcome.tasks for outcome in of], of, colours[place], _MARKS[place], str(shape))
        for place, number in enumerate(numbers):
            of = sorted((outcome for outcome in outcomes if outcome.tasks == number), key=lambda outcome: outcome.token)
            _line(right, [outcome.token for outcome in of], of, colours[place], _MARKS[place], f"{number} tasks")
        left.set_xticks(numbers)
        left.set_xlabel("number of tasks")
        right.set_xlabel("cost of a drafted token, in target passes")
        left.set_title("speed of task drafts, times the best single draft's")
        for axes in (left, right):
            axes.axhline(1.0, color=RULE, linewidth=1.2, zorder=0)
            axes.axhline(1.05, color=RULE, linewidth=0.8, linestyle="--", zorder=0)
            axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.1), ncols=2, borderaxespad=0.0, labelcolor=INK)

    file.write_bytes(drawn(1.6 * WIDE, 3.6, draw))


def _line(axes: Axes, at: Sequence[float], of: Sequence[Outcome], colour: str, mark: str, label: str) -> None:
    gains = [outcome.over_single(outcome.arms[outcome.best_task]) for outcome in of]
    below, above = [gain.value - gain.low for gain in gains], [gain.high - gain.value for gain in gains]
    values = [gain.value for gain in gains]
    axes.errorbar(at, values, [below, above], color=colour, marker=mark, markersize=4, capsize=2, label=label)


def _drafts(outcomes: Sequence[Outcome]) -> Iterator[str]:
    figures = ("acceptance", "tokens a pass", "speed (95 %)", "over the best single", "at T = 0", "at T > 0")
    yield from header(["tasks", "shape", "a token costs", "draft", "ids", *figures])
    for outcome in outcomes:
        for name, arm in outcome.arms.items():
            marked = f"**{name}**" if name in (outcome.best_single, outcome.best_task) else name
            cells = [
                f"{arm.accepted.sum() / arm.proposed.sum():.3f}" if arm.proposed.sum() else "",
                f"{arm.tokens.sum() / arm.passes.sum():.2f}",
                *map(with_interval, (ratio(arm.tokens, arm.times), outcome.over_single(arm))),
                *(with_interval(outcome.over_single(arm, kind)) for kind in (1 - outcome.sampled, outcome.sampled)),
            ]
            yield _row(outcome, f"{outcome.token:.3f} | {marked} | {arm.ids:.0f}", *cells)


def _any_shape(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """What a service would choose between: the quickest single draft of all shapes, and the quickest task drafts."""
    yield from header(["tasks", "quickest single draft", "quickest task drafts", "these over the single one"])
    for tasks in sorted({outcome.tasks for outcome in outcomes}):
        of = [outcome for outcome in outcomes if outcome.tasks == tasks]
        single = min(of, key=lambda outcome: outcome.arms[outcome.best_single].times.sum())
        task = min(of, key=lambda outcome: outcome.arms[outcome.best_task].times.sum())
        gain = ratio(single.arms[single.best_single].times, task.arms[task.best_task].times)
        drafts = (f"{single.best_single}, {single.shape}", f"{task.best_task}, {task.shape}")
        yield f"| {tasks} | {' | '.join(drafts)} | {with_interval(gain)} |"


def _routing(outcomes: Sequence[Outcome]) -> Iterator[str]:
    shares = (f"{share:.0%} wrong" for share in GUESSED)
    yield from header(["tasks", "shape", "best task draft", *shares, "break-even", "by seed"])
    for outcome in outcomes:
        right, wrong = outcome.arms[outcome.best_task], outcome.wrong[outcome.best_task]
        gains = [with_interval(outcome.over_single(right.wrong_in(share, wrong))) for share in GUESSED]
        seeds = ", ".join(f"{gain:.3f}" for gain in outcome.by_seed)
        yield _row(outcome, outcome.best_task, *gains, f"{outcome.break_even:.0%} wrong", seeds)


def _general(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Prompts of no task: what each draft brings there, a task's taken at random."""
    names = list(outcomes[0].general)
    if names:
        yield from header(["tasks", "shape", *(f"general traffic: {name}" for name in names)])
        for outcome in outcomes:
            yield _row(outcome, *(with_interval(_speed(outcome.general[name])) for name in names))


def _row(outcome: Outcome, *cells: str) -> str:
    return f"| {outcome.tasks} | {outcome.shape} | {' | '.join(cells)} |"


def _speed(arm: Arm) -> Estimate:
    return ratio(arm.tokens, arm.times)


def with_interval(figure: Estimate) -> str:
    return f"{figure.value:.3f} ({figure.low:.3f} to {figure.high:.3f})"


def as_json(outcomes: Sequence[Outcome]) -> list[dict[str, object]]:
    return [
        {
            "tasks": outcome.tasks,
            "shape": str(outcome.shape),
            "seeds": outcome.seeds,
            "token": outcome.token,
            "best_single": outcome.best_single,
            "best_task": outcome.best_task,
            "break_even": outcome.break_even,
            "gain_by_seed": outcome.by_seed,
            "speed": {name: _speed(arm)._asdict() for name, arm in outcome.arms.items()},
            "over_best_single": {name: outcome.over_single(arm)._asdict() for name, arm in outcome.arms.items()},
            "wrong": {name: outcome.over_single(arm)._asdict() for name, arm in outcome.wrong.items()},
            "general": {name: _speed(arm)._asdict() for name, arm in outcome.general.items()},
        }
        for outcome in outcomes
    ]
