"""`taskspec status`, `scale` and `drain`: what operators see of a running service, and change in it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from core.errors import ConfigError
from serve_app.connection import AUTO, connect, connect_to_service

if TYPE_CHECKING:
    from serve_app.deployments.telemetry.reports import DraftCheckReport, RolloutReport
    from serve_app.deployments.telemetry.service_status import ServicePart, ServiceStatus

Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="The Ray cluster of the service, or `auto`. RAY_AUTH_MODE=token if it requires a token.",
        show_default="that of `taskspec serve` on this machine",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on stdout, for scripts.")]
Replicas = Annotated[list[str], typer.Argument(metavar="TASK=REPLICAS", show_default=False)]


def status(address: Address = None, as_json: AsJson = False) -> None:
    """Show the parts of a running service: their state, replicas, open sessions, and how each draft does.

    A part is `ingress`, `target`, `router`, or the draft pool of a task. `replicas` are those that run, of those that
    should. `accepted` is the share of the draft's proposals that the target accepted since the ingress began, and both
    numbers. Above are the bundle that is served, what became of the recorded answers, and of a new bundle: whether its
    pools are starting, it is a canary or on trial, and how its drafts do beside those before. Rows named by their
    application are of a bundle on its way in or out. `drafts` has, by task, the accepted share in service beside that
    of an exact replay of the same answers; a draft that does less than that has DECAYED, whatever the traffic is.

    Example: `taskspec status`

    Example, on the head node of a cluster: `taskspec status --address auto --json`

    With --json an object: `model`, `bundle`, `deployed` (ISO 8601), `traces` (counts, or null if none are kept), and
    `parts`, a list of objects: `name`, `application`, `deployment`, `state`, `running`, `target`, `message`,
    `autoscaled`, `scalable`, `sessions`, `proposed`, `accepted`, and of its KV caches `pages` that are held and
    `free_pages`, these five null where nothing tells them; and a list `replicas`: `id`, `state`, `node`, `since`. And
    `rollout` (null without one): `state`, `version`, `candidate`, `share`, `answers`, `last`, `blocked`, by task
    `acceptance` with `now`, `before` and the `answers` of each, and of a canary or trial `betting`: by task the `money`
    that was 1 at first, which at `ruin` proves its drafts worse. And `drafts` (null if nothing was replayed), by task
    `answers`, `accepted`, `replayed`, `gap` with `low` and `high`, and `decayed`.
    """
    connect_to_service(address)
    from serve_app.deployments.deploy.failures import cause_in
    from serve_app.deployments.telemetry.service_status import as_object
    from serve_app.operations import service_status

    current = service_status()
    if as_json:
        sys.stdout.write(json.dumps(as_object(current), indent=2, ensure_ascii=False) + "\n")
        return
    console = Console(markup=False, highlight=False)
    for line in facts(current):
        console.print(line, soft_wrap=True)
    console.print(table(current.parts))
    for part in current.parts:
        if part.message:
            console.print(f"{part.name}: {cause_in(part.message)}", soft_wrap=True)


def scale(replicas: Replicas, address: Address = None) -> None:
    """Set how many replicas the draft pool of a task has, or `target`, `router` or `ingress`, while they serve.

    Nothing else restarts, and no answer is cut off: a replica that is to go ends its sessions first, for 60 s at most,
    one of the ingress for 10 minutes. 0 replicas of a pool stop drafting for its task; its answers stay the same and
    take longer. Parts that Serve scales (`autoscaling`) are refused. The numbers hold until the service is deployed
    again, with those of its configuration.

    Example: `taskspec scale general=2`

    The command returns at once; `taskspec status` shows when new replicas run, or what they wait for.
    """
    numbers = parse_replicas(replicas)
    connect_to_service(address)
    from serve_app.operations import scaling_in_words, set_replicas

    for part in set_replicas(numbers):
        sys.stdout.write(f"{scaling_in_words(part, numbers[part.name])}\n")


def drain(
    seconds: Annotated[int, typer.Option(min=1, help="Until this node goes; answers of a longer wait are cut.")] = 700,
) -> None:
    """Let this node of a cluster end its answers, before it is shut down or its pod is deleted.

    The node takes no more work, and the proxy on it tells balancers that it goes. Serve starts its replicas on other
    nodes, and each ends here as soon as another runs in its place; without room elsewhere in time it ends all the same:
    one of the ingress after it had 10 minutes for its answers, others after 60 s, whose answers go on elsewhere. The
    command returns when nothing serves here any more. The node stays drained: end its Ray, and start it again.

    Example, on the node: `taskspec drain && ray stop`

    Exit code 1 if something still serves after that time. The head is not for draining: without it nothing is moved.
    """
    connect(AUTO)
    from serve_app import draining

    draining.drain(seconds)


def parse_replicas(arguments: Sequence[str]) -> dict[str, int]:
    """The numbers of `TASK=REPLICAS`, by task. Raises `ConfigError`."""
    numbers = dict[str, int]()
    for argument in arguments:
        name, _, number = argument.rpartition("=")
        if not name or not number.isdecimal():
            raise ConfigError(f"cannot read {argument!r}; write TASK=REPLICAS, for example {name or 'general'}=2")
        if name in numbers:
            raise ConfigError(f"{name!r} is given twice; write it once")
        numbers[name] = int(number)
    return numbers


def facts(status: ServiceStatus) -> list[str]:
    """What is served, and what became of recorded answers, in lines."""
    deployed = f"deployed {status.deployed:%Y-%m-%d %H:%M} UTC"
    if status.report is None:
        return [f"The ingress does not answer; {deployed}"]
    served = f"{status.report.model}, {f'bundle {status.report.bundle}' if status.report.bundle else 'no bundle'}"
    lines = [f"{served}, {deployed}"]
    if status.report.traces is not None:
        counts = (f"{number} {name.replace('_', ' ')}" for name, number in sorted(status.report.traces.items()))
        lines.append(f"traces: {', '.join(counts) or 'none written yet'}")
    if status.rollout is not None:
        lines += _of_rollout(status.rollout)
    return lines if status.check is None else [*lines, *_of_check(status.check)]


def _of_check(report: DraftCheckReport) -> list[str]:
    """Each draft in service beside its replay, those that have decayed with what to do."""
    records = report.records
    how = (
        f"{task} {record.accepted:.2f} of {record.replayed:.2f} ({record.answers} answers)"
        for task, record in records.items()
    )
    lines = [f"drafts, accepted in service, of a replay: {', '.join(how)}"] if records else []
    decayed = (task for task, record in records.items() if record.decayed)
    return lines + [
        f"{task} has DECAYED, which traffic does not do: restart its replicas, by `taskspec scale {task}=0` and then "
        "as many as there were"
        for task in decayed
    ]


def _of_rollout(report: RolloutReport) -> list[str]:
    """What is being taken up, how its drafts do, and what happened last."""
    from serve_app.deployments.telemetry.service_status import shown_task

    lines = [f"rollout: {report.last}"] if report.last else []
    if report.state in ("canary", "trial"):
        pairs = ((shown_task(task), report.records.get(task), before) for task, before in report.references.items())
        how = (f"{task} {now.mean:.2f} ({before.mean:.2f})" for task, now, before in pairs if now)
        lines.append(
            f"{report.state}: {report.answers} answers judged; accepted, and before: {', '.join(how) or 'none'}"
        )
    return lines


def table(parts: Sequence[ServicePart]) -> Table:
    """The parts, a row each."""
    columns = ("part", "application", "state", "replicas", "sessions", "accepted")
    shown = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
    for part in parts:
        sessions = "" if part.sessions is None else str(part.sessions)
        shown.add_row(
            part.name, part.application, part.state, f"{part.running}/{part.target}", sessions, acceptance(part)
        )
    return shown


def acceptance(part: ServicePart) -> str:
    """The accepted share of what the part's draft proposed, with both numbers."""
    if not part.proposed or part.accepted is None:
        return ""
    return f"{part.accepted / part.proposed:.2f} ({part.accepted} of {part.proposed})"
