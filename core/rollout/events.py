"""What a rollout hears, and what it is to do: the events and effects of `core.rollout.step`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from core.rollout.trial import JudgedAnswer

Version = str | None  # of a bundle; None stands for the draft as it is, of a service without one
NONE = "none"  # how an operator writes that


class Release(NamedTuple):
    """A bundle in service. As long as the router stays, prompts are divided into tasks as before."""

    version: Version
    router: str | None


@dataclass(frozen=True)
class Looked:
    """The directory of bundles was read: which version is live, whether that is proven, and which are blocked."""

    live: Version
    proven: bool
    blocked: Mapping[str, str]


@dataclass(frozen=True)
class Deploy:
    """An operator deploys a version, to every prompt if `share` is 0; with what the directory says of it."""

    version: str
    share: float
    force: bool
    live: Version
    proven: bool
    blocked: str | None


@dataclass(frozen=True)
class Started:
    """The pools of a release run. `blocked` says why the directory has blocked it by now."""

    release: Release
    blocked: str | None = None


@dataclass(frozen=True)
class NotStarted:
    """The pools of a version do not run. The directory's live version is tried again, unless the failure is `final`."""

    version: Version
    reason: str
    final: bool = True


@dataclass(frozen=True)
class BlockingEnded:
    """A version was blocked in the directory, or could not be."""

    error: str | None = None


@dataclass(frozen=True)
class GoLiveEnded:
    """A version was made live in the directory, or need not be any more, or could not be."""

    error: str | None = None


@dataclass(frozen=True)
class AnswerEnded:
    """An answer with this version ended; `answer` is None if no draft proposed anything for it."""

    version: Version
    answer: JudgedAnswer | None


@dataclass(frozen=True)
class AllFollow:
    """Every ingress replica follows the split, and no running answer uses another version."""


Event = Looked | Deploy | Started | NotStarted | BlockingEnded | GoLiveEnded | AnswerEnded | AllFollow


@dataclass(frozen=True)
class Start:
    """Start the pools of a version, and those of `others`, which may fail. Ends with `Started` or `NotStarted`."""

    version: Version
    others: tuple[Version, ...] = ()


@dataclass(frozen=True)
class EndOthers:
    """End the pools of versions that do not serve."""


@dataclass(frozen=True)
class Block:
    """Block a version in the directory. Ends with `BlockingEnded`."""

    version: str
    reason: str


@dataclass(frozen=True)
class GoLive:
    """Make a version live in the directory, if `instead_of` still is. Ends with `GoLiveEnded`."""

    version: str
    instead_of: Version


@dataclass(frozen=True)
class Prove:
    """Note in the directory that a version needs no trial any more."""

    version: str


Effect = Start | EndOthers | Block | GoLive | Prove
