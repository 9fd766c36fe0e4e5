"""The bundle store: training publishes bundles into a directory, services load the live one from it.

    root/parts/<sha256>/          a PEFT adapter, a router, a model: safetensors and JSON; an adapter may name another
                                  part as the model that it is for
    root/manifests/<version>.json the part that serves each task; the version is the hash of the manifest's content
    root/live                     the versions that were live, the newest first, one per line
    root/blocked.json             the versions that no service may serve, and why
    root/proven/<version>         the versions that a service takes up without a trial (`core.bundle.proven`)
    root/shadows/<version>.json   what they would have had accepted (`core.bundle.shadow_results`)

Everything is written by one rename each: parts, then the manifest that names them, then `live`. So a crash leaves the
previous bundle live. Live is the newest of `live` that is not blocked.

One process writes at a time (a lock on the root); any number read, and they check every byte.
"""

from __future__ import annotations

import fcntl
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from core.atomic_files import ASIDE, replace, sync
from core.bundle.blobs import Problem, base_part, problems, store_blob
from core.bundle.manifest import (
    Evidence,
    Manifest,
    MeasuredCosts,
    Slot,
    read_history,
    read_manifest,
    read_manifests,
    seal,
    write_history,
    write_manifest,
)
from core.bundle.shadow_results import drop_shadows
from core.errors import ConfigError

_PARTS, _MANIFESTS, _LIVE, _LOCK = "parts", "manifests", "live", ".lock"
_BLOCKED = "blocked.json"
_log = logging.getLogger(__name__)


class Winner(msgspec.Struct, frozen=True, kw_only=True):
    """The promoted draft of a task: a `Slot` with a directory in place of the digest."""

    directory: Path | None
    decision: str
    reason: str
    scores: dict[str, float] = {}


class Bundle(msgspec.Struct, frozen=True):
    """A manifest whose parts were all checked."""

    root: Path
    manifest: Manifest

    @property
    def router(self) -> Path | None:
        return self._part(self.manifest.router)

    @property
    def centroids(self) -> Path | None:
        """What the tasks are recognised by; None in a bundle of an earlier format."""
        return self._part(self.manifest.centroids)

    def directory(self, task: str) -> Path | None:
        """The draft of `task`: a PEFT directory or a whole model; None for the un-adapted draft."""
        return self._part(self.manifest.slots[task].part)

    def control(self, name: str) -> Path | None:
        """A draft that the promoted ones were compared with; None for the un-adapted draft."""
        return self._part(self.manifest.controls[name])

    def _part(self, part: str | None) -> Path | None:
        return None if part is None else self.root / _PARTS / part


class Live(msgspec.Struct, frozen=True):
    """The bundle to serve, and the problems of newer ones that could not be used."""

    bundle: Bundle | None
    problems: tuple[Problem, ...] = ()


class BundleSummary(msgspec.Struct, frozen=True):
    """One bundle in the list of bundles."""

    version: str
    created: datetime
    tasks: tuple[str, ...]
    live: bool


class BundleChange(msgspec.Struct, frozen=True):
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
    acceptance: Mapping[str, Mapping[str, float]] | None = None,
    evidence: Mapping[str, Evidence] | None = None,
    words: Mapping[str, Sequence[str]] | None = None,
    centroids: Path | None = None,
    costs: MeasuredCosts | None = None,
    live: bool = True,
) -> Manifest:
    """Store the parts, write the manifest, and make it live if asked. The same content gives the same version.

    The model that an adapter is for becomes a part, too, if it is among the directories or in the store already. Raises
    `ConfigError` if it is not, if a directory holds anything but safetensors and JSON, or if a score is not a number.
    """
    controls = controls or {}
    with _writing(root):
        directories = {router, centroids, *controls.values(), *(winner.directory for winner in winners.values())}
        stored = {directory: store_blob(root / _PARTS, directory) for directory in directories if directory}
        digests = {None: None} | {directory: blob.digest for directory, blob in stored.items()}
        parts = {blob.digest: blob.files for blob in stored.values()}
        for base in {_base_of(root, digest) for digest in parts} - {None, *parts}:
            blob = store_blob(root / _PARTS, root / _PARTS / str(base))
            parts[blob.digest] = blob.files
        manifest = Manifest(
            version="",
            created=datetime.now(UTC),
            target=target,
            draft=draft,
            id_map=id_map,
            router=digests[router],
            slots={task: _slot(winner, digests[winner.directory]) for task, winner in winners.items()},
            controls={name: digests[directory] for name, directory in controls.items()},
            acceptance={slot: dict(rates) for slot, rates in (acceptance or {}).items()},
            evidence=dict(evidence or {}),
            words={task: tuple(telling) for task, telling in (words or {}).items()},
            centroids=digests[centroids],
            costs=costs,
            parts=parts,
        )
        published = _stored(root, manifest)
        if live:
            _put_first(root, published.version)
        return published


