"""Which draft proposes for an answer: the first choice by what the router says, and moves by what the target accepts.

Drafts are named here by the task that they were trained for. The router says of which task a prompt is. A draft is
worth the tokens per target pass that it is expected to bring, over all tasks that the prompt may be of. The first
choice is the draft that is worth most. So the router abstains where a mistake would cost more than the task's own draft
gains, and needs no fixed confidence for that.

While the target verifies, every pass tells more. A draft that does badly where the router promised well speaks for
another task, or for none: `general` is the hypothesis that every task's draft does badly and the general one as usual.
An answer moves to another draft where that clearly pays. Who proposes never shows in the answer (`core.verify`).

All that is known are counts of judged tokens: those accepted, and the first one rejected in a pass.

    rates      how often a draft is right on answers of a task: from the bundle, then learned
    trust      of what task answers prove to be whose prompts are routed to a task: from an even start, then learned
    evidence   how often each draft was right in this answer lately

All three are bounded and forget. What was learned from an answer is shared out over the tasks that it may be of. So the
rates stay those of tasks even if the router is wrong all the time, and then it is the trust that sinks: the next prompt
that is routed alike begins with the draft that was best. Answers of a task are not alike. The rate of a draft in one
answer is taken to be spread around that of the task (a beta law), so that no run of luck proves much.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache

from core.draft_key import GENERAL
from core.generation import Run
from core.policy.decayed import Decayed

MEMORY = 30.0  # passes that evidence lasts: an answer may change its task
SPREAD = 20.0  # judged tokens that the rate of a task is worth against the answer's own
LASTS = 8.0  # passes that a move is taken to pay for: half of a short answer, or of what evidence lasts
MOVE_PASSES = 3.0  # that a move costs: a Serve call, and computing the tokens so far where others want the cores
SURE = 0.8  # chance that another draft is better; luck feigns that in (1 - TRUST) / TRUST / 4 = 1.3 % of answers (Wald)
MOST_MOVES = 4  # of an answer: it cannot flap for long
TRUST = 0.95  # the chance that a prompt is of the task it was routed to, before any was
NONE = 0.5  # the chance that it is of no task, if it is not of that one
OWN, GENERALS, OTHERS = 0.5, 0.4, 0.1  # acceptance rates where the bundle tells none: of a task's own draft, and so on
RATED_LENGTH = 6  # tokens proposed for a pass where the bundle's acceptance rates were measured
_RATE_WEIGHT, _TRUST_WEIGHT = 500.0, 500.0  # judged tokens, of about 5 answers, that the start is worth
_LEARNED = 4000.0  # judged tokens, of about 40 answers, that are remembered of each draft on a task, and of each route
_RARELY, _MOSTLY = 0.01, 0.99  # bounds of a rate: nothing is certain
_NEVER = 0.001  # the chance below which a task is out of the question: all is computed again after every pass


class RoutingTable:
    """What all answers of a service share: the rates of drafts on tasks, and the trust in the router.

    There is a task for each draft, `general` among them. `acceptance` tells, by draft and task, the accepted share of
    proposed tokens; where it is silent, a draft is taken to be good at its own task and poor at all others.
    """

    def __init__(self, drafts: Iterable[str], acceptance: Mapping[str, Mapping[str, float]]) -> None:
        self.drafts = tuple(dict.fromkeys([*drafts, GENERAL]))
        self._rates = {
            (draft, task): Decayed(_LEARNED, token_rate(_acceptance(acceptance, draft, task)), _RATE_WEIGHT)
            for draft in self.drafts
            for task in self.drafts
        }
        self._proved = {routed: {task: Decayed(_LEARNED) for task in self.drafts} for routed in self.drafts}

    def rate(self, draft: str, task: str) -> float:
        """How often a token of the draft is accepted, those before it being so, in answers of a task."""
        return self._rates[draft, task].share

    def tasks(self, routed: Mapping[str, float]) -> dict[str, float]:
        """The chance of every task that the router knows, given its own; a task without a draft counts as none."""
        chances = {task: 0.0 for task in self.drafts if task in routed or task == GENERAL}
        for answer, chance in routed.items():
            trust = self._trust(self._task(answer))
            for task in chances:
                chances[task] += chance * trust[task]
        return _normalised(chances)

    def learn(self, routed: Mapping[str, float], draft: str, tasks: Mapping[str, float], run: Run) -> None:
        """Count tokens of the draft in an answer that is of each of `tasks` with so much chance."""
        proved = self._proved[self._task(max(routed, key=lambda task: routed[task]))]
        for task, chance in tasks.items():
            proved[task].observe(chance * run.num_judged, run.num_judged)
            if chance >= _NEVER:
                self._rates[draft, task].observe(chance * run.accepted, chance * run.num_judged)

    def _task(self, task: str) -> str:
        """The task, or `general` for one without a draft."""
        return task if task in self._proved else GENERAL

    def _trust(self, routed: str) -> dict[str, float]:
        """The chance of every task if the router is sure of one."""
        doubt = (1.0 - TRUST) * (1.0 - NONE) / len(self.drafts)
        start = dict.fromkeys(self.drafts, doubt)
        start[GENERAL] += (1.0 - TRUST) * NONE
        start[routed] += TRUST
        proved = self._proved[routed]
        return _normalised({task: _TRUST_WEIGHT * start[task] + proved[task].successes for task in self.drafts})


class AnswerRoute:
    """The draft that proposes for one answer, by the router's chances of tasks and what was accepted so far.

    `length` is the most tokens proposed for a pass. `excluded` drafts are not chosen first, if there are others.
    `tasks` has the chance of every task, all evidence considered.
    """

    def __init__(
        self, table: RoutingTable, routed: Mapping[str, float], length: int, excluded: Collection[str] = ()
    ) -> None:
        self._table = table
        self.tasks = table.tasks(routed)
        self._routed = routed
        self._length = length
        self._prior = self.tasks
        self._evidence: dict[str, Decayed] = {}
        self._moves = 0
        self.draft = GENERAL
        self.draft = self._best(self.worth(), excluded)

    def observe(self, run: Run) -> None:
        """Count a pass with proposals of the draft."""
        for evidence in self._evidence.values():
            evidence.fade(1.0 - 1.0 / MEMORY)
        self._evidence.setdefault(self.draft, Decayed(MEMORY, weight=SPREAD)).add(run.accepted, run.num_judged)
        self.tasks = self._judge()
        self._table.learn(self._routed, self.draft, self.tasks, run)

    def worth(self) -> dict[str, float]:
        """Expected tokens of a pass, by draft."""
        worth = dict.fromkeys(self.tasks, 0.0)
        for task, chance in self.tasks.items():
            if chance >= _NEVER:
                for draft in worth:
                    worth[draft] += chance * expected_tokens(self._rate(draft, task), self._length)
        return worth

    def better(self, excluded: Collection[str], remaining: int) -> str | None:
        """The draft to move to, none of the excluded ones, if the present is surely not the best and the move pays.

        It must pay within the remaining tokens.
        """
        if self._moves >= MOST_MOVES or not self._evidence:
            return None
        worth = self.worth()
        best = self._best(worth, excluded)
        passes = min(LASTS, remaining / worth[self.draft])
        if (worth[best] - worth[self.draft]) * passes <= MOVE_PASSES * worth[self.draft]:
            return None
        return best if self._chance_of_better() >= SURE else None

    def move(self, draft: str) -> None:
        """From now on this draft proposes."""
        self._moves += 1
        self.draft = draft

    def _best(self, worth: Mapping[str, float], excluded: Collection[str]) -> str:
        """The draft worth most; the present one if it is worth as much, or if all are excluded."""
        candidates = [draft for draft in (self.draft, *worth) if draft not in excluded] or [self.draft]
        return max(candidates, key=lambda draft: worth[draft])

    def _chance_of_better(self) -> float:
        """The chance that another draft than the present would be accepted more."""
        likely = {task: chance for task, chance in self.tasks.items() if chance >= _NEVER}
        best = {task: max(self._rate(draft, task) for draft in self.tasks) for task in likely}
        return sum(chance for task, chance in likely.items() if best[task] > self._rate(self.draft, task))

    def _judge(self) -> dict[str, float]:
        logs = {
            task: math.log(chance) + sum(self._log_likelihood(draft, task) for draft in self._evidence)
            for task, chance in self._prior.items()
        }
        largest = max(logs.values())
        return _normalised({task: math.exp(log - largest) for task, log in logs.items()})

    def _rate(self, draft: str, task: str) -> float:
        """The rate of a draft in this answer, if it is of this task.

        An answer that is hard for the draft at work is taken to be as hard for those that were not tried.
        """
        usual, evidence = self._table.rate(draft, task), self._evidence.get(draft)
        if evidence is not None:
            return evidence.share_from(usual)
        if self.draft not in self._evidence:
            return usual
        return usual * min(1.0, self._rate(self.draft, task) / self._table.rate(self.draft, task))

    def _log_likelihood(self, draft: str, task: str) -> float:
        """Of the draft's evidence, if the answer is of this task: beta-binomial."""
        evidence, right = self._evidence[draft], SPREAD * self._table.rate(draft, task)
        wrong, rejected = SPREAD - right, evidence.trials - evidence.successes
        return _log_beta(right + evidence.successes, wrong + rejected) - _log_beta(right, wrong)


