"""`taskspec bundles`: lists, shows, compares, replays, deploys and deletes what training has published."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from core.errors import ConfigError, TaskSpecError
from core.family import BUNDLE_DIR
from serve_app.cli.operations import Address
from serve_app.connection import connect_to_service

if TYPE_CHECKING:
    from rich.table import Table

    from core.bundle.manifest import Manifest, Slot
    from core.bundle.store import BundleChange
    from core.tasks.identity import TaskChange

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Published bundles: which draft serves which task, and why.",
)

Root = Annotated[
    Path,
    typer.Option(
        metavar="DIR",
        show_default="the family's",
        help="The directory that training publishes to: `bundle:` of a service, `bundles:` of a retraining.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on stdout, for scripts.")]
Version = Annotated[str, typer.Argument(help="A version that `taskspec bundles list` shows.", show_default=False)]


@app.command("list")
def list_(root: Root = BUNDLE_DIR, as_json: AsJson = False) -> None:
    """List all bundles, the newest first; a service loads the live one when it starts, and follows later ones.

    The live bundle is the last published one whose files are intact. Every byte is checked; damage is reported.

    Example: `taskspec bundles list --root build/bundles`

    With --json a list of objects: `version`, `created` (ISO 8601), `tasks` (names), `live` (true or false).
    """
    from core.bundle.store import list_bundles

    bundles = list_bundles(root)
    if as_json:
        _write([_plain(bundle) for bundle in bundles])
        return
    table = _table("version", "created", "live", "tasks")
    for bundle in bundles:
        created, live = f"{bundle.created:%Y-%m-%d %H:%M} UTC", "live" if bundle.live else ""
        table.add_row(bundle.version, created, live, ", ".join(bundle.tasks))
    _print(table if bundles else f"no bundles in {root}")


@app.command()
def show(version: Version, root: Root = BUNDLE_DIR, as_json: AsJson = False) -> None:
    """Show what a bundle serves for each task, and why.

    `decision` is the selected candidate: `task` (the task's own adapter), `base` (the draft, fitted to all prompts),
    `continued` (the base, trained on), `mixed` (one adapter of the base for all tasks), `general` (the un-adapted
    draft) or `live` (what was served before). `scores` are tokens a second in times plain decoding, of each candidate
    on held-out prompts; in bundles of earlier versions acceptance rates.

    Example: `taskspec bundles show 81cb1f890ca658e1 --root build/bundles`

    With --json the manifest as it is on disk.
    """
    from core.bundle import store as bundle

    manifest = bundle.show(root, version)
    if as_json:
        _write(_plain(manifest))
        return
    _print(_facts(manifest))
    table = _table("task", "decision", "part", "scores", "acceptance", "reason")
    for task, slot in manifest.slots.items():
        scores = "\n".join(f"{name} {value:.3f}" for name, value in slot.scores.items())
        acceptance = manifest.acceptance.get(task, {}).get(task)
        rate = "" if acceptance is None else f"{acceptance:.3f}"
        table.add_row(task, slot.decision, _short(slot.part), scores, rate, slot.reason)
    _print(table)


@app.command()
def diff(
    before: Annotated[str, typer.Argument(metavar="A", help="The older version.", show_default=False)],
    after: Annotated[str, typer.Argument(metavar="B", help="The newer version.", show_default=False)],
    root: Root = BUNDLE_DIR,
    as_json: AsJson = False,
) -> None:
    """Show what changes from version A to version B: tasks, then their drafts, router, target, draft and tokenizer.

    A task is `kept` (if need be under another name), `new`, `split` off from a kept one, `merged` into one, or
    `vanished`. Bundles of earlier versions, which lack the centroids of their tasks, do not tell.

    Example: `taskspec bundles diff 81cb1f890ca658e1 0f2c4e8a1b3d5f79 --root build/bundles`

    With --json a list of objects: `what`, `before`, `after`; null where there is none.
    """
    from core.bundle import store as bundle

    changes: list[TaskChange | BundleChange] = [*_task_changes(root, before, after), *bundle.diff(root, before, after)]
    if as_json:
        _write([_plain(change) for change in changes])
        return
    table = _table("what", before, after)
    for change in changes:
        table.add_row(change.what, _side(change.before), _side(change.after))
    _print(table if changes else "they serve the same")


@app.command()
def shadow(
    version: Version,
    config: Annotated[
        str,
        typer.Option(
            metavar="NAME_OR_YAML",
            help="The service: a shipped configuration or a YAML file; it names models, `bundle` and `traces`.",
            show_default=False,
        ),
    ],
    since: Annotated[str, typer.Option(metavar="PERIOD", help="Answers that ended in it: 90m, 24h, 7d.")] = "24h",
    limit: Annotated[
        int, typer.Option("--most", min=1, help="Most answers to replay; of more, so many are drawn.")
    ] = 1000,
    against: Annotated[
        str | None, typer.Option(metavar="VERSION", help="Another bundle to compare with.", show_default="the live one")
    ] = None,
    traces: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The traces.", show_default="the service's traces.directory"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Replay what a service answered with the drafts of a bundle, and tell whether it is better than the live one.

    Answers do not depend on drafts. So what a bundle would have had accepted on them is exact, and needs no pass of the
    target: a quarter of a minute for 1,000 answers of the family. For answers that were held to a schema or to calls it
    is an estimate, as their grammar is not kept. Each prompt goes to the slot that the service would begin with, whose
    draft proposes up to `draft.num_speculative_tokens` for every pass. Both bundles are replayed on the same answers.
    The candidate is better or worse if the 95 % interval of the difference in speedup lies on one side of 0: tokens a
    second in times plain decoding, one answer at a time, by costs that a bundle's retraining measured. Of bundles of
    earlier versions acceptance decides. Tasks are those that the candidate's router tells. Not replayed are moves to
    another draft within an answer, lookup, and drafting less where it does not pay. What the service itself measured is
    therefore another figure, printed beside. The result is kept beside the bundle, where the service's page shows it.

    Example: `taskspec bundles shadow 81cb1f890ca658e1 --config mine.yaml --since 7d`

    With --json an object: `candidate`, `against` (null: no bundle is live), `verdict`, `judged_by`,
    `num_speculative_tokens`, `found` (answers in the period), `skipped`, `all` and, by name, `tasks`. These two have
    `answers`, for `speedup`, `acceptance_rate` and `tokens_per_pass` the `candidate`, `against` and `difference` with
    `low` and `high`, and `measured_by_the_service`.
    """
    from serve_app.cli import shadow as work
    from serve_app.config import load_config

    settings = load_config(config)
    directory = traces or (settings.traces.directory if settings.traces else None)
    if directory is None:
        raise ConfigError(f"{config} has no `traces` section; write --traces DIR")
    replay = work.Replay(settings, version, against, directory, since, limit)
    comparison = work.compare(replay, Console(stderr=True))
    if as_json:
        _write(work.as_json(comparison))
        return
    other = "against" if against else "live"
    table = _table("task", "answers", "figure", "candidate", other, "difference")
    for row in work.rows(comparison.result):
        table.add_row(*row)
    _print(table)
    _print(work.sentences(comparison, since))


@app.command()
def deploy(
    version: Version,
    canary: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE", help="The share of prompts that it gets at first, such as 10%.", show_default="all"
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Deploy it even if it is blocked, and do not judge it.")
    ] = False,
    address: Address = None,
) -> None:
    """Let the running service take up a bundle: its drafts start beside those that serve, then take over.

    No answer fails, waits or changes: those that run keep their drafts, and what nothing uses any more ends. A canary
    gets all prompts once `rollout.canary_answers` drafted answers did no worse. Deployed again it gets another share,
    or all; deploying the version that serves (`none` without a bundle) ends it, and makes that version live again. So
    does a canary by itself whose drafts propose nothing, in ten times as many answers, or that another service blocks.

    The service judges the first `rollout.trial_answers` answers. If the drafts of a task are accepted less than those
    before, and not by chance (at most 5 % of bundles that are as good), it goes back by itself and blocks the version.
    A bundle that has served all prompts before is not judged, also by a service that has started since: so you go back
    by hand. One that follows a bundle with fewer than 30 drafted answers is not judged, either, and `taskspec status`
    says so.

    A service follows what training publishes without this command, unless `rollout.follow` is false.

    Example: `taskspec bundles deploy 81cb1f890ca658e1 --canary 10%`

    The command returns when the bundle has prompts; `taskspec status` shows how it does.
    """
    share = _share(canary)
    connect_to_service(address)
    from core.rollout.events import NONE
    from serve_app.operations import deploy_bundle, rollout_report
    from serve_app.terminal.progress import step

    message = deploy_bundle(version, share, force)
    with step(Console(stderr=True), message[0].upper() + message[1:]):
        while (report := rollout_report()).state in ("starting", "going back"):
            time.sleep(0.5)
    if version not in (report.version or NONE, report.candidate):
        raise NotDeployed(report.last or "the rollout was lost meanwhile; `taskspec status` shows what serves")
    _print(report.last or message)