def go_live(root: Path, version: str) -> None:
    """Make a stored bundle live, and blocked no longer. Raises `ConfigError` if it is missing or damaged."""
    with _writing(root):
        open_version(root, version)
        barred = _read_blocked(root)
        if barred.pop(version, None) is not None:
            _write_blocked(root, barred)
        _put_first(root, version)


def block(root: Path, version: str, reason: str) -> None:
    """Let no service serve this bundle, even if it is published again; the one that was live before it is live."""
    with _writing(root):
        _write_blocked(root, _read_blocked(root) | {version: reason})


def blocked(root: Path) -> dict[str, str]:
    """The versions that may not be served, and why. A file that cannot be read blocks none, and is logged."""
    try:
        return _read_blocked(root)
    except (OSError, ConfigError) as error:
        _log.warning("the blocked bundles are not known: %s", error)
        return {}


def live_version(root: Path) -> str | None:
    """The version that `open_live` tries first; nothing of it is checked."""
    versions, _ = read_history(root / _LIVE)
    barred = blocked(root)
    return next((version for version in versions if version not in barred), None)


def open_live(root: Path) -> Live:
    """The live bundle with every byte checked, or the last intact one before it.

    Every problem is logged and returned: the file, what was expected, what was found.
    """
    return _open_live(root, blocked(root))


def _open_live(root: Path, barred: Mapping[str, str]) -> Live:
    versions, faults = read_history(root / _LIVE)
    if faults:  # it is damaged: others may have been live; else those that it lacks never were
        everything = (manifest.version for manifest in read_manifests(root / _MANIFESTS))
        versions += (version for version in everything if version not in versions)
    live = None
    for version in versions:
        if version in barred:
            continue
        manifest = read_manifest(root / _MANIFESTS, version)
        wrong = [manifest] if isinstance(manifest, Problem) else _part_problems(root, manifest)
        if isinstance(manifest, Manifest) and not wrong:
            live = Bundle(root, manifest)
            break
        faults += wrong
    for problem in faults:
        _log.warning("%s; served is %s", problem, live.manifest.version if live else "the draft as it is")
    return Live(live, tuple(faults))


def published(root: Path) -> list[Manifest]:
    """All readable manifests, the newest first. No part is checked."""
    return read_manifests(root / _MANIFESTS)


def published_at(root: Path) -> int:
    """A number that is another once a bundle has been published or deleted."""
    try:
        return (root / _MANIFESTS).stat().st_mtime_ns
    except OSError:
        return 0


def list_bundles(root: Path) -> list[BundleSummary]:
    """All bundles, the newest first; `live` is what `open_live` opens."""
    live = open_live(root).bundle
    return [
        BundleSummary(
            manifest.version,
            manifest.created,
            tuple(sorted(manifest.slots)),
            live is not None and live.manifest.version == manifest.version,
        )
        for manifest in read_manifests(root / _MANIFESTS)
    ]


def show(root: Path, version: str) -> Manifest:
    """The manifest of a bundle. Raises `ConfigError` if it cannot be read."""
    manifest = read_manifest(root / _MANIFESTS, version)
    if isinstance(manifest, Problem):
        others = ", ".join(other.version for other in read_manifests(root / _MANIFESTS)) or "none"
        raise ConfigError(f"no bundle {version} can be read: {manifest}; there are: {others}")
    return manifest


def open_version(root: Path, version: str) -> Bundle:
    """A bundle with every byte checked, whether it is live or not. Raises `ConfigError` if there is a problem."""
    manifest = show(root, version)
    if wrong := _part_problems(root, manifest):
        raise ConfigError(f"bundle {version} is damaged: {wrong[0]}")
    return Bundle(root, manifest)


def centroids(root: Path, version: str) -> Path | None:
    """What the tasks of a bundle are recognised by; None in one of an earlier format."""
    return Bundle(root, show(root, version)).centroids


