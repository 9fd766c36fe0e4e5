"""One generation as a draft sees it: what it knows to be committed, and its own chain beyond."""

from __future__ import annotations

from itertools import takewhile

from core.dice import NoiseWindow
from core.messages import Commit, OpenSession, Propose


class DraftSession:
    """Committed tokens and the uncommitted chain drafted on top of them.

    `start` is the absolute position of the first token in the draft's own cache: its context may be shorter than the
    target's, and then it keeps only the last part of the sequence.
    """

    def __init__(self, opened: OpenSession, peer: bytes, now: float) -> None:
        self.opened = opened
        self.peer = peer
        self.noise = NoiseWindow(opened.params.seed, opened.choice)
        self.committed = list(opened.tokens)
        self.chain: list[int] = []
        self.start = 0
        self.asked = opened.num_speculative_tokens  # for every proposal
        self.heard_at = now
        self.advanced_at = now  # when it last heard of committed tokens
        self.told_at = now
        self.answered_at: float | None = None  # when the verifier was first told since its last Commit
        self.due = True  # a Propose is owed: every Commit is answered

    @property
    def length(self) -> int:
        return len(self.committed) + len(self.chain)

    @property
    def wanted(self) -> int:
        """How long the chain should be: no longer than the answer may still get."""
        generated = len(self.committed) - self.opened.prompt_length
        return max(0, min(self.asked, self.opened.params.max_tokens - generated - 1))

    @property
    def complete(self) -> bool:
        return len(self.chain) >= self.wanted

    def full(self, *, ahead: bool) -> bool:
        """Whether there is nothing to draft; `ahead` goes on to what is wanted after this proposal, all accepted."""
        if not ahead or not self.wanted:
            return self.complete
        generated = len(self.committed) - self.opened.prompt_length
        return len(self.chain) >= min(2 * self.wanted + 1, self.opened.params.max_tokens - generated - 1)

    def tokens(self, begin: int, end: int) -> list[int]:
        """Tokens at absolute positions `begin` to `end`, chain included."""
        split = len(self.committed)
        return self.committed[begin:end] + self.chain[max(0, begin - split) : max(0, end - split)]

    def take(self, commit: Commit) -> int | None:
        """Append what is new in `commit`; returns the position where the chain was cut, None if it stands."""
        most = self.opened.num_speculative_tokens
        self.asked = most if commit.wanted is None else min(commit.wanted, most)
        known = len(self.committed)
        if commit.base > known:
            return None  # cannot be for what we said; the next one will be
        new = commit.tokens[known - commit.base :]
        agreed = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(new, self.chain, strict=False)))
        self.committed += new
        if agreed < min(len(new), len(self.chain)):
            self.chain.clear()
            return known + agreed
        del self.chain[:agreed]
        return None

    def proposal(self) -> Propose:
        return Propose(self.opened.session, self.opened.seat, len(self.committed), tuple(self.chain[: self.wanted]))
