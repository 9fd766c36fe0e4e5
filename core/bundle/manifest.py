"""The manifest of a bundle: which part (blob) serves which task, and why; JSON, named by the hash of its content."""

from __future__ import annotations

import hashlib
import logging
import re
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import replace as changed

from core.atomic_files import replace
from core.bundle.blobs import Digest, Files, Problem
from core.errors import ConfigError

# Fields that are no part of the version while they are empty: older bundles lack them.
_ADDED = ("acceptance", "evidence", "words", "centroids", "costs")
_VERSION_LENGTH = 16  # hex digits
_VERSION = re.compile(f"[0-9a-f]{{{_VERSION_LENGTH}}}")
_log = logging.getLogger(__name__)


class Slot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The draft that serves a task: the digest of its part, or None for the draft without an adapter; and the reason.

    `decision` names the promoted candidate, such as `task`, `general` or `live`; `scores` has the speedup of each
    candidate on held-out prompts (`core.replay.speed`).
    """

    part: Digest | None
    decision: str
    reason: str
    scores: dict[str, float] = {}


class Evidence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What retrainings have seen of a task: the gain in speedup of its draft over the best single draft, as a share.

    `looks` counts the retrainings, `prompts` the held-out prompts of all of them.
    """

    gain: float
    variance: float
    prompts: int
    looks: int = 1


class MeasuredCosts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds that a retraining measured where it ran: what speedups are computed with.

    `passes` are of the target over 1, 2, ... rows; `tokens` are of a drafted one, by the draft's shape
    (`core.replay.speed.draft_shape`).
    """

    passes: tuple[float, ...]
    tokens: dict[str, float]


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bundle. `version` is the hash of all other fields except `created`, the time of its first publication.

    `target` and `draft` are names, not paths; `id_map` is the digest of the tokenizer's map from tokens to ids. An
    adapter whose configuration names another part is for that model, else for `draft`. `controls` are drafts that the
    promoted ones were compared with; they serve no task. `acceptance` has, by slot and task, the acceptance_rate of the
    slot's draft on held-out prompts of the task, `general` standing for all. Later retrainings add to `evidence`, and
    recognise the tasks by the part `centroids` (`core.tasks.identity`). `words` has the words that distinguish a task's
    prompts, the most telling first; none where prompts are kept in memory, as they would be words of theirs. Bundles of
    earlier versions have no `costs`: their scores and evidence are of acceptance_rate.
    """

    version: str
    created: Annotated[datetime, Meta(tz=True)]
    target: str
    draft: str
    id_map: str
    router: Digest | None
    slots: dict[str, Slot]
    controls: dict[str, Digest | None] = {}
    acceptance: dict[str, dict[str, float]] = {}
    evidence: dict[str, Evidence] = {}
    words: dict[str, tuple[str, ...]] = {}
    centroids: Digest | None = None
    costs: MeasuredCosts | None = None
    parts: dict[Digest, Files]


def seal(manifest: Manifest) -> Manifest:
    """`manifest` with its version. Raises `ConfigError` if a score is not a finite number."""
    try:
        manifest = _decode(msgspec.json.encode(manifest))  # as it will be read: 1 becomes 1.0, NaN null
    except msgspec.ValidationError as error:
        raise ConfigError(f"the manifest cannot be written: {error}") from error
    return changed(manifest, version=_content_version(manifest))


def write_manifest(manifests: Path, manifest: Manifest) -> None:
    content = msgspec.json.format(msgspec.json.encode(manifest, order="sorted"), indent=2)
    replace(_file(manifests, manifest.version), content + b"\n")


def read_manifest(manifests: Path, version: str) -> Manifest | Problem:
    """The manifest of this version, or the problem with its file."""
    if not _VERSION.fullmatch(version):
        return Problem(str(manifests), "a version", repr(version))
    file = _file(manifests, version)
    try:
        manifest = _decode(file.read_bytes())
    except OSError as error:
        return Problem(str(file), "a manifest", str(error.strerror))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Problem(str(file), "a manifest", str(error))
    for actual in (manifest.version, _content_version(manifest)):
        if actual != version:
            return Problem(str(file), f"version {version}", f"content of version {actual}")
    return manifest


def read_manifests(manifests: Path) -> list[Manifest]:
    """All readable manifests, the newest first."""
    readable = []
    for file in manifests.glob("*.json"):
        manifest = read_manifest(manifests, file.stem)
        if isinstance(manifest, Manifest):
            readable.append(manifest)
        else:
            _log.warning("manifest left out: %s", manifest)
    return sorted(readable, key=_age, reverse=True)


def write_history(file: Path, versions: list[str]) -> None:
    replace(file, "".join(f"{version}\n" for version in versions).encode())


def read_history(file: Path) -> tuple[list[str], list[Problem]]:
    """The versions in `file`, one per line, and the lines that are not versions; both empty without a file."""
    if not file.exists():
        return [], []
    content, width = file.read_bytes(), _VERSION_LENGTH + 1
    starts = range(0, max(1, len(content)), width)  # by length, so that a damaged line end loses no version
    lines = [content[at : at + width - 1].decode(errors="replace") for at in starts]
    versions = [line for line in lines if _VERSION.fullmatch(line)]
    return versions, [Problem(str(file), "a version", repr(line)) for line in lines if line not in versions]


def _decode(content: bytes) -> Manifest:
    return msgspec.json.decode(content, type=Manifest)


def _content_version(manifest: Manifest) -> str:
    content = msgspec.to_builtins(manifest)
    del content["version"], content["created"]
    for name in _ADDED:
        if not content[name]:
            del content[name]
    return hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()[:_VERSION_LENGTH]


def _file(manifests: Path, version: str) -> Path:
    return manifests / f"{version}.json"


def _age(manifest: Manifest) -> tuple[datetime, str]:
    return manifest.created, manifest.version
