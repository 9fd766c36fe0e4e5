"""`taskspec bundles`: lists, shows and compares what training has published."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from core.family import BUNDLE_DIR

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
    """List all bundles, the newest first; a service loads the live one when it starts.

    The live bundle is the last published one whose files are intact. Every byte is checked; damage is reported.

    Example: `taskspec bundles list --root build/bundles`

    With --json a list of objects: `version`, `created` (ISO 8601), `tasks` (names), `live` (true or false).
    """
    from core.bundle.store import list_bundles

    found = list_bundles(root)
    if as_json:
        _write([_plain(summary) for summary in found])
        return
    table = _table("version", "created", "live", "tasks")
    for one in found:
        table.add_row(
            one.version, f"{one.created:%Y-%m-%d %H:%M} UTC", "live" if one.live else "", ", ".join(one.tasks)
        )
    _print(table if found else f"no bundles in {root}")


@app.command()
def show(version: Version, root: Root = BUNDLE_DIR, as_json: AsJson = False) -> None:
    """Show what a bundle serves for each task, and why.

    `decision` is the selected candidate: the task's own adapter, `mixed` (one adapter for all tasks), `full` (a full
    fine-tune), `general` (the un-adapted draft), or `live` (what was served before).

    Example: `taskspec bundles show 81cb1f890ca658e1 --root build/bundles`

    With --json the manifest as it is on disk.
    """
    from core.bundle import store as bundle

    manifest = bundle.show(root, version)
    if as_json:
        _write(_plain(manifest))
        return
    _print(_facts(manifest))
    table = _table("task", "decision", "part", "scores", "reason")
    for task, slot in manifest.slots.items():
        scores = "\n".join(f"{name} {value:.3f}" for name, value in slot.scores.items())
        table.add_row(task, slot.decision, _short(slot.part), scores, slot.reason)
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
