"""The transitions of a rollout, of its canary too: from a state and an event to the next state, and the effects."""

from __future__ import annotations

from dataclasses import dataclass, replace

from core.errors import ConfigError
from core.rollout.events import (
    NONE,
    AllFollow,
    AnswerEnded,
    BlockingEnded,
    Deploy,
    Effect,
    EndOthers,
    Event,
    GoLive,
    GoLiveEnded,
    Looked,
    NotStarted,
    Release,
    Started,
    Version,
)
from core.rollout.state import Canary, GoingBack, RolloutState, Serving, Starting, Steady, Trial, todo
from core.rollout.trial import ALL, FEWEST, ByTask, Comparison, JudgedAnswer, Worse, plus, references

UNDRAFTED = 10  # times `canary_answers`: answers in a row without a proposal by a draft, after which a canary ends


@dataclass(frozen=True)
class RolloutRules:
    """How a service takes up bundles; see `rollout` in its configuration."""

    follow: bool = True
    canary: float = 0.0
    canary_answers: int = 200
    trial_answers: int = 2000


def step(state: RolloutState, event: Event, rules: RolloutRules) -> tuple[RolloutState, tuple[Effect, ...]]:
    """The state after an event, and the effects that begin with it.

    Raises `ConfigError` if an operator may not deploy that version now.
    """
    after = _after(state, event, rules)
    under_way = todo(state)
    effects = [effect for effect in todo(after) if effect not in under_way]
    if isinstance(event, AllFollow) and not isinstance(after.phase, Starting | GoingBack):
        effects.append(EndOthers())
    return after, tuple(effects)


def _after(state: RolloutState, event: Event, rules: RolloutRules) -> RolloutState:
    match event:
        case Looked():
            return _looked(replace(state, live=event.live), event, rules)
        case Deploy():
            return _deploy(replace(state, live=event.live), event)
        case Started():
            return _started(state, event)
        case NotStarted():
            return _not_started(state, event)
        case BlockingEnded(error):
            return _blocked(state, "is blocked" if error is None else f"could not be blocked ({error})")
        case GoLiveEnded():
            return _gone_live(state, event)
        case AnswerEnded(version, answer):
            return _judge(state, *_count(state.serving, version, answer), rules)
        case AllFollow():
            return state


def _looked(state: RolloutState, event: Looked, rules: RolloutRules) -> RolloutState:
    """End a canary that another service blocked, or take up the live bundle, which ends a canary or trial unjudged."""
    phase, version = state.phase, event.live
    if isinstance(phase, Canary) and not phase.forced and str(phase.candidate.version) in event.blocked:
        reason = event.blocked[str(phase.candidate.version)]
        return _end_canary(state, phase, f"another service blocked it: {reason}")
    unfit = version in state.in_use or version in state.excluded or version in event.blocked
    if not rules.follow or version is None or state.busy or unfit:
        return state
    judged = not event.proven and version != state.base
    return _start(state, version, rules.canary if judged else 0.0, judged=judged)


def _deploy(state: RolloutState, event: Deploy) -> RolloutState:
    """Take up a version, or end or change the canary.

    One that is proven or forced is not judged but as a canary: somebody goes back to it.
    """
    serving, served, version = state.serving, state.split.served, event.version
    if state.busy:
        raise ConfigError("another bundle is being taken up; wait until `taskspec status` does not say so")
    if isinstance(serving, Canary):
        return _deploy_beside(state, serving, event)
    if version == (served or NONE):
        return replace(state, last=f"bundle {version} serves already")
    if event.share and isinstance(serving, Trial):
        raise ConfigError(f"bundle {served} is on trial; wait until it has passed, or leave --canary out")
    if event.blocked is not None and not event.force:
        raise ConfigError(f"bundle {version} is blocked: {event.blocked}.\nWrite --force to deploy it all the same.")
    judged = event.share > 0.0 or not (event.force or event.proven or version == state.base)
    return _start(state, version, event.share, judged=judged, forced=event.force)


