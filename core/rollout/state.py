"""The state of a rollout: which release serves, which one has still to prove itself, and what is left to do.

A release is on trial as a canary, which gets a share of the prompts, or with every prompt. It is compared with the
base, the release that is gone back to. Every state names a release that serves the next prompt, and the effects under
way follow from the state (`todo`). So whoever stores the state goes on rightly from it after a crash.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from core.rollout.events import Block, Effect, GoLive, Prove, Release, Start, Version
from core.rollout.trial import ByTask, Comparison

StateName = Literal["steady", "starting", "canary", "trial", "going back"]


class Split(NamedTuple):
    """The version of the next prompt, and the one that gets a `share` of them instead."""

    served: Version
    candidate: Version = None
    share: float = 0.0


@dataclass(frozen=True)
class Steady:
    """The base serves every prompt, and has nothing to prove. `stats` are those of its answers."""

    base: Release
    stats: ByTask


@dataclass(frozen=True)
class Canary:
    """The candidate gets a `share` of the prompts, and the base the others.

    `undrafted` is the number of its last answers, in a row, that its drafts proposed nothing for. One that was `forced`
    serves although it is blocked.
    """

    base: Release
    stats: ByTask
    candidate: Release
    share: float
    comparison: Comparison
    forced: bool = False
    undrafted: int = 0


@dataclass(frozen=True)
class Trial:
    """The candidate serves every prompt. `stats` are those of the base before."""

    base: Release
    stats: ByTask
    candidate: Release
    comparison: Comparison


Serving = Steady | Canary | Trial


@dataclass(frozen=True)
class Starting:
    """The pools of `version` are starting; `serving` is what serves meanwhile.

    It will get a `share` of the prompts as a canary, or every prompt if that is 0, and is `judged` or trusted. `live`
    was the live version of the directory before.
    """

    serving: Serving
    version: str
    share: float
    judged: bool
    forced: bool
    live: Version


@dataclass(frozen=True)
class GoingBack:
    """`version` did worse. It is being blocked, and `serving` becomes steady once the pools of the base run.

    `outcome` says what came of blocking it, when that is over.
    """

    serving: Serving
    version: str
    reason: str
    outcome: str | None = None


@dataclass(frozen=True)
class RolloutState:
    """The state, with what holds in each of them.

    `live` is the live version of the directory as last read. The `excluded` versions are not followed: they could not
    start, were ended or rolled back. `going_live` is the entry of the directory that is being written. `last` says what
    happened last; every change of the state but by an answer that is only counted changes it too, or what is `todo`.
    """

    phase: Serving | Starting | GoingBack
    live: Version
    excluded: frozenset[str] = frozenset()
    going_live: GoLive | None = None
    last: str = ""

    @property
    def serving(self) -> Serving:
        return self.phase.serving if isinstance(self.phase, Starting | GoingBack) else self.phase

    @property
    def busy(self) -> bool:
        """Whether an effect is under way that no other may overtake."""
        return isinstance(self.phase, Starting | GoingBack) or self.going_live is not None

    @property
    def base(self) -> Version:
        return self.serving.base.version

    @property
    def split(self) -> Split:
        match self.serving:
            case Steady(base):
                return Split(base.version)
            case Canary(base, _, candidate, share):
                return Split(base.version, candidate.version, share)
            case Trial(_, _, candidate):
                return Split(candidate.version)

    @property
    def in_use(self) -> frozenset[Version]:
        """The versions that serve prompts."""
        split = self.split
        return frozenset({split.served} | ({split.candidate} if split.share else set()))

    @property
    def name(self) -> StateName:
        match self.phase:
            case Starting():
                return "starting"
            case GoingBack():
                return "going back"
            case Steady():
                return "steady" if self.going_live is None else "going back"
            case Trial():
                return "trial" if self.going_live is None else "starting"
            case Canary():
                return "canary"

    @property
    def comparison(self) -> Comparison | None:
        """That of the release on trial; None if none is."""
        serving = self.serving
        return None if isinstance(serving, Steady) else serving.comparison

    @property
    def stats(self) -> ByTask:
        """Those of the release on trial, or of the one that serves."""
        serving = self.serving
        return serving.stats if isinstance(serving, Steady) else serving.comparison.stats

    def with_serving(self, serving: Serving) -> RolloutState:
        """Other figures of what serves, in the same state."""
        phase = self.phase
        return replace(
            self, phase=replace(phase, serving=serving) if isinstance(phase, Starting | GoingBack) else serving
        )


def first_state(release: Release, live: Version) -> RolloutState:
    """That of a service which has just been deployed with this release."""
    return RolloutState(Steady(release, {}), live)


def todo(state: RolloutState) -> tuple[Effect, ...]:
    """The effects under way in a state. Each may be performed again after a crash, whatever came of it before."""
    effects: list[Effect] = []
    match state.phase:
        case Starting(_, version, share):
            # The pools of the base ended when every prompt went to the release on trial; a canary needs them again.
            others = (state.base,) if share and state.base not in state.in_use else ()
            effects.append(Start(version, others))
        case GoingBack(serving, version, reason, outcome):
            if not isinstance(serving, Steady):
                effects.append(Start(serving.base.version))
            if outcome is None:
                effects.append(Block(version, reason))
        case Steady(base) if base.version is not None:
            effects.append(Prove(base.version))
    if state.going_live is not None:
        effects.append(state.going_live)
    return tuple(effects)
