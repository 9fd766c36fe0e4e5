"""The drafts that hold sessions: hears their proposals, tells them what was committed, asks for as much as pays.

Enters: proposals off the wire, runs as passes commit them. Leaves: messages for the drafts, and what each session would
bring to a pass now and later. Whatever a draft says can only cost speed: it is checked here before anything else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from core.asking import Ask, Probe, Prospect, Scouts, best_ask, costs_nothing, pays, would_pay
from core.company import Company
from core.estimator import Acceptance
from core.generation import Run
from core.messages import MOST_BRANCHES, Close, Commit, Propose
from core.preparing import Preparing
from core.recent import Recent
from core.reply import Reply
from core.step_costs import StepCosts
from core.step_rule import Standing
from core.verify_session import Seat, VerifySession


@dataclass(slots=True)
class _Adapter:
    """What is known of an adapter's drafts; the reply is that of the process which drafted with it last."""

    acceptance: Acceptance = field(default_factory=Acceptance)
    probe: Probe = field(default_factory=Probe)
    reply: Reply = field(default_factory=Reply)


class Seats:
    """The seats of one engine's sessions. `waited` is whether the engine has stood still since its last pass.

    `window` is the most tokens a proposal may carry, ids are below `num_valid`, a draft unheard for `lease` seconds is
    forgotten until it is heard.
    """

    def __init__(
        self,
        counts: Counter[str],
        costs: StepCosts,
        preparing: Preparing,
        *,
        window: int,
        num_valid: int,
        lease: float,
    ) -> None:
        self.waited = False
        self._counts = counts
        self._costs = costs
        self._preparing = preparing
        self._window = window
        self._num_valid = num_valid
        self._lease = lease
        self._replies: Recent[bytes, Reply] = Recent(Reply)  # of every draft process
        self._adapters: Recent[str, _Adapter] = Recent(_Adapter)
        self._pass = Prospect()  # the next one, as it was planned after the last
        self._running = 1  # sessions in it
        self._company = Company()
        self._scouts = Scouts()
        self._outbox: dict[tuple[bytes, int], Commit | Close] = {}
        self._asked: dict[tuple[bytes, int], Seat] = {}  # by messages in the outbox

    def receive(self, peer: bytes, session: VerifySession | None, message: Propose, now: float) -> None:
        """A proposal, and the session it names if there is one."""
        if session is None:
            self._drop("unknown_session")
            self._outbox[peer, message.session] = Close(message.session, message.seat)
            return
        if not self._admissible(peer, session, message, now):
            return
        seat = session.seat
        assert seat is not None
        if message.branches and message.base <= session.length:
            seat.heard_at, seat.base = now, max(seat.base, message.base)
            if message.base < session.length:
                session.look_ahead(message)
                return
            seat.ahead = message
            if seat.answered:
                return  # else the answer itself was lost on the way
        repeated = seat.answered
        if not session.take(message):
            self._drop("stale")
            if message.base > session.length:
                return
        answers = seat.heard(message, now, waited=self.waited)
        if message.base < session.length:
            if answers:
                self._compare(session, message)
            if session.ask.most or not answers:
                self._tell(session, now)
        elif repeated:  # nothing to tell, but a draft that hears nothing for long takes the session for dead
            self._outbox[peer, session.number] = session.commit_message(prepare=self._preparing.on)

    def outgoing(self) -> list[tuple[bytes, Commit | Close]]:
        """Messages to send; each the newest for its session and peer."""
        messages = [(peer, message) for (peer, _), message in self._outbox.items()]
        self._outbox.clear()
        self._asked.clear()
        return messages

    def urgent(self) -> list[tuple[bytes, Commit | Close]]:
        """Of the messages to send those that ask for what is not there yet: the others would be in their way."""
        unanswered = [key for key, seat in self._asked.items() if not seat.answered]
        self._asked.clear()
        return [(key[0], self._outbox.pop(key)) for key in unanswered]

    def joined(self, session: VerifySession, sessions: int) -> None:
        """A new session, which will run beside about so many."""
        if session.max_proposed:
            session.cohort = self._company.joined(sessions)

    def wanted(self, sessions: int, most: int) -> dict[str, bool]:
        """Whether new sessions among about so many should have an adapter's drafts, for so many tokens at most.

        They should where these would pay if all had such, and are asked among those that there are. Of all adapters
        that were asked, the last asked last.
        """
        welcome = self._company.welcome(sessions)
        return {name: welcome and self._would_pay(one, sessions, most) for name, one in self._adapters.items()}

    def others_wanted(self, sessions: int, most: int) -> bool:
        """The same of an adapter that was never asked."""
        return self._company.welcome(sessions) and self._would_pay(_Adapter(), sessions, most)

    def scout(self, sessions: Iterable[VerifySession]) -> VerifySession | None:
        """Which of these, just opened, should have its draft even where that is not wanted, to tell how good it is."""
        able = [session for session in sessions if session.max_proposed]
        if not able or not self._scouts.send():
            return None
        able[0].scouting = True
        return able[0]

    def leave(self, session: VerifySession) -> None:
        """The session is over."""
        if session.seat is not None:
            self._outbox[session.seat.peer, session.number] = Close(session.number, session.seat.number)

    def verified(self, session: VerifySession, run: Run) -> None:
        """What became of a proposal."""
        seat = session.seat
        if seat is not None and run.proposed:
            session.scouting = False
            adapter = self._adapters.of(seat.adapter)
            adapter.acceptance.observe(max(session.asked, run.proposed), run.proposed, run.accepted)
            if run.accepted and session.probing:
                self._was_right(session, adapter)

    def standing(self, session: VerifySession, now: float) -> Standing:
        """What a session whose prompt is computed would bring to a pass."""
        seat, proposed = session.seat, len(session.proposals())
        if seat is None:
            return Standing(0.0, 1.0, 1.0, 1, 1)
        acceptance = self._adapters.of(seat.adapter).acceptance
        later = acceptance.expected(session.most())[-1]
        # an answer that was never timed is worth a pass: by guesses alone a quick draft might not be asked again; and
        # so is a scout's, until one was verified: where passes are long and not waited with, none ever would be
        worth = self._pass.tokens if seat.reply.guessed or session.scouting else 0.0
        waits = session.most() > proposed and not self._lapsed(seat, now)
        return Standing(
            seat.arrival(session.length, later.proposed, session.most(), now) if waits else 0.0,
            acceptance.tokens(proposed),
            later.tokens + worth,
            1 + proposed,
            1 + later.proposed,
        )

    def ask(self, committed: Sequence[VerifySession], num_running: int, now: float) -> None:
        """Tell the drafts of `committed` sessions what was committed, and what to propose next."""
        drafted = [session for session in committed if session.seat and not self._lapsed(session.seat, now)]
        prospects = [self._prospect(session) for session in drafted]
        together = self._foresee(prospects, num_running)
        if self._tells_of_company(drafted, num_running, asked=together):
            self._company.observe([session.cohort for session in committed], num_running, asked=together)
        tokens, rows, longest, _ = self._pass
        second = sorted([prospect.wait for prospect in prospects] + [0.0, 0.0])[-2]
        self._scouts.next_pass()
        known: dict[tuple[bytes, int, Prospect], Ask] = {}  # sessions that are alike are asked alike
        for probe in {self._adapters.of(session.seat.adapter).probe for session in drafted if session.seat}:
            probe.next_pass()
        for session, own in zip(drafted, prospects, strict=True):
            seat = session.seat
            assert seat is not None
            wait = second if own.wait == longest else longest
            others = Prospect(tokens - own.tokens, rows - own.rows, wait, len(drafted) - 1)
            alike = (seat.peer, session.max_proposed, others)
            if alike not in known:
                known[alike] = self._best(session, others)
            session.plan = known[alike]
            probe = self._adapters.of(seat.adapter).probe
            session.before, session.ask = session.ask, probe.ask(session.plan, session.max_proposed, together=together)
            session.asked = session.ask.most
            if seat.ahead is not None:
                session.look_ahead(seat.ahead)
                seat.ahead = None
            session.probing = session.ask.most > 0 and not (together and session.plan.most)
            if session.ask.most or not seat.idle:
                self._tell(session, now)

    def _compare(self, session: VerifySession, message: Propose) -> None:
        """What was committed before an answer came tells how good it is."""
        known = session.chain.tokens[message.base : message.base + len(message.tokens)]
        agreed = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(known, message.tokens, strict=False)))
        if known and session.seat is not None:
            adapter = self._adapters.of(session.seat.adapter)
            adapter.acceptance.observe(len(known), len(known), agreed)
            if agreed:
                self._was_right(session, adapter)

    def _was_right(self, session: VerifySession, adapter: _Adapter) -> None:
        """The token that a draft was asked for was right."""
        if not session.plan.most and self._running == 1 and costs_nothing(adapter.reply, self._costs):
            adapter.probe.right()

    def _tells_of_company(self, drafted: Sequence[VerifySession], num_running: int, *, asked: bool) -> bool:
        """Whether some drafts in the next pass would pay among their like."""
        planned = {(one.seat.adapter, one.max_proposed) for one in drafted if one.seat and one.planned()}
        return any(asked or self._would_pay(self._adapters.of(name), num_running, most) for name, most in planned)

    def _foresee(self, prospects: Sequence[Prospect], num_running: int) -> bool:
        """Sum up the next pass as it is planned, of all that run; returns whether to ask for it, or for nothing."""
        plain, drafted = num_running - len(prospects), len(prospects)
        tokens = plain + sum(prospect.tokens for prospect in prospects)
        rows = plain + sum(prospect.rows for prospect in prospects)
        longest = max((prospect.wait for prospect in prospects), default=0.0)
        self._pass, self._running = Prospect(tokens, rows, longest, drafted), max(1, num_running)
        planned = [prospect.wait for prospect in prospects if prospect.rows > 1]
        return not planned or pays(self._pass._replace(wait=max(planned)), self._running, self._costs)

    def _prospect(self, session: VerifySession) -> Prospect:
        """What the session's next pass is planned to be."""
        seat = session.seat
        assert seat is not None
        tokens, proposed = self._adapters.of(seat.adapter).acceptance.expected(session.planned())[-1]
        return Prospect(tokens, 1 + proposed, seat.reply.mean(proposed), 1)

    def _best(self, session: VerifySession, others: Prospect) -> Ask:
        seat = session.seat
        assert seat is not None
        expected = self._adapters.of(seat.adapter).acceptance.expected(session.max_proposed)
        return best_ask(expected, seat.reply, others, self._costs)

    def _would_pay(self, adapter: _Adapter, sessions: int, most: int) -> bool:
        """Whether an adapter's drafts would if all of so many sessions had one."""
        return would_pay(adapter.acceptance.expected(most), adapter.reply, sessions, self._costs)

    def _tell(self, session: VerifySession, now: float) -> None:
        """A draft that was told that nothing is wanted hears no more until something is, or it speaks up itself."""
        seat = session.seat
        assert seat is not None
        self._outbox[seat.peer, session.number] = session.commit_message(prepare=self._preparing.on)
        seat.idle = session.ask.most == 0
        if not seat.idle and not seat.answered:  # its next word is no answer otherwise, and measures nothing
            seat.asked(session.length, now)
            self._asked[seat.peer, session.number] = seat

    def _lapsed(self, seat: Seat, now: float) -> bool:
        """A draft that let its lease and its repeats pass is forgotten until it is heard."""
        return now - seat.heard_at > self._lease + 4 * self._costs.seconds(1)

    def _admissible(self, peer: bytes, session: VerifySession, message: Propose, now: float) -> bool:
        """Seat, length and ids, before anything is read from the message; seats a newer draft."""
        if not self._fits(message):
            return self._drop("too_long")
        if not all(0 <= token < self._num_valid for chain in (message.tokens, *message.branches) for token in chain):
            return self._drop("bad_token")
        seat = session.seat
        if seat is None or message.seat > seat.number:
            if seat is not None:
                self._outbox[seat.peer, session.number] = Close(session.number, seat.number)
            session.seat = Seat(peer, message.seat, now, self._replies.of(peer))
            adapter = self._adapters.of(session.seat.adapter)
            adapter.reply = session.seat.reply
            adapter.reply.begin_session()
            session.plan = self._best(session, self._pass)
            paying = self._would_pay(adapter, self._running, session.max_proposed)
            session.ask = session.plan if paying else Ask(0)
            if not paying:
                adapter.probe.begin_session()
            return True
        if message.seat < seat.number or peer != seat.peer:
            self._outbox[peer, session.number] = Close(session.number, message.seat)
            return self._drop("not_its_seat")
        return True

    def _fits(self, message: Propose) -> bool:
        """A branch is a proposal, a token of the target's own, and another proposal."""
        longest = max(map(len, message.branches), default=0)
        short = len(message.tokens) <= self._window and longest <= 2 * self._window + 1
        return short and len(message.branches) <= MOST_BRANCHES and message.base >= 0

    def _drop(self, reason: str) -> bool:
        self._counts[f"dropped_{reason}"] += 1
        return False
