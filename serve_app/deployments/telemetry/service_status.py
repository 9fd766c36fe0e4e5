"""What operators see of a service: `taskspec status`, and the console."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from core.rollout.trial import ALL, AcceptanceStats
from serve_app.deployments.telemetry.reports import DraftCheckReport, IngressReport, RolloutReport


@dataclass(frozen=True)
class ReplicaFacts:
    """A replica as Serve knows it: its state, the address of its node, and when it began, in ISO 8601."""

    id: str
    state: str
    node: str | None
    since: str


@dataclass(frozen=True)
class ServicePart:
    """A part of a service: `ingress`, `target`, `router`, or by the name of its task a draft pool.

    `running` of the `target` replicas run. `state` and `message` are Serve's. `sessions` are open now, on `pages` of
    the KV caches beside `free_pages`. `proposed` and `accepted` are tokens of the pool's draft since the ingress began.
    Each is None where nothing tells it.
    """

    name: str
    application: str
    deployment: str
    state: str
    running: int = 0
    target: int = 0
    message: str = ""
    autoscaled: bool = False
    scalable: bool = False
    sessions: int | None = None
    proposed: int | None = None
    accepted: int | None = None
    pages: int | None = None
    free_pages: int | None = None
    replicas: tuple[ReplicaFacts, ...] = ()


@dataclass(frozen=True)
class ServiceStatus:
    """A service: when it was deployed, its parts, and what ingress, rollout and check tell, if they answer."""

    deployed: datetime
    report: IngressReport | None
    parts: tuple[ServicePart, ...]
    rollout: RolloutReport | None = None
    check: DraftCheckReport | None = None


def as_object(status: ServiceStatus) -> dict[str, Any]:
    """The status for JSON."""
    report = status.report
    return {
        "model": report and report.model,
        "bundle": report and report.bundle,
        "deployed": status.deployed.isoformat(),
        "traces": report and report.traces,
        "parts": [asdict(part) for part in status.parts],
        "rollout": status.rollout and _rollout_as_object(status.rollout),
        "drafts": status.check and _check_as_object(status.check),
    }


def shown_task(task: str) -> str:
    """The name of a task, `all` for that which stands for all."""
    return "all" if task == ALL else task


def _rollout_as_object(report: RolloutReport) -> dict[str, Any]:
    apart = ("records", "references", "money", "ruin")
    plain = {name: value for name, value in report._asdict().items() if name not in apart}
    by_task = {
        shown_task(task): {"now": _record(record), "before": _record(report.references.get(task))}
        for task, record in report.records.items()
    }
    money = {shown_task(task): money for task, money in report.money.items()}
    betting = None if report.ruin is None else {"ruin": report.ruin, "money": money}
    return plain | {"answers": report.answers, "acceptance": by_task, "betting": betting}


def _record(record: AcceptanceStats | None) -> dict[str, Any]:
    return {"acceptance": record.mean if record else None, "answers": record.answers if record else 0}


def _check_as_object(report: DraftCheckReport) -> dict[str, Any] | None:
    plain = {
        task: {
            "answers": record.answers,
            "accepted": record.accepted,
            "replayed": record.replayed,
            "gap": record.gap.value,
            "low": record.gap.low,
            "high": record.gap.high,
            "decayed": record.decayed,
        }
        for task, record in report.records.items()
    }
    return plain or None
