"""One generation as a draft sees it: the committed tokens that it knows, and the lines drafted on top of them.

The session's main line is what it proposes. Once that is sent, branches are drafted beside it
(`core.draft.lookahead`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from functools import cached_property
from typing import Any, NamedTuple

from core.draft.line import Line
from core.draft.token_confidence import Confidence
from core.model.draft_tokens import DraftToken
from core.wire.messages import Commit, OpenSession, Propose


class State(Enum):
    """What passes between a session and its verifier next."""

    JOINING = auto()
    """A first proposal, sent again until the verifier answers."""
    ASKED = auto()
    """A proposal that the verifier has asked for."""
    PROPOSED = auto()
    """The verdict on a proposal, or a request: the last Commit may have asked for nothing."""
    FORESEEN = auto()
    """The verdict on a branch, with which the verifier has begun its pass."""
    BRANCHED = auto()
    """The verdict; proposal and branches are sent."""


class CommitEffect(NamedTuple):
    """The effect of a Commit: new tokens, lines that end, where the main line was cut, and the seconds of the round."""

    committed: int
    ended: list[Line]
    cut: int | None
    round_seconds: float | None


class DraftSession:
    """Committed tokens and the lines drafted on top of them.

    `start` is the absolute position of the first token in the draft's own cache: its context may be shorter than the
    target's, and then it keeps only the last part of the sequence. `noise` holds rows by position, from the committed
    tokens on: after a rejection, and on other lines, the same are needed again. `branches` is None until there are any.
    Times are in seconds: `heard_at` of the last message received, `quiet_since` of the last one sent or of the Commit
    that asked for it, `proposed_at` of the first proposal since the last Commit, `asked_at` of a Commit that asked for
    a chain of which nothing was drafted.
    """

    def __init__(self, opened: OpenSession, peer: bytes, now: float, confidence: Confidence) -> None:
        self.opened = opened
        self.peer = peer
        self.noise: dict[int, Any] = {}
        self.committed = list(opened.tokens)
        self.line = Line(opened.session, [])
        self.branches: list[Line] | None = None
        self.start = 0
        self.state = State.JOINING
        self.num_tokens = opened.num_speculative_tokens
        self.min_survival = 0.0
        self.lookahead = opened.lookahead
        self.heard_at = self.quiet_since = now
        self.proposed_at: float | None = None
        self.asked_at: float | None = None
        self._confidence = confidence

    @property
    def chain(self) -> list[DraftToken]:
        return self.line.chain

    @cached_property
    def prompt_ids(self) -> list[int]:
        """The distinct tokens of the prompt."""
        return list(set(self.committed[: self.opened.prompt_length]))

    @property
    def lines(self) -> list[Line]:
        return [self.line, *(self.branches or ())]

    @property
    def due(self) -> bool:
        """Whether a proposal is owed."""
        return self.state in (State.JOINING, State.ASKED)

    @property
    def complete(self) -> bool:
        """Whether the proposal is as long as it should be."""
        return self._end(self.line) is not None

    @property
    def proposed(self) -> int:
        """The number of the chain's tokens that are the proposal."""
        end = self._end(self.line)
        return self.line.num_drafted if end is None else end

    @property
    def looks_ahead(self) -> bool:
        """Whether the proposal is out, and branches for its verdict may be drafted."""
        return self.lookahead and not self.due and self.complete and self._limit(self.line) > 0

    @property
    def chain_has_bonus(self) -> bool:
        """Whether the chain holds the token after the proposal, or the answer ends before it."""
        return len(self.chain) >= min(self.proposed + 1, self._room)

    def ahead(self) -> list[Line]:
        """The lines that lookahead drafts a token for next: the main one to its bonus token, then the branches."""
        if self.branches is None:
            return [] if self.chain_has_bonus else [self.line]
        return [line for line in self.branches if self._end(line) is None]

    @property
    def presentable(self) -> bool:
        """Whether all branches are drafted and none is sent."""
        is_out = self.state is State.BRANCHED
        return bool(self.branches) and not is_out and self.looks_ahead and not self.ahead()

    def length(self, line: Line) -> int:
        """Tokens of the whole sequence."""
        return len(self.committed) + len(line.chain)

    def tokens(self, line: Line, begin: int, end: int) -> list[int]:
        """Tokens at absolute positions `begin` to `end`, the chain's included."""
        split = len(self.committed)
        chain = line.chain[max(0, begin - split) : max(0, end - split)]
        return self.committed[begin:end] + [drafted.token for drafted in chain]

    def take(self, commit: Commit, now: float) -> CommitEffect:
        """Append what is new in `commit`. The line that agrees with most of it becomes the main one."""
        branched, round_seconds = self.state is State.BRANCHED, self._round_seconds(commit, now)
        limit = self.opened.num_speculative_tokens
        self.num_tokens = limit if commit.num_tokens is None else min(commit.num_tokens, limit)
        self.min_survival = min(commit.min_survival, 1.0)  # so that one token is drafted, if any is asked for
        self.lookahead = self.opened.lookahead and commit.lookahead
        for line in self.lines:
            line.judge_anew()
        self.heard_at = now
        if commit.tokens:  # without any it only says that the session lives
            if commit.num_tokens != 0 and not self.due:
                self.quiet_since = now
            self.state, self.proposed_at = State.PROPOSED if commit.num_tokens == 0 else State.ASKED, None
        num_known = len(self.committed)
        new = commit.tokens[num_known - commit.base :] if commit.base <= num_known else ()
        if not new:
            return CommitEffect(
                0, [], None, round_seconds
            )  # a base beyond what is known answers nothing sent from here
        self._learn(new)
        best = max(self.lines, key=lambda line: (line.agreement(new), len(line.chain)))
        foreseen = branched and best is not self.line and best.agreement(new) == len(new)
        ended, cut = self._advance(new, best)
        if foreseen and self.due and self.complete:
            self.state, self.proposed_at = State.FORESEEN, now
        self.asked_at = now if self.due and not self.chain else None
        return CommitEffect(len(new), ended, cut, round_seconds)

    def _advance(self, new: Sequence[int], best: Line) -> tuple[list[Line], int | None]:
        """Make one line the main one beyond `new` tokens; returns the others, and where it was cut if it was."""
        ended, agreed = [line for line in self.lines if line is not best], best.agreement(new)
        cut = None if agreed == min(len(new), len(best.chain)) else len(self.committed) + agreed
        self.line, self.branches, best.num_assumed = best, None, 0
        self.committed += new
        del best.chain[: agreed if cut is None else None]
        return ended, cut

    def _round_seconds(self, commit: Commit, now: float) -> float | None:
        """Seconds from a proposal to this Commit, if it is the verdict and was not under way when that was sent."""
        verdict = self.state is State.FORESEEN or commit.base >= len(self.committed)
        if not commit.tokens or not verdict or not self.num_tokens or self.proposed_at is None:
            return None
        return now - self.proposed_at

    def missing(self, line: Line) -> int:
        """The most tokens that the line should still get, if it should get any."""
        return max(1, self._limit(line) - line.num_drafted)

    def proposal(self, now: float) -> Propose:
        took = None if self.asked_at is None else now - self.asked_at
        return Propose(self.opened.session, self.opened.epoch, len(self.committed), self._proposed(self.line), took)

    def presentation(self) -> Propose:
        """The proposal again, with the branches."""
        branches = tuple(map(self._proposed, self.branches or ()))
        tokens = self._proposed(self.line)
        return Propose(self.opened.session, self.opened.epoch, len(self.committed), tokens, branches=branches)

    def _proposed(self, line: Line) -> tuple[int, ...]:
        return line.tokens(self._end(line))

    @property
    def _room(self) -> int:
        """The number of tokens that could be proposed: the answer's last one never is."""
        generated = len(self.committed) - self.opened.prompt_length
        return max(0, self.opened.params.max_tokens - generated - 1)

    def _limit(self, line: Line) -> int:
        """The most tokens to draft on a line: no more than the answer may still get."""
        return max(0, min(self.num_tokens, self._room - line.num_assumed))

    def _end(self, line: Line) -> int | None:
        return line.end(self._limit(line), self.min_survival, self._confidence)

    def _learn(self, new: Sequence[int]) -> None:
        """Observe every drafted token that the verdict reached."""
        for committed, drafted in zip(new, self.chain, strict=False):
            self._confidence.observe(drafted.margin, right=drafted.token == committed)
            if drafted.token != committed:
                break
