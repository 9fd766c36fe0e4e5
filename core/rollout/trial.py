"""The test that judges a canary, and any bundle on trial: whether its drafts do worse than those before, beyond chance.

An answer is one observation: the share of the tokens judged by the target that were accepted, in [0, 1]. Judged are the
accepted tokens of a pass and the first rejected one, so the share does not depend on how many are proposed. It is that
of all drafts of the answer, whichever they were: another partition, or a move to another slot, changes who drafts for a
prompt, and the share of a slot with it. The reference is what the replaced bundle reached, by its lower confidence
limit: over all answers, and for each routed task if the router has stayed, since only then are the prompts alike.

The test is one of betting (Waudby-Smith, Ramdas 2024, "Estimating means of bounded random variables by betting"): money
is staked on every answer being worse than the reference. If the candidate is no worse, the money is a supermartingale
and reaches 1/alpha with a chance of alpha at most (Ville), however often it is looked at. So looking after every answer
costs nothing, and a bundle that is as good as the old one is rolled back with a chance of `ERROR_RATE` at most. That
holds if prompts stay as easy to draft for as those of the reference: a trial cannot tell worse drafts from traffic that
became harder, so it does not go on for long.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import NamedTuple

ERROR_RATE = 0.05  # chance that a bundle which is as good is rolled back: half for the references, half for the bets
MARGIN = 0.02  # of acceptance: a fall that is not worth a rollback
ALL = "*"  # no task's name: stands for the answers of all tasks
FEWEST = 30  # answers that make a reference
_STAKES = (0.1, 0.25, 0.5, 0.75)  # of what may be staked at most, a quarter of the money on each


class JudgedAnswer(NamedTuple):
    """What the target judged of the drafts of an answer: `accepted` of `judged` tokens, at least one.

    `task` is that of its prompt, as the router says.
    """

    task: str
    judged: int
    accepted: int

    @property
    def share(self) -> float:
        return self.accepted / self.judged


class AcceptanceStats(NamedTuple):
    """The accepted shares of answers: their number, mean, and sum of squared deviations (Welford)."""

    answers: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def plus(self, share: float) -> AcceptanceStats:
        answers, off = self.answers + 1, share - self.mean
        mean = self.mean + off / answers
        return AcceptanceStats(answers, mean, self.squares + off * (share - mean))

    def lower_limit(self, alpha: float) -> float:
        """The mean's lower confidence limit, by the normal law: the shares are bounded and `FEWEST` or more."""
        error = math.sqrt(self.squares / (self.answers - 1) / self.answers)
        return self.mean - NormalDist().inv_cdf(1.0 - alpha) * error


ByTask = Mapping[str, AcceptanceStats]  # of `ALL`, and of each task


def plus(stats: ByTask, answer: JudgedAnswer) -> ByTask:
    """The figures with one answer more."""
    more = {name: stats.get(name, AcceptanceStats()).plus(answer.share) for name in (ALL, answer.task)}
    return {**stats, **more}


def references(stats: ByTask) -> ByTask:
    """The figures with enough answers to hold another bundle to."""
    return {name: of_task for name, of_task in stats.items() if of_task.answers >= FEWEST}


class Worse(NamedTuple):
    """The task whose answers are drafted worse, or `ALL`; the acceptance now and before."""

    task: str
    answers: int
    acceptance: float
    reference: float

    def __str__(self) -> str:
        which = "" if self.task == ALL else f" of {self.task}"
        return (
            f"drafts had {self.acceptance:.2f} of the judged tokens accepted in {self.answers} answers{which}, "
            f"those before {self.reference:.2f}"
        )


@dataclass(frozen=True)
class Bets:
    """Money staked on shares lying below `mean`, in (0, 1); each part stakes another share of what it may."""

    mean: float
    logs: tuple[float, ...] = (0.0,) * len(_STAKES)

    def plus(self, share: float) -> Bets:
        gain = (self.mean - share) / (1.0 - self.mean)  # at least -1: no stake can lose more than itself
        logs = (log + math.log1p(stake * gain) for log, stake in zip(self.logs, _STAKES, strict=True))
        return replace(self, logs=tuple(logs))

    @property
    def log_money(self) -> float:
        """The logarithm of the money, which began with 1."""
        largest = max(self.logs)
        return largest + math.log(sum(math.exp(log - largest) for log in self.logs) / len(self.logs))


@dataclass(frozen=True)
class Comparison:
    """The answers of a bundle, compared with the `references` of the one before, by task, `ALL` among them."""

    references: ByTask
    bets: Mapping[str, Bets]
    log_ruin: float  # where the money proves it worse
    stats: ByTask = field(default_factory=dict)

    @classmethod
    def with_references(cls, references: ByTask) -> Comparison:
        alpha = ERROR_RATE / 2.0 / max(1, len(references))
        means = {name: stats.lower_limit(alpha) - MARGIN for name, stats in references.items()}
        return cls(references, {name: Bets(mean) for name, mean in means.items() if mean > 0.0}, math.log(1.0 / alpha))

    @property
    def answers(self) -> int:
        """The number of those compared."""
        return self.stats[ALL].answers if self.stats else 0

    def plus(self, answer: JudgedAnswer) -> tuple[Comparison, Worse | None]:
        """With one answer more; and the finding if that proves the drafts worse than those before."""
        names = [name for name in (ALL, answer.task) if name in self.bets]
        bets = {**self.bets, **{name: self.bets[name].plus(answer.share) for name in names}}
        after = replace(self, bets=bets, stats=plus(self.stats, answer))
        worse = next((name for name in names if bets[name].log_money >= self.log_ruin), None)
        return after, None if worse is None else after._finding(worse)

    def _finding(self, task: str) -> Worse:
        stats = self.stats[task]
        return Worse(task, stats.answers, stats.mean, self.references[task].mean)
