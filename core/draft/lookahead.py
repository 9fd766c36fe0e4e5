"""Drafting on while the target verifies: branches for the likeliest verdicts on a proposal (SSD, arXiv 2603.03251).

A branch begins where a verdict would end. If the verdict comes out so, the next proposal is there before it is asked
for. Drafting beside the target may slow the target down, so the verifier says with every `Commit` whether to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from core.draft.token_confidence import Confidence
from core.model.draft_tokens import RUNNERS_UP, DraftToken

PAUSE = 1 / 8  # of a round, before looking ahead: until then passes may wait for proposals of other drafts
LEAST_CHANCE = 0.01  # of a verdict that a branch is drafted for
MOST_LINES = 32  # branches of all sessions: they go through the model together
LITTLE_MORE = 1.2  # times the drafting of one branch, which more of them may always take


class Verdict(NamedTuple):
    """A number of accepted tokens, and the target's own token after them."""

    accepted: int
    token: int


def likely_verdicts(chain: Sequence[DraftToken], proposed: int, confidence: Confidence, limit: int) -> list[Verdict]:
    """The likeliest verdicts on the first `proposed` tokens of a chain, which may hold one token more."""
    survival = 1.0
    chances: list[tuple[float, Verdict]] = []
    for index, token in enumerate(chain[: proposed + 1]):
        accepted = confidence.of(token.margin)
        if index == proposed:
            chances.append((survival * accepted, Verdict(index, token.token)))
        rejected = survival * (1.0 - accepted)
        runners_up = zip(RUNNERS_UP, token.runners_up, strict=False)
        chances += [(rejected * share, Verdict(index, other)) for share, other in runners_up]
        survival *= accepted
    likely = sorted((chance for chance in chances if chance[0] >= LEAST_CHANCE), reverse=True)
    return [verdict for _, verdict in likely[:limit]]