class NotDeployed(TaskSpecError):
    """The service goes on with the bundle that it has."""


def _share(canary: str | None) -> float:
    """Of 0 to 1. Raises `ConfigError`."""
    if canary is None:
        return 0.0
    try:
        share = float(canary.removesuffix("%")) / 100.0 if canary.endswith("%") else float(canary)
    except ValueError:
        share = -1.0
    if not 0.0 < share < 1.0:
        raise ConfigError(f"--canary {canary}: write a share of the prompts such as 10%, more than 0 and less than all")
    return share


@app.command()
def prune(
    root: Annotated[
        Path, typer.Option(metavar="DIR", help="The directory that training publishes to.", show_default=False)
    ],
    keep: Annotated[int, typer.Option(min=1, help="Bundles to keep: those that were live last.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Delete all but the bundles that were live last, and the drafts that only the others use.

    The live bundle is always kept. Keep also the one that a running service was deployed with: replicas that start
    later load it. Deleted bundles cannot be rolled back to.

    Example: `taskspec bundles prune --keep 5 --root build/bundles`

    With --json the list of deleted versions.
    """
    from core.bundle import store as bundle

    deleted = bundle.prune(root, keep) if bundle.list_bundles(root) else []
    if as_json:
        _write(deleted)
    else:
        _print(f"deleted {', '.join(deleted)}" if deleted else "nothing to delete")


def _task_changes(root: Path, before: str, after: str) -> tuple[TaskChange, ...]:
    from core.bundle import store as bundle
    from core.tasks.identity import TaskCentroids, compare

    parts = [bundle.centroids(root, version) for version in (before, after)]
    old, new = (TaskCentroids.load(part) if part else None for part in parts)
    return compare(old, new) if old and new else ()


def _facts(manifest: Manifest) -> str:
    return (
        f"version {manifest.version}, first published {manifest.created:%Y-%m-%d %H:%M} UTC\n"
        f"target {manifest.target}, draft {manifest.draft}, tokenizer {_short(manifest.id_map)}\n"
        f"router {_short(manifest.router)}; measured against {', '.join(manifest.controls) or 'nothing'}"
    )


def _side(value: Slot | str | None) -> str:
    from core.bundle.manifest import Slot

    if isinstance(value, Slot):
        return f"{value.decision} {_short(value.part)}\n{value.reason}"
    return "-" if value is None else value


def _short(digest: str | None) -> str:
    return "none" if digest is None else digest[:12]


def _plain(value: Any) -> Any:
    import msgspec

    return msgspec.to_builtins(value)


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    return Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)


def _print(what: Table | str) -> None:
    Console(markup=False, highlight=False).print(what, soft_wrap=isinstance(what, str))


def _write(content: Any) -> None:
    sys.stdout.write(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
