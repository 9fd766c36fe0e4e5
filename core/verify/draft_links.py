"""The verifier's links to drafts: checks what they propose, sends them what was committed, and asks for more.

A proposal is never trusted. It is checked before anything else, and the worst it can do is cost speed. A draft that has
been silent for its lease is not waited for, and sent nothing, until it is heard again; the ingress may open another one
in its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import takewhile

from core.generation import MAX_SPECULATIVE_TOKENS, Run
from core.policy.acceptance import band
from core.policy.draft_policy import DraftedSessions, DraftPolicy, Readiness
from core.verify.draft_link import DraftLink
from core.verify.session import VerifySession
from core.wire.messages import MOST_BRANCHES, Close, Commit, Propose, draft_key

_REPEATS = 4  # passes that a draft's own repeats may take beyond its lease


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
        answers = link.receive(message, now, waited=self.idle)
        if message.base < session.length:
            if answers:
                self._compare(link, session, message)
            if link.budget.num_tokens or not answers:
                self._send(link, session, now)
        elif repeated:  # nothing is new, but a draft closes a session of which it hears nothing for its lease
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
            link.acceptance.observe(max(link.num_asked, run.proposed), run.proposed, run.accepted)
        _observe(link, drafted, run.tokens)

    def readiness(self, session: VerifySession, now: float) -> Readiness:
        """The session, its prompt computed, before the next pass."""
        link, best = session.link, session.proposal()
        tokens_now, rows_now = 1.0 + best.expected, 1 + len(best.tokens)
        if link is None:
            return Readiness(0.0, tokens_now, tokens_now, rows_now, rows_now)
        limit = session.num_requested
        then = link.acceptance.expected(limit)[-1]
        if then.tokens <= tokens_now and best.source != "draft":  # no proposal of the draft would be preferred
            return Readiness(0.0, tokens_now, tokens_now, rows_now, rows_now)
        waits = limit > len(session.drafted) and not link.answered and not self._lapsed(link, now)
        arrival = link.requests.arrival(session.length, then.proposed, limit, now) if waits else 0.0
        required = session.always_draft and arrival > 0.0
        return Readiness(arrival, tokens_now, then.tokens, rows_now, 1 + round(then.proposed), required)

    def plan(self, committed: Sequence[VerifySession], num_running: int, now: float) -> None:
        """Send the drafts of `committed` sessions what was committed, and ask for as much as pays in the next pass."""
        alike: dict[tuple[bytes, int, int], list[tuple[VerifySession, DraftLink]]] = {}
        for session in committed:
            link = session.link
            if link is not None and self._lapsed(link, now):
                link.paused = True  # it computes nothing
            elif link is not None:
                key = link.peer, session.max_proposed, band(session.chain.params.temperature)
                alike.setdefault(key, []).append((session, link))
        groups = [
            DraftedSessions(linked[0][1].acceptance, linked[0][1].latency, limit, len(linked))
            for (_, limit, _), linked in alike.items()
        ]
        for budget, linked in zip(self._policy.plan(groups, num_running), alike.values(), strict=True):
            for session, link in linked:
                forced = session.always_draft and not budget.num_tokens
                link.ask(self._policy.unplanned(session.max_proposed) if forced else budget)
                link.follow_branches(session.chain.tokens, session.num_requested)
                if link.budget.num_tokens or not link.paused:
                    self._send(link, session, now)

    def _compare(self, link: DraftLink, session: VerifySession, message: Propose) -> None:
        """Learn from a proposal for tokens that are committed by now."""
        tokens = session.chain.tokens[message.base : message.base + len(message.tokens)]
        _observe(link, message.tokens[: len(tokens)], tokens)

    def _send(self, link: DraftLink, session: VerifySession, now: float) -> None:
        """Send what was committed. A draft asked for nothing gets no more until something is, or it asks itself."""
        self._outbox[link.peer, session.number] = self._commit(link, session)
        link.paused = link.budget.num_tokens == 0
        if not link.paused and not link.answered:
            before = link.previous_budget
            link.requests.add(session.length, now, lookahead=before.lookahead and before.num_tokens > 0)
            self._urgent[link.peer, session.number] = link

    def _commit(self, link: DraftLink, session: VerifySession) -> Commit:
        num_tokens, min_survival, lookahead = link.budget
        limit, tokens = None if num_tokens == session.max_proposed else num_tokens, session.chain.tokens[link.base :]
        return Commit(session.number, link.base, tuple(tokens), limit, min_survival, lookahead)

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
            estimates = self._policy.estimates(draft_key(peer), peer, session.chain.params.temperature)
            budget = self._policy.first_budget(estimates, session.max_proposed)
            if session.always_draft:
                budget = self._policy.unplanned(session.max_proposed)
            session.link = DraftLink(peer, message.epoch, estimates, budget, now)
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
        link.acceptance.observe(len(drafted), len(drafted), agreed)


def _fits(message: Propose) -> bool:
    """A branch is a proposal, a token of the target's own, and another proposal."""
    longest = max(map(len, message.branches), default=0)
    short = len(message.tokens) <= MAX_SPECULATIVE_TOKENS and longest <= 2 * MAX_SPECULATIVE_TOKENS + 1
    return short and len(message.branches) <= MOST_BRANCHES and message.base >= 0
