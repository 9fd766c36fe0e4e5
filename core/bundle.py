"""What training publishes and serving loads: a manifest that names, per task, an adapter, why it, and the router.

In: directories and the gate's decisions. Out: directories whose every byte was checked, or why they are not used.

    root/parts/<sha256>/          a PEFT adapter, a router, a model: safetensors and JSON
    root/manifests/<version>.json which parts, for which task; the version is the hash of what the manifest says
    root/live                     the versions that were live, the newest first, a line each

Whatever is written appears by one rename, parts before the manifest that names them and `live` last. So a crash leaves
the former bundle live. One process writes at a time (a lock on the root), any number read.
"""

from __future__ import annotations

import fcntl
import logging
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec.structs import replace as changed

from core.durable import ASIDE, sync
from core.errors import ConfigError
from core.manifest import (
    Manifest,
    Slot,
    read_history,
    read_manifest,
    read_manifests,
    seal,
    write_history,
    write_manifest,
)
from core.parts import Problem, problems, store_part

_PARTS, _MANIFESTS, _LIVE, _LOCK = "parts", "manifests", "live", ".lock"
_log = logging.getLogger(__name__)


class Winner(msgspec.Struct, frozen=True, kw_only=True):
    """What the gate chose for a task, as a `Slot` states it: an adapter's directory, or None for the draft as it is."""

    directory: Path | None
    decision: str
    reason: str
    scores: dict[str, float] = {}


class Bundle(msgspec.Struct, frozen=True):
    """A manifest all of whose parts were found sound."""

    root: Path
    manifest: Manifest

    @property
    def router(self) -> Path | None:
        return self._part(self.manifest.router)

    def directory(self, task: str) -> Path | None:
        """What serves `task`: a PEFT directory, or a whole model; None for the draft as it is."""
        return self._part(self.manifest.slots[task].part)

    def control(self, name: str) -> Path | None:
        """A draft that the winners were measured against; None for the draft as it is."""
        return self._part(self.manifest.controls[name])

    def _part(self, part: str | None) -> Path | None:
        return None if part is None else self.root / _PARTS / part


class Live(msgspec.Struct, frozen=True):
    """What to serve, and what was wrong with those that should have been served instead."""

    bundle: Bundle | None
    problems: tuple[Problem, ...] = ()


class Summary(msgspec.Struct, frozen=True):
    """A line of the list of bundles."""

    version: str
    created: datetime
    tasks: tuple[str, ...]
    live: bool


class Change(msgspec.Struct, frozen=True):
    """One difference between two bundles: a task's slot, or router, target, draft or id_map; None is absent."""

    what: str
    before: Slot | str | None
    after: Slot | str | None


def publish(
    root: Path,
    winners: Mapping[str, Winner],
    *,
    router: Path | None,
    target: str,
    draft: str,
    id_map: str,
    controls: Mapping[str, Path | None] | None = None,
) -> Manifest:
    """Store the parts, write the manifest, let it be live; the same content gives the same version.

    Raises `ConfigError` where a directory holds anything but safetensors and JSON, or a score is no number.
    """
    controls = controls or {}
    with _writing(root):
        directories = {router, *controls.values(), *(winner.directory for winner in winners.values())}
        stored = {directory: store_part(root / _PARTS, directory) for directory in directories if directory}
        digests = {None: None} | {directory: part.digest for directory, part in stored.items()}
        manifest = Manifest(
            version="",
            created=datetime.now(UTC),
            target=target,
            draft=draft,
            id_map=id_map,
            router=digests[router],
            slots={task: _slot(winner, digests[winner.directory]) for task, winner in winners.items()},
            controls={name: digests[directory] for name, directory in controls.items()},
            parts={part.digest: part.files for part in stored.values()},
        )
        return _go_live(root, manifest)


def rollback(root: Path, task: str, version: str, reason: str) -> Manifest:
    """Let `task` be served as `version` does, all else as it is live; a new bundle, live at once.

    Raises `ConfigError` where there is no such version or task, or its parts are missing or corrupt.
    """
    with _writing(root):
        now, old = open_live(root).bundle, show(root, version)
        if now is None:
            raise ConfigError(f"{root}: no bundle is live, so nothing can be rolled back")
        if task not in old.slots:
            raise ConfigError(f"bundle {version} has no task {task!r}; it has {', '.join(sorted(old.slots))}")
        if (old.target, old.draft, old.id_map) != (now.manifest.target, now.manifest.draft, now.manifest.id_map):
            raise ConfigError(f"bundle {version} is for another target, draft or tokenizer than the live one")
        slot = changed(old.slots[task], decision="rollback", reason=f"as in {version}: {reason}")
        slots = now.manifest.slots | {task: slot}
        used = {now.manifest.router, *now.manifest.controls.values(), *(slot.part for slot in slots.values())}
        parts = {digest: files for digest, files in (old.parts | now.manifest.parts).items() if digest in used}
        return _go_live(root, changed(now.manifest, slots=slots, parts=parts, created=datetime.now(UTC)))


