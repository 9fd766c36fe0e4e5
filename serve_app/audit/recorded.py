"""Recorded answers with what they are called, and those that cannot be audited with the reason."""

from __future__ import annotations

from dataclasses import dataclass, field

from core.audit.audit import Question


@dataclass(frozen=True)
class NamedAnswer:
    """A recorded answer; `name` tells its user which one it is."""

    name: str
    question: Question


@dataclass(frozen=True)
class Lack:
    """An answer that cannot be audited, and why; or one that is `missing`: asked for, and not given."""

    name: str
    reason: str
    missing: bool = False


@dataclass
class Recording:
    """What a file or a directory has: answers, those left out, and what is to be said of all of them."""

    answers: list[NamedAnswer] = field(default_factory=list)
    lacks: list[Lack] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
