"""The verifier's links to drafts: checks what they propose, sends them what was committed, and asks for more.

A proposal is never trusted. It is checked before anything else, and the worst it can do is cost speed. A draft that
falls silent is left alone until it is heard again; the ingress may open another one in its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from core.generation import MAX_SPECULATIVE_TOKENS, Run
from core.policy.draft_policy import DraftBudget, DraftedSessions, DraftEstimates, DraftPolicy, Readiness
from core.verify.session import VerifySession
from core.wire.messages import MOST_BRANCHES, Close, Commit, Propose, draft_key

MAX_MISSES = 2  # deadlines that a draft may miss before it is no longer waited for
REQUESTS_REMEMBERED = 8  # by a link: a proposal may answer an earlier request than the last
_REPEATS = 4  # passes that a draft's own repeats may take beyond its lease
_INSTANT = 1e-6  # seconds; nobody waits for less


@dataclass(slots=True)
class _Request:
    """A Commit that asked for a proposal: when it was sent, and the seconds that a pass waited for its answer."""

    sent_at: float
    waited: float = 0.0


class DraftLink:
    """One session's draft. `epoch` counts the drafts of a session: a later one replaces it, an earlier one is refused.

    `key` is what it says that it drafts with. `base` is the highest count of committed tokens that the draft is known
    to have. `proposal` is the part of its chain beyond all committed tokens. `answered` says whether it has proposed
    since the last commit, `silent` whether it was last asked for nothing. `num_asked` is the most tokens that it can
    have known to be asked for.
    """

    def __init__(self, peer: bytes, epoch: int, estimates: DraftEstimates, budget: DraftBudget, now: float) -> None:
        self.peer = peer
        self.key = draft_key(peer)
        self.epoch = epoch
        self.estimates = estimates
        self.latency = estimates.latency
        self.budget = self.previous_budget = budget
        self.num_asked = budget.num_tokens
        self.base = 0
        self.proposal: tuple[int, ...] = ()
        self.answered = False
        self.silent = False
        self.heard_at = now
        self._branches: Propose | None = None  # for the verdict of the pass that is computed now
        self._requests: dict[int, _Request] = {}  # by the committed length that they told
        self._misses = 0
        self._missed = False

    # ---- requests and their answers

    def ask(self, budget: DraftBudget) -> None:
        """Set the budget of the next proposal."""
        self.previous_budget, self.budget, self.num_asked = self.budget, budget, budget.num_tokens

    def requested(self, length: int, now: float) -> None:
        """Note that a Commit up to `length` was sent, whose answer the next pass may wait for."""
        if length not in self._requests:
            self._requests[length] = _Request(now)
            self._missed = False
        while len(self._requests) > REQUESTS_REMEMBERED:
            del self._requests[min(self._requests)]

    def received(self, message: Propose, now: float, *, waited: bool) -> bool:
        """Note that a proposal arrived; returns whether it answers a request.

        Only an answer measures the latency and forgives earlier misses. Otherwise a draft that chatters without
        answering would be waited for in every pass. `waited` says whether the verifier has been idle since its last
        pass: a proposal found after a pass may have arrived long before.
        """
        self.heard_at = now
        self.base = max(self.base, message.base)
        request = self._requests.pop(message.base, None)
        if request is None:
            return False
        self._misses = 0
        seconds, num_tokens = now - request.sent_at, len(message.tokens)
        # A draft may say anything, and passes would wait as long as it says.
        drafting = min(message.took, seconds) if message.took is not None and message.took >= 0.0 else None
        in_vain = request.waited if request.waited > self.latency.expected(num_tokens) else None
        self.latency.observe(num_tokens, drafting, seconds if waited else in_vain)
        return True

    def arrival(self, length: int, likely: float, most: int, now: float) -> float:
        """Seconds until the answer to the request at `length` is expected; 0 if nothing is waited for.

        It will hold `likely` tokens, or `most`. A draft that has never answered is not waited for. A request whose
        latest time has passed is a miss.
        """
        request = self._requests.get(length)
        known = self.latency.known and self._misses < MAX_MISSES and not (self.answered or self._missed)
        if request is None or not known:
            return 0.0
        request.waited = elapsed = now - request.sent_at
        for moment in (self.latency.expected(likely), self.latency.expected(most), self.latency.latest(most)):
            if moment - elapsed > _INSTANT:
                return moment - elapsed
        self._missed = True
        self._misses += 1
        return 0.0

    # ---- proposals

    def propose(self, message: Propose, committed: Sequence[int]) -> bool:
        """Take a chain that agrees with all committed tokens; returns False for one that does not."""
        known = len(committed) - message.base
        if known < 0 or tuple(committed[message.base : message.base + len(message.tokens)]) != message.tokens[:known]:
            return False
        run = message.tokens[known:]
        if self.proposal[: len(run)] != run:
            self.proposal = run
        if known == 0:
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
        known = len(verdict)
        foreseen = (branch[known:] for branch in message.branches if branch[:known] == verdict)
        answer = max(foreseen, key=len, default=())
        if not answer or not known:
            return
        self.proposal = answer
        self.num_asked = min(self.budget.num_tokens, self.previous_budget.num_tokens)
        if not self.previous_budget.num_tokens <= len(answer) < limit:
            self._requests.pop(len(committed), None)
            self.answered = True
            self._misses = 0
            self.latency.observe_branch_hit()

    def committed(self, tokens: Sequence[int]) -> None:
        """Keep what of the proposal still continues the chain, which grew by `tokens`."""
        proposal, self.answered = self.proposal, False
        self.proposal = proposal[len(tokens) :] if proposal[: len(tokens)] == tuple(tokens) else ()


class DraftLinks:
    """The links of an engine's sessions.

    `idle` says whether the engine has been waiting since its last pass. Ids are below `num_valid`. A draft unheard for
    `lease` seconds is left alone until it is heard.
    """

    def __init__(self, policy: DraftPolicy, counts: Counter[str], *, num_valid: int, lease: float) -> None:
        self.idle = False
        self._policy = policy
        self._counts = counts
        self._num_valid = num_valid
        self._lease = lease
        self._outbox: dict[tuple[bytes, int], Commit | Close] = {}  # the newest message of each peer and session
        self._urgent: dict[tuple[bytes, int], DraftLink] = {}  # of the messages in the outbox: new requests

    def receive(self, peer: bytes, session: VerifySession | None, message: Propose, now: float) -> None:
        """Take a proposal for the session that it names, if there is one."""
        if session is None:
            self._drop("unknown_session")
            self._outbox[peer, message.session] = Close(message.session, message.epoch)
            return
        link = self._admit(peer, session, message, now)
        if link is None:
            return
        if message.branches and message.base <= session.length:
            link.hold_branches(message, now)
            if message.base < session.length:
                link.follow_branches(session.chain.tokens, session.num_requested)
                return
            if link.answered:
                return  # or else the proposal itself was lost on its way
        repeated = link.answered
        if not link.propose(message, session.chain.tokens):
            self._drop("stale")
            if message.base > session.length:
                return
        answers = link.received(message, now, waited=self.idle)
        if message.base < session.length:
            if answers:
                self._compare(link, session, message)
            if link.budget.num_tokens or not answers:
                self._send(link, session, now)
        elif repeated:  # nothing is new, but a draft that meets silence takes the session for dead
            self._outbox[peer, session.number] = self._commit(link, session)

    def outgoing(self) -> list[tuple[bytes, Commit | Close]]:
        """Messages to send; each the newest for its session and peer."""
        messages = [(peer, message) for (peer, _), message in self._outbox.items()]
        self._outbox.clear()
        self._urgent.clear()
        return messages

    def urgent(self) -> list[tuple[bytes, Commit | Close]]:
        """Of the messages to send, those that ask for a proposal that is not there yet."""
        unanswered = [key for key, link in self._urgent.items() if not link.answered]
        self._urgent.clear()
        return [(key[0], self._outbox.pop(key)) for key in unanswered]

    def leave(self, session: VerifySession) -> None:
        """End the link of a session that is over."""
        if session.link is not None:
            self._outbox[session.link.peer, session.number] = Close(session.number, session.link.epoch)

    def committed(self, session: VerifySession, run: Run) -> None:
        """Learn from what a pass committed for a session, also of a draft that was there while another source spoke."""
        link = session.link
        if link is None:
            return
        whole = run.source == "draft" and session.grammar is None  # a grammar cuts what it does not allow
        passed_over = not whole and (run.proposed or session.grammar is not None)
        drafted = link.proposal[: len(run.tokens)] if passed_over else ()
        link.committed(run.tokens)
        if run.proposed and whole:
            link.estimates.acceptance.observe(max(link.num_asked, run.proposed), run.proposed, run.accepted)
        _observe(link, drafted, run.tokens)

    def readiness(self, session: VerifySession, now: float) -> Readiness:
        """The session, its prompt computed, before the next pass."""
        link, best = session.link, session.proposal()
        tokens_now, rows_now = 1.0 + best.expected, 1 + len(best.tokens)
        if link is None:
            return Readiness(0.0, tokens_now, tokens_now, rows_now, rows_now)
        most = session.num_requested
        then = link.estimates.acceptance.expected(most)[-1]
        if then.tokens <= tokens_now and best.source != "draft":  # whatever the draft says, it will not be heard
            return Readiness(0.0, tokens_now, tokens_now, rows_now, rows_now)
        waits = most > len(session.drafted) and not self._lapsed(link, now)
        arrival = link.arrival(session.length, then.proposed, most, now) if waits else 0.0
        required = session.always_draft and arrival > 0.0
        return Readiness(arrival, tokens_now, then.tokens, rows_now, 1 + round(then.proposed), required)

    def plan(self, committed: Sequence[VerifySession], num_running: int, now: float) -> None:
        """Send the drafts of `committed` sessions what was committed, and ask for as much as pays in the next pass."""
        linked = [(session, session.link) for session in committed if session.link is not None]
        alike: dict[tuple[bytes, int], list[tuple[VerifySession, DraftLink]]] = {}
        for session, link in linked:
            if not self._lapsed(link, now):
                alike.setdefault((link.peer, session.max_proposed), []).append((session, link))
        groups = [
            DraftedSessions(of[0][1].estimates.acceptance, of[0][1].latency, limit, len(of))
            for (_, limit), of in alike.items()
        ]
        for budget, of in zip(self._policy.plan(groups, num_running), alike.values(), strict=True):
            for session, link in of:
                forced = session.always_draft and not budget.num_tokens
                link.ask(DraftBudget(session.max_proposed) if forced else budget)
                link.follow_branches(session.chain.tokens, session.num_requested)
                if link.budget.num_tokens or not link.silent:
                    self._send(link, session, now)

    def _compare(self, link: DraftLink, session: VerifySession, message: Propose) -> None:
        """Learn from a proposal for tokens that are committed by now."""
        known = session.chain.tokens[message.base : message.base + len(message.tokens)]
        _observe(link, message.tokens[: len(known)], known)

    def _send(self, link: DraftLink, session: VerifySession, now: float) -> None:
        """Send what was committed. A draft asked for nothing gets no more until something is, or it asks itself."""
        self._outbox[link.peer, session.number] = self._commit(link, session)
        link.silent = link.budget.num_tokens == 0
        if not link.silent and not link.answered:  # its next message is no answer otherwise, and measures nothing
            link.requested(session.length, now)
            self._urgent[link.peer, session.number] = link

    def _commit(self, link: DraftLink, session: VerifySession) -> Commit:
        num_tokens, min_survival = link.budget
        asked = None if num_tokens == session.max_proposed else num_tokens
        return Commit(session.number, link.base, tuple(session.chain.tokens[link.base :]), asked, min_survival)

    def _lapsed(self, link: DraftLink, now: float) -> bool:
        return now - link.heard_at > self._lease + _REPEATS * self._policy.costs.seconds(1)

    def _admit(self, peer: bytes, session: VerifySession, message: Propose, now: float) -> DraftLink | None:
        """Check length, ids and epoch before anything is read; link a newer draft. None: the message was dropped."""
        if not _fits(message):
            self._drop("too_long")
            return None
        if not all(0 <= token < self._num_valid for chain in (message.tokens, *message.branches) for token in chain):
            self._drop("bad_token")
            return None
        link = session.link
        if link is None or message.epoch > link.epoch:
            if link is not None:
                self._outbox[link.peer, session.number] = Close(session.number, link.epoch)
            estimates = self._policy.estimates(draft_key(peer), peer)
            budget = self._policy.first_budget(estimates, session.max_proposed)
            if session.always_draft:
                budget = DraftBudget(session.max_proposed)
            session.join(DraftLink(peer, message.epoch, estimates, budget, now))
        elif message.epoch < link.epoch or peer != link.peer:
            self._outbox[peer, session.number] = Close(session.number, message.epoch)
            self._drop("old_epoch")
            return None
        return session.link

    def _drop(self, reason: str) -> None:
        self._counts[f"dropped_{reason}"] += 1


def _observe(link: DraftLink, drafted: Sequence[int], committed: Sequence[int]) -> None:
    """Learn from a proposal that no pass was given; the tokens that were committed instead are known."""
    agreed = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(committed, drafted, strict=False)))
    if drafted:
        link.estimates.acceptance.observe(len(drafted), len(drafted), agreed)


def _fits(message: Propose) -> bool:
    """A branch is a proposal, a token of the target's own, and another proposal."""
    longest = max(map(len, message.branches), default=0)
    short = len(message.tokens) <= MAX_SPECULATIVE_TOKENS and longest <= 2 * MAX_SPECULATIVE_TOKENS + 1
    return short and len(message.branches) <= MOST_BRANCHES and message.base >= 0
