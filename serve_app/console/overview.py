"""What one look at a service finds, as the console shows it: status, tasks, bundles, and the last hour."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from core.bundle.manifest import Evidence, Manifest, Slot
from core.draft_key import GENERAL
from core.rollout.events import NONE
from serve_app.console.bundles import PublishedBundles
from serve_app.deployments.telemetry.reports import IN_A_CHANCE, Answered, IngressActivity
from serve_app.deployments.telemetry.service_status import ServicePart, ServiceStatus, as_object
from serve_app.http.minute_counts import Minutes
from serve_app.http.request_history import Client, Requested

NORMAL_WIDTH = 1.96  # standard deviations on each side of a 95 % interval
MOST_FAULTS = 50
WORDLESS = re.compile(rf"{GENERAL}|task-\d+")  # names of tasks that are not the words which their prompts share


class Figure(NamedTuple):
    """A count of answers without their task and version."""

    what: str
    source: str | None = None


Figures = Counter[Figure]


def overview(status: ServiceStatus, bundles: PublishedBundles, now: float) -> dict[str, Any]:
    """The object of `/console/status`, but for what depends on who looks. `now` is in Unix seconds."""
    activity = status.report.activity if status.report else None
    return {
        **as_object(status),
        "at": now,
        "tasks": _tasks(status, bundles),
        "moves": _moves(activity),
        "bundles": bundles.listed(status),
        "queue": activity and {"waiting": activity.waiting, "running": activity.running, "room": activity.room},
        "minutes": [] if activity is None else _minutes(activity),
        "faults": [] if activity is None else _faults(activity),
    }


def keys_of(activity: IngressActivity | None) -> list[dict[str, Any]]:
    """The clients with what they asked for and what is left of their limits: by key, or as one if there are no keys."""
    if activity is None:
        return []
    requests = _by_client(activity.requests)
    holders = activity.holders
    clients = [(None, False)] if holders is None else [(holder.name, holder.admin) for holder in holders]
    return [_key(name, requests.get(name, Counter()), activity, admin=admin) for name, admin in clients]


def _key(name: Client, requests: Counter[str], activity: IngressActivity, *, admin: bool) -> dict[str, Any]:
    limited = activity.limited.get(name, {})
    running = limited.get("concurrency")
    return {
        "name": name,
        "admin": admin,
        "requests": requests.total(),
        "refused": requests["refused"],
        "failed": requests["failed"],
        "open": running and running.limit - running.remaining,
        "limits": {what: allowed._asdict() for what, allowed in limited.items()},
    }


def _by_client(minutes: Minutes[Requested]) -> dict[Client, Counter[str]]:
    clients: dict[Client, Counter[str]] = {}
    for counts in minutes.values():
        for (client, outcome), number in counts.items():
            clients.setdefault(client, Counter())[outcome] += number
    return clients


def _tasks(status: ServiceStatus, bundles: PublishedBundles) -> list[dict[str, Any]]:
    """The tasks of the bundle that serves, `general` first, each with its last hour."""
    report = status.report
    if report is None:
        return []
    manifest = bundles.manifest(report.bundle)
    others = manifest.slots if manifest else report.pools.values()
    answered = {} if report.activity is None else _by_task(report.activity.answers)
    every = sum((figures for versions in answered.values() for figures in versions.values()), Counter[Figure]())
    parts = {part.name: part for part in status.parts}
    pools = set(report.pools.values())
    return [
        {
            "name": task,
            "words": _words(task, manifest),
            "prompts": bundles.prompts(report.bundle).get(task),
            **_part_of(parts.get(task if task in pools else GENERAL)),
            **_last_hour(answered.get(task, {}), every[Figure("answers")]),
            **_published(task, manifest),
        }
        for task in dict.fromkeys([GENERAL, *others])
    ]


def _words(task: str, manifest: Manifest | None) -> list[str]:
    """Those that its prompts share; bundles of earlier versions have them in the name alone."""
    named = [] if WORDLESS.fullmatch(task) else task.split("-")
    return list(manifest.words.get(task, named)) if manifest else named


def _part_of(part: ServicePart | None) -> dict[str, Any]:
    return {"part": part and part.name, "running": part and part.running, "target": part and part.target}


def _last_hour(versions: Mapping[str, Figures], answers: int) -> dict[str, Any]:
    """Of a task, with its share of so many `answers`."""
    total = sum(versions.values(), Counter[Figure]())
    sources = {figure.source for figure in total if figure.source is not None}
    routed = total[Figure("routed")]
    return {
        "share": total[Figure("answers")] / answers if answers else None,
        "hour": _shown(total),
        "versions": [{"version": version, **_shown(figures)} for version, figures in versions.items()],
        "sources": {
            source: {what: total[Figure(what, source)] for what in ("proposed", "accepted")}
            for source in sorted(sources)
        },
        "router": {
            "routed": routed,
            "named": total[Figure("named")],
            "unasked": total[Figure("unasked")],
            "chance": total[Figure("chance")] / IN_A_CHANCE / routed if routed else None,
        },
    }


def _shown(figures: Figures) -> dict[str, Any]:
    """Proposed and accepted are those of drafts."""
    tokens, passes = figures[Figure("tokens")], figures[Figure("passes")]
    proposed, accepted = figures[Figure("proposed", "draft")], figures[Figure("accepted", "draft")]
    return {
        "answers": figures[Figure("answers")],
        "tokens": tokens,
        "passes": passes,
        "tokens_per_pass": tokens / passes if passes else None,
        "proposed": proposed,
        "accepted": accepted,
        "acceptance": accepted / proposed if proposed else None,
        "moved": figures[Figure("moved")],
    }


def _by_task(minutes: Minutes[Answered]) -> dict[str, dict[str, Figures]]:
    """By task and version."""
    tasks: dict[str, dict[str, Figures]] = {}
    for counts in minutes.values():
        for (task, version, what, source), number in counts.items():
            tasks.setdefault(task, {}).setdefault(version or NONE, Counter())[Figure(what, source)] += number
    return tasks


def _published(task: str, manifest: Manifest | None) -> dict[str, Any]:
    """What the bundle serves for the task, and why."""
    slot = manifest.slots.get(task) if manifest else None
    evidence = manifest.evidence.get(task) if manifest else None
    general = manifest.slots.get(GENERAL) if manifest else None
    judged_by = "speedup" if manifest and manifest.costs else "acceptance_rate"  # in bundles of earlier versions
    return {
        "slot": slot and {**_slot(slot, general), "judged_by": judged_by},
        "evidence": evidence and {**_gain(evidence), "judged_by": judged_by},
    }


def _slot(slot: Slot, general: Slot | None) -> dict[str, Any]:
    own = general is not None and slot.part != general.part
    return {"decision": slot.decision, "reason": slot.reason, "own": own, "scores": slot.scores}


def _gain(evidence: Evidence) -> dict[str, Any]:
    half = NORMAL_WIDTH * math.sqrt(evidence.variance)
    return {
        "gain": evidence.gain,
        "low": evidence.gain - half,
        "high": evidence.gain + half,
        "prompts": evidence.prompts,
        "looks": evidence.looks,
    }


def _moves(activity: IngressActivity | None) -> list[dict[str, Any]]:
    moves: Sequence[tuple[tuple[str, str], int]] = [] if activity is None else activity.moves.most_common()
    return [{"from": origin, "to": destination, "count": number} for (origin, destination), number in moves]


def _minutes(activity: IngressActivity) -> list[dict[str, Any]]:
    answers, requests = activity.answers, activity.requests
    return [
        {
            "at": minute,
            **_outcomes(requests.get(minute, Counter())),
            **{what: _sum(answers.get(minute, Counter()), what) for what in ("answers", "tokens", "passes")},
        }
        for minute in sorted({*answers, *requests})
    ]


def _outcomes(requests: Counter[Requested]) -> dict[str, int]:
    outcomes = Counter[str]()
    for requested, number in requests.items():
        outcomes[requested.outcome] += number
    return {"requests": outcomes.total(), **{name: outcomes[name] for name in ("refused", "failed", "gone")}}


def _sum(counts: Mapping[Answered, int], what: str) -> int:
    return sum(number for answered, number in counts.items() if answered.what == what)


def _faults(activity: IngressActivity) -> list[dict[str, Any]]:
    latest: Iterable[Any] = sorted(activity.faults, reverse=True)[:MOST_FAULTS]
    return [fault._asdict() for fault in latest]