def _deploy_beside(state: RolloutState, canary: Canary, event: Deploy) -> RolloutState:
    base, version = canary.base.version or NONE, event.version
    if version == base:
        return _exclude(_end_canary(state, canary, "an operator keeps the one before"), str(canary.candidate.version))
    if version != canary.candidate.version:
        raise ConfigError(
            f"bundle {canary.candidate.version} is a canary. Deploy it to every prompt, or end it with "
            f"`taskspec bundles deploy {base}`."
        )
    if not event.share:
        return _promote(state, canary)
    last = f"bundle {version} has {event.share:.0%} of the prompts"
    return replace(state, phase=replace(canary, share=event.share), last=last)


def _start(state: RolloutState, version: str, share: float, *, judged: bool, forced: bool = False) -> RolloutState:
    starting = Starting(state.serving, version, share, judged, forced, state.live)
    return replace(state, phase=starting, last=f"bundle {version}: its pools are starting")


def _started(state: RolloutState, event: Started) -> RolloutState:
    phase, release = state.phase, event.release
    if isinstance(phase, GoingBack):
        return _base_runs(state, phase, release.version)
    if not isinstance(phase, Starting) or phase.version != release.version:
        return state
    if event.blocked is not None and not phase.forced:
        return _not_started(state, NotStarted(phase.version, f"it was blocked meanwhile: {event.blocked}"))
    serving, state = phase.serving, replace(state, excluded=state.excluded - {phase.version})
    if not phase.judged:
        stats = serving.stats if release.version == serving.base.version else {}
        return _serve_all(state, Steady(release, stats), phase.version, phase.live)
    comparison = Comparison.with_references(_references(serving.base, serving.stats, release))
    if not phase.share:
        return _serve_all(state, Trial(serving.base, serving.stats, release, comparison), phase.version, phase.live)
    canary = Canary(serving.base, serving.stats, release, phase.share, comparison, phase.forced)
    return replace(state, phase=canary, last=f"bundle {phase.version} has {phase.share:.0%} of the prompts")


def _not_started(state: RolloutState, event: NotStarted) -> RolloutState:
    phase = state.phase
    if isinstance(phase, GoingBack):
        return _base_runs(state, phase, event.version)  # answers without drafts are slower and as good
    if not isinstance(phase, Starting) or phase.version != event.version:
        return state
    state = replace(state, phase=phase.serving)
    if not event.final:
        return replace(state, last=f"failed: {event.reason}")
    return _exclude(replace(state, last=f"bundle {phase.version} is not served: {event.reason}"), phase.version)


def _gone_live(state: RolloutState, event: GoLiveEnded) -> RolloutState:
    entry, state = state.going_live, replace(state, going_live=None)
    if entry is None or event.error is None:
        return state
    state = replace(state, last=f"failed: {event.error}")
    return state if entry.instead_of is None else _exclude(state, entry.instead_of)


def _count(serving: Serving, version: Version, answer: JudgedAnswer | None) -> tuple[Serving, Worse | None]:
    """What serves, with one answer more, and the finding if its drafts are proven worse."""
    match serving:
        case Steady() if answer is not None and version == serving.base.version:
            return replace(serving, stats=plus(serving.stats, answer)), None
        case Canary() if answer is not None and version == serving.base.version:
            return _count_beside(replace(serving, stats=plus(serving.stats, answer))), None
        case Canary() if answer is None and version == serving.candidate.version:
            return replace(serving, undrafted=serving.undrafted + 1), None
        case Canary() if answer is not None and version == serving.candidate.version:
            comparison, worse = serving.comparison.plus(answer)
            return replace(serving, comparison=comparison, undrafted=0), worse
        case Trial() if answer is not None and version == serving.candidate.version:
            comparison, worse = serving.comparison.plus(answer)
            return replace(serving, comparison=comparison), worse
    return serving, None


def _count_beside(canary: Canary) -> Canary:
    """A canary that had nothing to be held to is compared from when there is something."""
    limits = {} if canary.comparison.references else _references(canary.base, canary.stats, canary.candidate)
    return replace(canary, comparison=Comparison.with_references(limits)) if limits else canary


