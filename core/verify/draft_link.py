"""One session's draft, as its verifier knows it: what it has proposed, and what it was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.policy.draft_policy import DraftBudget, DraftEstimates
from core.policy.latency import DraftLatency
from core.wire.messages import Propose, draft_key

MAX_MISSES = 2  # deadlines that a draft may miss before it is no longer waited for
REQUESTS_REMEMBERED = 8  # by a link: a proposal may answer an earlier request than the last
_INSTANT = 1e-6  # seconds; nobody waits for less


@dataclass(slots=True)
class _Request:
    """A Commit that asked for a proposal: when it was sent, and the seconds that a pass waited for its answer.

    With `lookahead` the draft was allowed to draft the answer before.
    """

    sent_at: float
    lookahead: bool
    waited: float = 0.0


class Requests:
    """The requests to one draft that it has not answered, by the committed length that each told.

    A draft that has missed `MAX_MISSES` deadlines is waited for again once it has answered.
    """

    def __init__(self, latency: DraftLatency) -> None:
        self._latency = latency
        self._unanswered: dict[int, _Request] = {}
        self._misses = 0
        self._last_is_missed = False

    def add(self, length: int, now: float, *, lookahead: bool) -> None:
        """A Commit up to `length` was sent, whose answer the next pass may wait for."""
        if length not in self._unanswered:
            self._unanswered[length] = _Request(now, lookahead)
            self._last_is_missed = False
        while len(self._unanswered) > REQUESTS_REMEMBERED:
            del self._unanswered[min(self._unanswered)]

    def receive(self, message: Propose, now: float, *, waited: bool) -> bool:
        """A proposal has arrived; returns whether it answers a request.

        Only an answer measures the latency and forgives earlier misses. Otherwise a draft that chatters without
        answering would be waited for in every pass. `waited` says whether the verifier has been idle since its last
        pass: a proposal that is read after a pass may have arrived long before.
        """
        request = self._unanswered.pop(message.base, None)
        if request is None:
            return False
        self._misses = 0
        seconds, num_tokens = now - request.sent_at, len(message.tokens)
        # A draft may say anything, and passes would wait as long as it says.
        drafting = min(message.took, seconds) if message.took is not None and message.took >= 0.0 else None
        expected = self._latency.expected(num_tokens, lookahead=request.lookahead)
        in_vain = request.waited if request.waited > expected else None
        waiting = seconds if waited else in_vain
        self._latency.observe(num_tokens, drafting, waiting, lookahead=request.lookahead)
        return True

    def foresaw(self, length: int) -> None:
        """A branch that arrived before the request at `length` answers it."""
        self._unanswered.pop(length, None)
        self._misses = 0
        self._latency.observe_branch_hit()

    def arrival(self, length: int, likely: float, limit: int, now: float) -> float:
        """Seconds until the answer to the request at `length` is expected; 0 if nothing is waited for.

        It will hold `likely` tokens, or `limit`. A draft that has never answered is not waited for. A request whose
        latest time has passed is a miss.
        """
        request, latency = self._unanswered.get(length), self._latency
        if request is None or not latency.known or self._misses >= MAX_MISSES or self._last_is_missed:
            return 0.0
        request.waited = elapsed = now - request.sent_at
        ahead = request.lookahead
        moments = (latency.expected(likely, lookahead=ahead), latency.expected(limit, lookahead=ahead))
        for moment in (*moments, latency.latest(limit, lookahead=ahead)):
            if moment - elapsed > _INSTANT:
                return moment - elapsed
        self._last_is_missed = True
        self._misses += 1
        return 0.0


class DraftLink:
    """One session's draft. `epoch` counts the drafts of a session: a later one replaces it, an earlier one is refused.

    `key` is what it says that it drafts with. `base` is the highest count of committed tokens that the draft is known
    to have. `proposal` is the part of its chain beyond all committed tokens. `answered` says whether it has proposed
    since the last commit, `paused` whether it was last asked for nothing, or is not heard any more. `num_asked` is the
    most tokens that it can have known to be asked for.
    """

    def __init__(self, peer: bytes, epoch: int, estimates: DraftEstimates, budget: DraftBudget, now: float) -> None:
        self.peer = peer
        self.key = draft_key(peer)
        self.epoch = epoch
        self.acceptance = estimates.acceptance
        self.latency = estimates.latency  # of this peer, whichever process of the draft joins another session later
        self.requests = Requests(self.latency)
        self.budget = self.previous_budget = budget
        self.num_asked = budget.num_tokens
        self.base = 0
        self.proposal: tuple[int, ...] = ()
        self.answered = False
        self.paused = False
        self.heard_at = now
        self._branches: Propose | None = None  # for the verdict of the pass that is computed now

    @property
    def computes(self) -> bool:
        """Whether the draft may be computing while the target does."""
        return not self.paused and (self.budget.lookahead or not self.answered)

    def ask(self, budget: DraftBudget) -> None:
        """Set the budget of the next proposal."""
        self.previous_budget, self.budget, self.num_asked = self.budget, budget, budget.num_tokens

    def receive(self, message: Propose, now: float, *, waited: bool) -> bool:
        """See `Requests.receive`."""
        self.heard_at = now
        self.base = max(self.base, message.base)
        return self.requests.receive(message, now, waited=waited)

    def propose(self, message: Propose, committed: Sequence[int]) -> bool:
        """Take a chain that agrees with all committed tokens; returns False for one that does not."""
        num_known = len(committed) - message.base
        if num_known < 0:
            return False
        if tuple(committed[message.base : message.base + len(message.tokens)]) != message.tokens[:num_known]:
            return False
        run = message.tokens[num_known:]
        if self.proposal[: len(run)] != run:
            self.proposal = run
        if num_known == 0:
            self.answered = True
        return True

    def hold_branches(self, message: Propose, now: float) -> None:
        """Keep branches until the pass that they foresee has committed."""
        self.heard_at, self.base, self._branches = now, max(self.base, message.base), message

    def follow_branches(self, committed: Sequence[int], limit: int) -> None:
        """Propose what the longest branch that foresaw the last verdict says next: the answer has already arrived.

        It is incomplete if it ends where the previous budget did and more is asked for now; then the draft will go on.
        """
        message, self._branches = self._branches, None
        if message is None or self.answered:
            return
        verdict = tuple(committed[message.base :])
        length = len(verdict)
        foreseen = (branch[length:] for branch in message.branches if branch[:length] == verdict)
        answer = max(foreseen, key=len, default=())
        if not answer or not length:
            return
        self.proposal = answer
        self.num_asked = min(self.budget.num_tokens, self.previous_budget.num_tokens)
        if not self.previous_budget.num_tokens <= len(answer) < limit:
            self.answered = True
            self.requests.foresaw(len(committed))

    def committed(self, tokens: Sequence[int]) -> None:
        """Keep what of the proposal still continues the chain, which grew by `tokens`."""
        proposal, self.answered = self.proposal, False
        self.proposal = proposal[len(tokens) :] if proposal[: len(tokens)] == tuple(tokens) else ()
