"""Whatever happens in whatever order, a rollout ends in a state that serves, and no blocked bundle comes back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import ConfigError
from core.rollout.events import (
    AllFollow,
    AnswerEnded,
    Block,
    BlockingEnded,
    Deploy,
    Effect,
    EndOthers,
    Event,
    GoLive,
    GoLiveEnded,
    Looked,
    NotStarted,
    Prove,
    Release,
    Start,
    Started,
    Version,
)
from core.rollout.state import Canary, GoingBack, Steady, Trial, first_state, todo
from core.rollout.step import UNDRAFTED, RolloutRules, step
from core.rollout.trial import FEWEST, JudgedAnswer

VERSIONS = ("a", "b", "c")


class Directory:
    """The bundles that were live, the newest first, and which are blocked or proven."""

    def __init__(self, version: Version) -> None:
        self.history: list[str] = [] if version is None else [version]
        self.blocked: dict[str, str] = {}
        self.proven: set[str] = set()

    @property
    def live(self) -> Version:
        return next((version for version in self.history if version not in self.blocked), None)

    def publish(self, version: str) -> None:
        self.history = [version, *(other for other in self.history if other != version)]

    def go_live(self, version: str) -> None:
        self.blocked.pop(version, None)
        self.publish(version)


class World:
    """A service, its directory, which others change too, and the effects that are under way."""

    def __init__(self, first: Version, rules: RolloutRules) -> None:
        self.rules = rules
        self.directory = Directory(first)
        self.state = self.stored = first_state(release(first), first)
        self.under_way = list(todo(self.state))
        self.pools: set[Version] = {first}
        self.failed: set[Version] = set()
        self.forced: set[Version] = set()
        self.rolled_back: set[Version] = set()

    def take(self, event: Event) -> None:
        before = self.state
        self.state, effects = step(before, event, self.rules)
        if not isinstance(event, AnswerEnded) or effects or self.state.last != before.last:
            self.stored = self.state
        if isinstance(self.state.phase, GoingBack):
            self.rolled_back.add(self.state.phase.version)
        if EndOthers() in effects:
            assert not any(isinstance(effect, Start) for effect in self.under_way)
            self.pools &= self.state.in_use
        self.under_way += [effect for effect in effects if effect != EndOthers()]
        for version in self.state.in_use - before.in_use - {before.base}:
            assert version in self.pools, "serves before its pools run"
            assert version not in self.directory.blocked or version in self.forced, "a blocked bundle comes back"
            assert version not in self.rolled_back, "a bundle that was rolled back comes back"
        self.check()

    def check(self) -> None:
        starts = [effect for effect in self.under_way if isinstance(effect, Start)]
        assert len(starts) <= 1, "two bundles are taken up at a time"
        assert self.state.in_use
        assert self.state.in_use <= self.pools | self.failed, "the pools of what serves were ended"
        assert todo(self.stored) == todo(self.state), "a restart would do something else"
        assert (self.stored.split, self.stored.excluded) == (self.state.split, self.state.excluded)

    def look(self) -> None:
        directory = self.directory
        self.take(Looked(directory.live, directory.live in directory.proven, dict(directory.blocked)))
        self.check_canary()

    def check_canary(self) -> None:
        phase = self.state.phase
        blocked = isinstance(phase, Canary) and not phase.forced and phase.candidate.version in self.directory.blocked
        assert not blocked, "a canary goes on that another service blocked"

    def publish(self, version: str) -> None:
        self.directory.publish(version)

    def block(self, version: str) -> None:
        """Another service does."""
        self.directory.blocked[version] = "worse elsewhere"

    def block_canary(self) -> None:
        if self.state.split.candidate is not None:
            self.block(self.state.split.candidate)

    def deploy(self, version: str, share: float, force: bool) -> None:
        directory = self.directory
        reason, proven = directory.blocked.get(version), version in directory.proven
        with suppress(ConfigError):
            before = self.rolled_back
            self.rolled_back = before - {version}
            self.forced |= {version} if force else set()
            self.take(Deploy(version, share, force, directory.live, proven, reason))

    def answer(self, of_candidate: bool, accepted: int | None, count: int) -> None:
        split = self.state.split
        version = split.candidate if of_candidate else split.served
        for _ in range(count):
            self.take(AnswerEnded(version, None if accepted is None else JudgedAnswer("math", 10, accepted)))

    def follow(self) -> None:
        self.take(AllFollow())

    def end(self, position: int, fails: bool) -> None:
        """One of the effects under way ends."""
        if self.under_way:
            for event in self.perform(self.under_way.pop(position % len(self.under_way)), fails=fails):
                self.take(event)

    def end_all(self, fails: bool = False) -> None:
        while self.under_way:
            self.end(0, fails)

    def try_out(self, version: str, share: float) -> None:
        """An operator deploys it beside a base that has a reference, and it serves."""
        self.answer(False, 8, FEWEST)
        self.deploy(version, share, False)
        self.end_all()

    def die(self, performed: bool) -> None:
        """Perhaps after an effect was performed, and before it was told."""
        if performed and self.under_way:
            self.perform(self.under_way[-1], fails=False)
        self.state = self.stored
        self.under_way = list(todo(self.state))

    def perform(self, effect: Effect, *, fails: bool) -> list[Event]:
        directory = self.directory
        match effect:
            case Start(version, _) if fails:
                self.failed.add(version)
                return [NotStarted(version, "no room", final=version == "a")]
            case Start(version, others):
                self.pools |= {version, *others}
                return [Started(release(version), directory.blocked.get(str(version)))]
            case Block() if fails:
                return [BlockingEnded("read-only")]
            case Block(version, reason):
                directory.blocked[version] = reason
                return [BlockingEnded()]
            case GoLive() if fails:
                return [GoLiveEnded("read-only")]
            case GoLive(version, instead_of):
                if directory.live == instead_of:
                    directory.go_live(version)
                return [GoLiveEnded()]
            case Prove(version):
                directory.proven.add(version)
        return []


def release(version: Version) -> Release:
    return Release(version, "one router" if version != "c" else "another")


Move = tuple[Callable[..., None], tuple[object, ...]]
MOVES: list[Move] = [
    *((move, (version,)) for move in (World.publish, World.block) for version in VERSIONS),
    *((World.deploy, (version, share, False)) for share in (0.0, 0.2) for version in VERSIONS),
    *((World.deploy, (version, share, True)) for share in (0.0, 0.2) for version in "ab"),
    *((World.answer, (of_candidate, accepted, FEWEST)) for of_candidate in (True, False) for accepted in (8, 1)),
    *((World.answer, (of_candidate, accepted, 3)) for of_candidate in (True, False) for accepted in (8, None)),
    (World.answer, (True, None, UNDRAFTED * 20)),
    *((World.end, (position, fails)) for position in (0, 1) for fails in (True, False)),
    *((World.die, (performed,)) for performed in (True, False)),
    *((move, ()) for move in (World.look, World.follow, World.end_all) for _ in range(4)),
    *((World.try_out, (version, share)) for share in (0.0, 0.2) for version in VERSIONS),
    (World.end_all, (True,)),
    *((World.answer, (of_candidate, 1, 20)) for of_candidate in (True, False)),
    *((World.block_canary, ()) for _ in range(2)),
]


@settings(max_examples=250)
@given(
    st.sampled_from([None, "a", "b"]),
    st.sampled_from([(True, 0.0), (True, 0.1), (False, 0.0)]),
    st.lists(st.sampled_from(MOVES), min_size=40, max_size=40),
)
def test_in_any_order(first: Version, following: tuple[bool, float], moves: list[Move]) -> None:
    world = World(first, RolloutRules(*following, canary_answers=20, trial_answers=30))
    for move, arguments in moves:
        move(world, *arguments)
    for _ in range(8):
        world.look()
        world.end_all()
    state, live = world.state, world.directory.live
    assert isinstance(state.phase, Steady | Canary | Trial)
    assert not state.busy
    assert not world.rules.follow or live is None or live in state.in_use | state.excluded