def open_live(root: Path) -> Live:
    """The live bundle, every byte of it checked; where it is not sound, the last one before it that is.

    Each thing wrong is logged and returned: the file, what was expected, what was found.
    """
    versions, found = read_history(root / _LIVE)
    if versions or found:  # else a first publish was killed, and what it left was never live
        versions += (one.version for one in read_manifests(root / _MANIFESTS) if one.version not in versions)
    live = None
    for version in versions:
        manifest = read_manifest(root / _MANIFESTS, version)
        wrong = [manifest] if isinstance(manifest, Problem) else _part_problems(root, manifest)
        if isinstance(manifest, Manifest) and not wrong:
            live = Bundle(root, manifest)
            break
        found += wrong
    for problem in found:
        _log.warning("%s; served is %s", problem, live.manifest.version if live else "the draft as it is")
    return Live(live, tuple(found))


def list_bundles(root: Path) -> list[Summary]:
    """All bundles, the newest first; `live` is what `open_live` opens."""
    live = open_live(root).bundle
    return [
        Summary(
            one.version,
            one.created,
            tuple(sorted(one.slots)),
            live is not None and live.manifest.version == one.version,
        )
        for one in read_manifests(root / _MANIFESTS)
    ]


def show(root: Path, version: str) -> Manifest:
    """What a bundle says; `ConfigError` where it cannot be read."""
    manifest = read_manifest(root / _MANIFESTS, version)
    if isinstance(manifest, Problem):
        known = ", ".join(one.version for one in read_manifests(root / _MANIFESTS)) or "none"
        raise ConfigError(f"no bundle {version} can be shown: {manifest}; there are: {known}")
    return manifest


def diff(root: Path, before: str, after: str) -> list[Change]:
    """What changes from one version to another: the tasks by name, then the rest."""
    old, new = show(root, before), show(root, after)
    tasks = sorted(old.slots.keys() | new.slots.keys())
    changes = [Change(f"task {task}", old.slots.get(task), new.slots.get(task)) for task in tasks]
    changes += [
        Change(name, getattr(old, name), getattr(new, name)) for name in ("router", "target", "draft", "id_map")
    ]
    return [change for change in changes if change.before != change.after]


def prune(root: Path, keep: int) -> None:
    """Forget all but the `keep` (at least 1) bundles that were live last, and the parts that only the others name.

    A forgotten bundle cannot be rolled back to. Parts that a service has already loaded may go.
    """
    with _writing(root):
        live = open_live(root).bundle
        if live is None:
            return
        earlier, _ = read_history(root / _LIVE)
        versions = list(dict.fromkeys([live.manifest.version, *earlier]))[: max(1, keep)]
        write_history(root / _LIVE, versions)
        kept = [manifest for manifest in read_manifests(root / _MANIFESTS) if manifest.version in versions]
        for file in (root / _MANIFESTS).glob("*.json"):
            if file.stem not in versions:
                file.unlink()
        for directory in (root / _PARTS).iterdir():
            if not any(directory.name in manifest.parts for manifest in kept):
                shutil.rmtree(directory)


def _slot(winner: Winner, part: str | None) -> Slot:
    return Slot(part=part, decision=winner.decision, reason=winner.reason, scores=winner.scores)


def _go_live(root: Path, manifest: Manifest) -> Manifest:
    sealed = seal(manifest)
    if wrong := _part_problems(root, sealed):
        raise ConfigError(f"nothing is published: {wrong[0]}")
    known = read_manifest(root / _MANIFESTS, sealed.version)
    if isinstance(known, Problem):
        write_manifest(root / _MANIFESTS, sealed)
        known = sealed
    earlier, _ = read_history(root / _LIVE)
    write_history(root / _LIVE, list(dict.fromkeys([known.version, *earlier])))
    return known


def _part_problems(root: Path, manifest: Manifest) -> list[Problem]:
    return [problem for part, files in manifest.parts.items() for problem in problems(root / _PARTS / part, files)]


@contextmanager
def _writing(root: Path) -> Iterator[None]:
    """The root for this process alone, its directories made and what killed writers left cleared away."""
    for directory in (root / _PARTS, root / _MANIFESTS):
        directory.mkdir(parents=True, exist_ok=True)
    with (root / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the kernel lets go of it however the process ends
        for leftover in (found for place in (root, *root.iterdir()) for found in place.glob(f"{ASIDE}*")):
            if leftover.is_dir():
                shutil.rmtree(leftover)
            else:
                leftover.unlink()
        sync(root)
        yield