def _judge(state: RolloutState, serving: Serving, worse: Worse | None, rules: RolloutRules) -> RolloutState:
    state = state.with_serving(serving)
    if state.busy or isinstance(serving, Steady):
        return state
    if worse is not None:
        return _go_back(state, serving, str(worse))
    answers = serving.comparison.answers
    if isinstance(serving, Trial):
        return _accept(state, serving) if answers >= rules.trial_answers else state
    if serving.undrafted >= UNDRAFTED * rules.canary_answers:
        state = _end_canary(state, serving, f"its drafts proposed nothing in its last {serving.undrafted} answers")
        return _exclude(state, str(serving.candidate.version))
    return _promote(state, serving) if answers >= rules.canary_answers else state


def _accept(state: RolloutState, trial: Trial) -> RolloutState:
    comparison = trial.comparison
    how = f"has passed its trial of {comparison.answers} answers"
    if not comparison.references:
        how = f"serves every prompt, not judged: the one before had fewer than {FEWEST} drafted answers"
    last = f"bundle {trial.candidate.version} {how}"
    return replace(state, phase=Steady(trial.candidate, comparison.stats), last=last)


def _go_back(state: RolloutState, serving: Canary | Trial, reason: str) -> RolloutState:
    version = str(serving.candidate.version)
    phase = GoingBack(serving, version, reason)
    return _exclude(replace(state, phase=phase, last=f"bundle {version} is rolled back: {reason}"), version)


def _base_runs(state: RolloutState, phase: GoingBack, version: Version) -> RolloutState:
    """The base takes every prompt, with its drafts or without."""
    if version != phase.serving.base.version:
        return state
    return _back(state.with_serving(Steady(phase.serving.base, phase.serving.stats)))


def _blocked(state: RolloutState, outcome: str) -> RolloutState:
    phase = state.phase
    return _back(replace(state, phase=replace(phase, outcome=outcome))) if isinstance(phase, GoingBack) else state


def _back(state: RolloutState) -> RolloutState:
    """Steady, once the base serves and blocking is over."""
    phase = state.phase
    if not isinstance(phase, GoingBack) or phase.outcome is None or not isinstance(phase.serving, Steady):
        return state
    last = f"bundle {phase.version} was rolled back and {phase.outcome}: {phase.reason}"
    return replace(state, phase=phase.serving, last=last)


def _end_canary(state: RolloutState, canary: Canary, reason: str) -> RolloutState:
    """The base keeps every prompt, and is live again if the canary was."""
    base, version = canary.base.version, str(canary.candidate.version)
    entry = GoLive(base, version) if base is not None and state.live == version else None
    last = f"the canary of bundle {version} was ended: {reason}"
    return replace(state, phase=Steady(canary.base, canary.stats), going_live=entry, last=last)


def _promote(state: RolloutState, canary: Canary) -> RolloutState:
    """A canary gets every prompt, and remains on trial."""
    trial = Trial(canary.base, canary.stats, canary.candidate, canary.comparison)
    return _serve_all(state, trial, str(canary.candidate.version), state.live)


def _serve_all(state: RolloutState, phase: Steady | Trial, version: str, live: Version) -> RolloutState:
    """Every prompt goes to this version, which becomes live, unless another one does by then than was `live` before."""
    entry = None if version == live else GoLive(version, live)
    return replace(state, phase=phase, going_live=entry, last=f"bundle {version} serves every prompt")


def _exclude(state: RolloutState, version: str) -> RolloutState:
    return replace(state, excluded=state.excluded | {version})


def _references(base: Release, stats: ByTask, release: Release) -> ByTask:
    """What a new release is held to; by task only if prompts are divided as before.

    One that replaces another on trial is held to the same, or else drafts could get worse little by little.
    """
    by_task = references(stats)
    return by_task if release.router == base.router else {name: by_task[name] for name in by_task if name == ALL}