def expected_tokens(rate: float, length: int) -> float:
    """Tokens of a pass with so many proposed, each accepted at this rate if all before it were."""
    return (1.0 - rate ** (length + 1)) / (1.0 - rate)


@lru_cache(maxsize=1024)
def token_rate(acceptance: float) -> float:
    """The rate of a token at which this share of `RATED_LENGTH` proposed ones is accepted."""
    low, high = _RARELY, _MOSTLY
    for _ in range(20):  # halvings, to a millionth
        middle = (low + high) / 2.0
        enough = expected_tokens(middle, RATED_LENGTH) - 1.0 >= acceptance * RATED_LENGTH
        low, high = (low, middle) if enough else (middle, high)
    return (low + high) / 2.0


def _acceptance(acceptance: Mapping[str, Mapping[str, float]], draft: str, task: str) -> float:
    """That of the bundle, or a likely one. The general draft does on prompts of no task as it does on average."""
    of_slot = acceptance.get(draft, {})
    if task in of_slot:
        return of_slot[task]
    if draft == GENERAL:
        return sum(of_slot.values()) / len(of_slot) if of_slot else GENERALS
    return OWN if draft == task else OTHERS


def _log_beta(first: float, second: float) -> float:
    return math.lgamma(first) + math.lgamma(second) - math.lgamma(first + second)


def _normalised(weights: Mapping[str, float]) -> dict[str, float]:
    whole = sum(weights.values())
    return {name: weight / whole for name, weight in weights.items()}
