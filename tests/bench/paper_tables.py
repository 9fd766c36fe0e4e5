"""The tables of `tests.bench.paper`: a row per experiment or open point, the longer ones behind it, and all as JSON.

Enters: trials, and the folder of what other commands measured. Leaves: Markdown and JSON values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from core.confidence_intervals import Figure
from core.replay.replay import total
from tests.bench import elsewhere
from tests.bench.elsewhere import Row
from tests.bench.intervals import SIGNED, told
from tests.bench.items import BASE, GENERAL, GENERAL_SLOT, MIXED
from tests.bench.policies import (
    ABSTAINED,
    BEST,
    ELSEWHERE,
    OTHERS,
    POLICIES,
    REQUESTS,
    REROUTED,
    ROUTED,
    TOGETHER,
    best_by_chance,
    best_found,
    best_is,
    over,
    went,
    whole,
)
from tests.bench.replays import TEMPERATURES, Trial
from tests.bench.stress import GENERATED, KINDS
from tests.family.corpora import TASKS

FIGURES: dict[Figure, str] = {"acceptance_rate": "acceptance rate", "tokens_per_pass": "tokens per target pass"}
ALL = "all"
_GUESSED = (
    "tokens per target pass if the router guesses and answers are rerouted, those of the real router, moves an answer"
)


def by_kind(trials: Sequence[Trial]) -> dict[str, list[Trial]]:
    return {kind: [trial for trial in trials if trial.prompt.kind == kind] for kind in KINDS}


def by_task(trials: Sequence[Trial], *temperatures: float) -> dict[str, list[Trial]]:
    """The trials as generated at these temperatures, by task, and all of them last."""
    found = [trial for trial in by_kind(trials)[GENERATED] if trial.temperature in temperatures]
    return {task: [trial for trial in found if trial.prompt.task == task] for task in TASKS} | {ALL: found}


def rows(trials: Sequence[Trial], results: Path) -> list[Row]:
    """A row per experiment and open point."""
    command = "python -m tests.bench.paper"
    studied = elsewhere.studies(results)
    vanilla = "; ".join(_vanilla(temperature, by_task(trials, temperature)[ALL]) for temperature in TEMPERATURES)
    stress = "; ".join(f"{kind}: {_stress(of_kind)}" for kind, of_kind in by_kind(trials).items())
    asked = (
        "router stress: share routed to a best draft; tokens per target pass of best over rerouted, rerouted over base"
    )
    return [
        Row("experiment 1", "vanilla (general) against TaskSpec (routed), tokens per target pass", vanilla, command),
        elsewhere.speed(results),
        elsewhere.number_of_tasks(studied),
        Row("experiment 3", asked, stress, command),
        Row("experiment 3, random router", _GUESSED, _random_router(trials), command),
        elsewhere.mixed_batches(results),
        elsewhere.k_without_a_human(elsewhere.findings(results)),
        elsewhere.larger_targets(results),
        elsewhere.overfit(studied),
    ]


def _random_router(trials: Sequence[Trial]) -> str:
    cells = []
    for kind, found in by_kind(trials).items():
        guessed = total(trial.misrouted.counts for trial in found).tokens_per_pass
        moves = sum(len(trial.misrouted.slots) - 1 for trial in found) / len(found)
        cells.append(f"{kind}: {guessed:.2f}, {whole(REROUTED, found).tokens_per_pass:.2f}, {moves:.2f}")
    return "; ".join(cells)


def _vanilla(temperature: float, trials: Sequence[Trial]) -> str:
    general, routed = (whole(policy, trials).tokens_per_pass for policy in (GENERAL, ROUTED))
    gain = told(over(ROUTED, GENERAL, trials, "tokens_per_pass"), SIGNED)
    return f"temperature {temperature:g}: {general:.2f} to {routed:.2f}, {gain}"


def _stress(trials: Sequence[Trial]) -> str:
    regret, gain = (over(*pair, trials, "tokens_per_pass") for pair in ((BEST, REROUTED), (REROUTED, BASE)))
    return f"{best_found(trials).share:.2f}, {told(regret, SIGNED)}, {told(gain, SIGNED)}"


def summary(found: Sequence[Row]) -> Iterator[str]:
    """Markdown, as all tables here."""
    yield from ("| the paper's | here | found | by |", "|---|---|---|---|")
    for row in found:
        yield f"| {row.point} | {row.done} | {row.found} | `{row.command}` |"


def vanilla_table(trials: Sequence[Trial]) -> Iterator[str]:
    yield (
        "| temperature | task | prompts | acceptance rate: general / base / mixed / routed | routed over base (95 %) "
        "| tokens per target pass: general / base / mixed / routed | routed over base (95 %) |"
    )
    yield "|---|---|---|---|---|---|---|"
    for temperature in TEMPERATURES:
        for task, found in by_task(trials, temperature).items():
            cells = " | ".join(_gain(found, figure) for figure in FIGURES)
            yield f"| {temperature:g} | {task} | {len(found)} | {cells} |"


def _gain(trials: Sequence[Trial], figure: Figure) -> str:
    figures = _figures((GENERAL, BASE, MIXED, ROUTED), trials, figure)
    return f"{figures} | {told(over(ROUTED, BASE, trials, figure), SIGNED)}"


def routing_table(trials: Sequence[Trial]) -> Iterator[str]:
    """Where the prompts of every kind went, and how often that was best."""
    places = (REQUESTS, OTHERS, ABSTAINED, ELSEWHERE)
    yield (
        f"| prompts | routed {' / '.join(places)} | to a best draft (95 %) | by chance | general slot's is best (95 %) "
        "| mean tokens of an answer |"
    )
    yield "|---|---|---|---|---|---|"
    for kind, found in by_kind(trials).items():
        counts = went(found)
        shares = " / ".join(f"{counts[place] / len(found):.2f}" for place in places)
        tokens = whole(GENERAL, found).tokens / len(found) + 1  # counts leave out the prefill's
        yield (
            f"| {kind} | {shares} | {best_found(found)} | {best_by_chance(found):.2f} "
            f"| {best_is(GENERAL_SLOT, found)} | {tokens:.0f} |"
        )


def regret_table(trials: Sequence[Trial], figure: Figure) -> Iterator[str]:
    """What routing, rerouting and lookup are worth on every kind of prompt."""
    pairs = (
        (BEST, ROUTED),
        (ROUTED, GENERAL),
        (MIXED, BASE),
        (ROUTED, BASE),
        (REROUTED, BASE),
        (TOGETHER, REROUTED),
    )
    yield (
        f"| prompts | {FIGURES[figure]}: {' / '.join(POLICIES)} "
        f"| {' | '.join(f'{policy} over {baseline} (95 %)' for policy, baseline in pairs)} |"
    )
    yield "|---" * (2 + len(pairs)) + "|"
    for kind, found in by_kind(trials).items():
        cells = " | ".join(told(over(policy, baseline, found, figure), SIGNED) for policy, baseline in pairs)
        yield f"| {kind} | {_figures(list(POLICIES), found, figure)} | {cells} |"


def _figures(policies: Sequence[str], trials: Sequence[Trial], figure: Figure) -> str:
    return " / ".join(f"{getattr(whole(policy, trials), figure):.2f}" for policy in policies)


def page(found: Sequence[Row], trials: Sequence[Trial], results: Path, below: str) -> str:
    """All tables, the short one first."""
    studied = elsewhere.studies(results)
    parts = {
        "": summary(found),
        "Experiment 1, prompts as generated": vanilla_table(trials),
        "Experiment 2, from a retraining with studies": elsewhere.k_table(studied) if studied else (),
        "Experiment 3, where prompts went": routing_table(trials),
    } | {f"Experiment 3, {name}": regret_table(trials, figure) for figure, name in FIGURES.items()}
    written = {title: "\n".join(lines) for title, lines in parts.items()}
    tables = (f"{title}\n\n{lines}".strip() for title, lines in written.items() if lines)
    return "\n\n".join([*tables, below]) + "\n"


def as_json(found: Sequence[Row], trials: Sequence[Trial]) -> dict[str, Any]:
    return {
        "rows": [row._asdict() for row in found],
        "experiment_1": [
            {"temperature": temperature, "task": task, **_numbers(of_task)}
            for temperature in TEMPERATURES
            for task, of_task in by_task(trials, temperature).items()
        ],
        "experiment_3": [
            {
                "kind": kind,
                **_numbers(of_kind),
                "went": went(of_kind),
                "best_found": best_found(of_kind)._asdict(),
                "best_by_chance": best_by_chance(of_kind),
                "general_slot_is_best": best_is(GENERAL_SLOT, of_kind)._asdict(),
            }
            for kind, of_kind in by_kind(trials).items()
        ],
    }


def _numbers(trials: Sequence[Trial]) -> dict[str, Any]:
    return {
        "answers": len(trials),
        "policies": {
            policy: {figure: getattr(whole(policy, trials), figure) for figure in FIGURES} for policy in POLICIES
        },
        "routed_over": {
            policy: {figure: over(ROUTED, policy, trials, figure)._asdict() for figure in FIGURES}
            for policy in POLICIES
            if policy != ROUTED
        },
    }
