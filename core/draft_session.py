"""One generation as a draft sees it: what it knows to be committed, its own chain beyond, and what it prepares for.

A line of thought is a chain in a cache of its own. The session's main line is what it proposes; once that is out, the
others begin where the target's verdict will probably end, so that the answer to it may be there before the verdict is
(SSD, arXiv 2603.03251).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

from core.confidence import Confidence
from core.dice import NoiseWindow
from core.guess import RUNNERS_UP, Guess
from core.messages import Commit, OpenSession, Propose

_LEAST_CHANCE = 0.01  # of a verdict that is prepared for


class Line:
    """Guesses beyond what is committed, held in the model under `number`; the first `given` are taken for granted.

    `survival` is the chance that the `judged` guesses after these are all right.
    """

    def __init__(self, number: int, chain: list[Guess], given: int = 0) -> None:
        self.number = number
        self.chain = chain
        self.given = given
        self.judge_anew()

    def judge_anew(self) -> None:
        """At every Commit of its session: what has been proposed is complete, whatever is learned meanwhile."""
        self.judged, self.survival = 0, 1.0

    @property
    def drafted(self) -> int:
        return len(self.chain) - self.given

    def agreement(self, tokens: Sequence[int]) -> int:
        """With how many of the tokens the chain agrees."""
        pairs = zip(tokens, self.chain, strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1].token, pairs))


class Taken(NamedTuple):
    """What a Commit made of a session: the lines that are over, and where the main one was cut if it was."""

    over: list[Line]
    cut: int | None


class DraftSession:
    """Committed tokens and the lines drafted on top of them.

    `start` is the absolute position of the first token in the draft's own cache: its context may be shorter than the
    target's, and then it keeps only the last part of the sequence.
    """

    def __init__(self, opened: OpenSession, peer: bytes, now: float, confidence: Confidence) -> None:
        self.opened = opened
        self.peer = peer
        self.noise = NoiseWindow(opened.params.seed, opened.choice)
        self.committed = list(opened.tokens)
        self.line = Line(opened.session, [])
        self.prepared: list[Line] | None = None  # for the verdict on the proposal; None until there are any
        self.presented = False  # what is prepared is on its way to the verifier
        self.foreseen = False  # the last Commit ended where a line so presented begins
        self.start = 0
        self.asked = opened.num_speculative_tokens  # for every proposal
        self.worth = 0.0
        self.prepares = True  # where that is hardly any work
        self.heard_at = now
        self.advanced_at = now  # when it last heard of committed tokens
        self.quiet_since = now  # it spoke, or came to owe an answer
        self.answered_at: float | None = None  # when the verifier was first told since its last Commit
        self.asked_at: float | None = None  # when it was told of what was committed and asked for more, all unforeseen
        self.told = False  # of anything committed: before, the verifier does not know of it
        self.due = True  # a Propose is owed: every Commit by which something is wanted is answered
        self._confidence = confidence

    @property
    def chain(self) -> list[Guess]:
        return self.line.chain

    @property
    def lines(self) -> list[Line]:
        return [self.line, *(self.prepared or ())]

    @property
    def complete(self) -> bool:
        """Whether the proposal is as long as it should be."""
        return self._end(self.line) is not None

    @property
    def proposed(self) -> int:
        """How many of the chain's tokens are the proposal."""
        end = self._end(self.line)
        return self.line.drafted if end is None else end

    @property
    def idle(self) -> bool:
        """Whether the proposal is out and may be prepared for the verdict on it."""
        return self.complete and not self.due and self._wanted(self.line) > 0

    @property
    def foreseeing(self) -> bool:
        """Whether the chain has the token after the proposal, or the answer ends before it."""
        return len(self.chain) >= min(self.proposed + 1, self._room)

    def ahead(self) -> list[Line]:
        """What to draft a token for while idle: the token after the proposal, then the prepared lines."""
        if self.prepared is None:
            return [] if self.foreseeing else [self.line]
        return [line for line in self.prepared if self._end(line) is None]

    @property
    def presentable(self) -> bool:
        """Whether all that is prepared is drafted, and the verifier has not been sent it."""
        return bool(self.prepared) and not self.presented and self.idle and not self.ahead()

    def verdicts(self, most: int) -> list[tuple[int, int]]:
        """The likeliest verdicts on the proposal: how many of its tokens are accepted, and the target's own token."""
        proposed, survival = self.proposed, 1.0
        chances: list[tuple[float, int, int]] = []
        for index, guess in enumerate(self.chain[: proposed + 1]):
            sure = self._confidence.of(guess.lead)
            if index == proposed:
                chances.append((survival * sure, index, guess.token))
            wrong = survival * (1.0 - sure)
            chances += [(wrong * share, index, token) for share, token in zip(RUNNERS_UP, guess.others, strict=False)]
            survival *= sure
        likely = sorted((chance for chance in chances if chance[0] >= _LEAST_CHANCE), reverse=True)
        return [(accepted, token) for _, accepted, token in likely[:most]]

    def length(self, line: Line) -> int:
        """Of the whole sequence."""
        return len(self.committed) + len(line.chain)

    def tokens(self, line: Line, begin: int, end: int) -> list[int]:
        """Tokens at absolute positions `begin` to `end`, the chain's included."""
        split = len(self.committed)
        chain = line.chain[max(0, begin - split) : max(0, end - split)]
        return self.committed[begin:end] + [guess.token for guess in chain]

    def take(self, commit: Commit) -> Taken:
        """Append what is new in `commit`; the line that foresaw most of it is the main one from now on."""
        most = self.opened.num_speculative_tokens
        self.asked = most if commit.wanted is None else min(commit.wanted, most)
        self.worth = min(commit.worth, 1.0)  # so that one token is drafted, if any is asked for
        self.prepares = commit.prepare
        for line in self.lines:
            line.judge_anew()
        known = len(self.committed)
        new = commit.tokens[known - commit.base :] if commit.base <= known else ()
        if not new:
            return Taken([], None)  # where the base is ahead it cannot be for what we said; the next one will be
        self._learn(new)
        line = max(self.lines, key=lambda line: (line.agreement(new), len(line.chain)))
        over = [other for other in self.lines if other is not line]
        agreed = line.agreement(new)
        self.foreseen = self.presented and line is not self.line and agreed == len(new)
        self.line, self.prepared, self.presented, line.given = line, None, False, 0
        self.committed += new
        if agreed < min(len(new), len(line.chain)):
            line.chain.clear()
            return Taken(over, known + agreed)
        del line.chain[:agreed]
        return Taken(over, None)

    def missing(self, line: Line) -> int:
        """How many more tokens the line should hold, at most, if it should hold more."""
        return max(1, self._wanted(line) - line.drafted)

    def proposal(self, now: float) -> Propose:
        took = None if self.asked_at is None else now - self.asked_at
        return Propose(self.opened.session, self.opened.seat, len(self.committed), self._said(self.line), took)

    def presentation(self) -> Propose:
        """The proposal again, and with it what follows the verdicts that are prepared for."""
        branches = tuple(map(self._said, self.prepared or ()))
        tokens = self._said(self.line)
        return Propose(self.opened.session, self.opened.seat, len(self.committed), tokens, branches=branches)

    def _said(self, line: Line) -> tuple[int, ...]:
        """The line's tokens as far as it is proposed."""
        end = self._end(line)
        return tuple(guess.token for guess in line.chain[: None if end is None else line.given + end])

    @property
    def _room(self) -> int:
        """How many tokens beyond the committed ones could be proposed: the answer's last one never is."""
        generated = len(self.committed) - self.opened.prompt_length
        return max(0, self.opened.params.max_tokens - generated - 1)

    def _wanted(self, line: Line) -> int:
        """The most tokens to draft on a line: no more than the answer may still get."""
        return max(0, min(self.asked, self._room - line.given))

    def _end(self, line: Line) -> int | None:
        """After how many drafted tokens the line ends: with the first that is not worth another; None if not yet."""
        wanted = self._wanted(line)
        for guess in line.chain[line.given + line.judged : line.given + wanted]:
            if line.survival < self.worth:
                break
            line.survival *= self._confidence.of(guess.lead)
            line.judged += 1
        if line.survival < self.worth:
            return line.judged
        return wanted if line.drafted >= wanted else None

    def _learn(self, new: Sequence[int]) -> None:
        """Every guess that was reached tells how sure such guesses are."""
        for said, guess in zip(new, self.chain, strict=False):
            self._confidence.observe(guess.lead, right=guess.token == said)
            if guess.token != said:
                break