def diff(root: Path, before: str, after: str) -> list[BundleChange]:
    """The differences between two versions: tasks by name, then the rest."""
    old, new = show(root, before), show(root, after)
    tasks = sorted(old.slots.keys() | new.slots.keys())
    changes = [BundleChange(f"task {task}", old.slots.get(task), new.slots.get(task)) for task in tasks]
    changes += [
        BundleChange(name, getattr(old, name), getattr(new, name)) for name in ("router", "target", "draft", "id_map")
    ]
    return [change for change in changes if change.before != change.after]


def prune(root: Path, keep: int) -> list[str]:
    """Delete all but the `keep` (at least 1) bundles that were live last, candidates that came after the live one, and
    the parts that they use.

    Returns the deleted versions. They cannot be deployed again. Parts that a service has loaded may be deleted.
    """
    with _writing(root):
        barred = _read_blocked(root)
        live = _open_live(root, barred).bundle
        if live is None:
            return []
        earlier, _ = read_history(root / _LIVE)
        served = (version for version in earlier if version not in barred)
        versions = list(dict.fromkeys([live.manifest.version, *served]))[: max(1, keep)]
        write_history(root / _LIVE, versions)
        manifests = read_manifests(root / _MANIFESTS)
        later = (manifest.version for manifest in manifests if manifest.created > live.manifest.created)
        remaining = {*versions, *(version for version in later if version not in earlier)}
        deleted = [file for file in (root / _MANIFESTS).glob("*.json") if file.stem not in remaining]
        for file in deleted:
            file.unlink()
        drop_shadows(root, remaining)
        parts = {part for manifest in manifests if manifest.version in remaining for part in manifest.parts}
        for directory in (root / _PARTS).iterdir():
            if directory.name not in parts:
                shutil.rmtree(directory)
        return sorted(file.stem for file in deleted)


def _base_of(root: Path, part: str | None) -> str | None:
    """The part that an adapter is for; None if this part is no such adapter."""
    return None if part is None else base_part(root / _PARTS / part)


def _slot(winner: Winner, part: str | None) -> Slot:
    return Slot(part=part, decision=winner.decision, reason=winner.reason, scores=winner.scores)


def _stored(root: Path, manifest: Manifest) -> Manifest:
    """The manifest with its version, written if it is new."""
    sealed = seal(manifest)
    if wrong := _part_problems(root, sealed):
        raise ConfigError(f"nothing was published: {wrong[0]}")
    earlier = read_manifest(root / _MANIFESTS, sealed.version)
    if isinstance(earlier, Manifest):
        return earlier
    write_manifest(root / _MANIFESTS, sealed)
    return sealed


def _put_first(root: Path, version: str) -> None:
    earlier, _ = read_history(root / _LIVE)
    write_history(root / _LIVE, list(dict.fromkeys([version, *earlier])))


def _read_blocked(root: Path) -> dict[str, str]:
    """For those who write: what they took for none, they would unblock. Raises `OSError` and `ConfigError`."""
    try:
        return msgspec.json.decode((root / _BLOCKED).read_bytes(), type=dict[str, str])
    except FileNotFoundError:
        return {}
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{root / _BLOCKED} does not say which bundles are blocked: {error}; write versions and reasons, such as "
            '{"0123456789abcdef": "worse"}, or delete it if none is'
        ) from error


def _write_blocked(root: Path, versions: Mapping[str, str]) -> None:
    replace(root / _BLOCKED, msgspec.json.format(msgspec.json.encode(versions, order="sorted"), indent=2) + b"\n")


def _part_problems(root: Path, manifest: Manifest) -> list[Problem]:
    return [problem for part, files in manifest.parts.items() for problem in problems(root / _PARTS / part, files)]


@contextmanager
def _writing(root: Path) -> Iterator[None]:
    """Lock the root, make its directories and delete temporary files of killed writers."""
    for directory in (root / _PARTS, root / _MANIFESTS):
        directory.mkdir(parents=True, exist_ok=True)
    with (root / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the kernel releases it however the process ends
        for leftover in (file for place in (root, *root.iterdir()) for file in place.glob(f"{ASIDE}*")):
            if leftover.is_dir():
                shutil.rmtree(leftover)
            else:
                leftover.unlink()
        sync(root)
        yield
