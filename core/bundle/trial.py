"""The trial of a bundle in service: whether its drafts do worse than those that it replaced, beyond chance.

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

import copy
import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import NamedTuple

import msgspec

ERROR_RATE = 0.05  # chance that a bundle which is as good is rolled back: half for the references, half for the bets
MARGIN = 0.02  # of acceptance: a fall that is not worth a rollback
ALL = "*"  # no task's name: stands for the answers of all tasks
FEWEST = 30  # answers that make a reference
_STAKES = (0.1, 0.25, 0.5, 0.75)  # of what may be staked at most, a quarter of the money on each


class Answer(NamedTuple):
    """What the target judged of the drafts of an answer: `accepted` of `judged` tokens, at least one.

    `task` is that of its prompt, as the router says.
    """

    task: str
    judged: int
    accepted: int

    @property
    def share(self) -> float:
        return self.accepted / self.judged


class Record(msgspec.Struct):
    """The shares of answers: their number, mean, and sum of squared deviations (Welford)."""

    answers: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, share: float) -> None:
        self.answers += 1
        off = share - self.mean
        self.mean += off / self.answers
        self.squares += off * (share - self.mean)

    def lowest(self, alpha: float) -> float:
        """The mean's lower confidence limit, by the normal law: the shares are bounded and `FEWEST` or more."""
        error = math.sqrt(self.squares / (self.answers - 1) / self.answers)
        return self.mean - NormalDist().inv_cdf(1.0 - alpha) * error


class Records:
    """The shares of answers: of `ALL`, and by task."""

    def __init__(self) -> None:
        self.found: dict[str, Record] = {}

    def add(self, answer: Answer) -> None:
        for name in (ALL, answer.task):
            self.found.setdefault(name, Record()).add(answer.share)

    def references(self) -> dict[str, Record]:
        """Those with enough answers, as they are now."""
        return {name: copy.copy(record) for name, record in self.found.items() if record.answers >= FEWEST}


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


class Trial:
    """The trial of a bundle, held to the `references` of the one before, by task, `ALL` among them."""

    def __init__(self, references: Mapping[str, Record]) -> None:
        self.references = dict(references)
        self.records = Records()
        alpha = ERROR_RATE / 2.0 / max(1, len(references))
        self._ruin = math.log(1.0 / alpha)
        lowest = {name: record.lowest(alpha) - MARGIN for name, record in references.items()}
        self._bets = {name: _Bets(mean) for name, mean in lowest.items() if mean > 0.0}

    @property
    def answers(self) -> int:
        """Those observed."""
        return self.records.found[ALL].answers if self.records.found else 0

    def observe(self, answer: Answer) -> Worse | None:
        """Learn from an answer; the finding if it proves the drafts worse than those before."""
        self.records.add(answer)
        for name in (ALL, answer.task):
            if name in self._bets and self._bets[name].place(answer.share) >= self._ruin:
                record = self.records.found[name]
                return Worse(name, record.answers, record.mean, self.references[name].mean)
        return None


class _Bets:
    """Money staked on shares lying below `mean`, in (0, 1); each part stakes another share of what it may."""

    def __init__(self, mean: float) -> None:
        self._mean = mean
        self._logs = [0.0] * len(_STAKES)

    def place(self, share: float) -> float:
        """The logarithm of the money after this answer; it began with 1."""
        gain = (self._mean - share) / (1.0 - self._mean)  # at least -1: no stake can lose more than itself
        self._logs = [log + math.log1p(stake * gain) for log, stake in zip(self._logs, _STAKES, strict=True)]
        most = max(self._logs)
        return most + math.log(sum(math.exp(log - most) for log in self._logs) / len(self._logs))
