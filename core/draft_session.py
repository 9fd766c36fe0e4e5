"""One generation as a draft sees it: what it knows to be committed, and its own chain beyond."""

from __future__ import annotations

from collections.abc import Sequence

from core.confidence import Confidence
from core.dice import NoiseWindow
from core.messages import Commit, OpenSession, Propose


class DraftSession:
    """Committed tokens and the uncommitted chain drafted on top of them.

    `start` is the absolute position of the first token in the draft's own cache: its context may be shorter than the
    target's, and then it keeps only the last part of the sequence.
    """

    def __init__(self, opened: OpenSession, peer: bytes, now: float, confidence: Confidence) -> None:
        self.opened = opened
        self.peer = peer
        self.noise = NoiseWindow(opened.params.seed, opened.choice)
        self.committed = list(opened.tokens)
        self.chain: list[int] = []
        self.leads: list[float] = []  # of the chain's tokens, by which it is judged how likely they are right
        self.confidence = confidence
        self.start = 0
        self.asked = opened.num_speculative_tokens  # for every proposal
        self.worth = 0.0
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
        """The most a proposal may hold: no more than the answer may still get."""
        generated = len(self.committed) - self.opened.prompt_length
        return max(0, min(self.asked, self.opened.params.max_tokens - generated - 1))

    @property
    def worthwhile(self) -> int:
        """How many of the chain's tokens are worth proposing."""
        survival = 1.0
        for index, lead in enumerate(self.leads[: self.wanted]):
            survival *= self.confidence.of(lead)
            if survival < self.worth:
                return index
        return min(len(self.chain), self.wanted)

    @property
    def complete(self) -> bool:
        return len(self.chain) >= self.wanted or self.worthwhile < len(self.chain)

    def full(self, *, ahead: bool) -> bool:
        """Whether there is nothing to draft; `ahead` goes on to what is wanted after this proposal, all accepted."""
        if not ahead or not self.wanted:
            return self.complete
        generated = len(self.committed) - self.opened.prompt_length
        return len(self.chain) >= min(2 * self.wanted + 1, self.opened.params.max_tokens - generated - 1)

    def guess(self, token: int, lead: float) -> None:
        """Draft one token more; `lead` is that of its score over the next best, in logits."""
        self.chain.append(token)
        self.leads.append(lead)

    def tokens(self, begin: int, end: int) -> list[int]:
        """Tokens at absolute positions `begin` to `end`, chain included."""
        split = len(self.committed)
        return self.committed[begin:end] + self.chain[max(0, begin - split) : max(0, end - split)]

    def take(self, commit: Commit) -> int | None:
        """Append what is new in `commit`; returns the position where the chain was cut, None if it stands."""
        most = self.opened.num_speculative_tokens
        self.asked = most if commit.wanted is None else min(commit.wanted, most)
        self.worth = commit.worth
        known = len(self.committed)
        if commit.base > known:
            return None  # cannot be for what we said; the next one will be
        new = commit.tokens[known - commit.base :]
        agreed = self._agreed(new)
        self.committed += new
        if agreed < min(len(new), len(self.chain)):
            self.chain.clear()
            self.leads.clear()
            return known + agreed
        del self.chain[:agreed], self.leads[:agreed]
        return None

    def proposal(self) -> Propose:
        return Propose(self.opened.session, self.opened.seat, len(self.committed), tuple(self.chain[: self.worthwhile]))

    def _agreed(self, new: Sequence[int]) -> int:
        """With how many of the new tokens the chain agrees; every guess that was reached is learned from."""
        agreed = 0
        for said, token, lead in zip(new, self.chain, self.leads, strict=False):
            self.confidence.observe(lead, right=token == said)
            if token != said:
                break
            agreed += 1
        return agreed
