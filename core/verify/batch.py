"""The batch of a target pass: a row per session with its proposals, and chunks of prompts beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from core.generation import Source
from core.model.base import Model, Rows
from core.verify.scheduler import Scheduler
from core.verify.session import VerifySession


class ScheduledRows(NamedTuple):
    """One session's part: tokens that follow its cached ones, the last `proposals` of them uncommitted.

    `source` has proposed them. `scored` of the rows are of a prompt whose logits are wanted; they come first.
    """

    session: VerifySession
    tokens: Sequence[int]
    proposals: tuple[int, ...]
    num_logits: int
    source: Source = "draft"
    scored: int = 0

    @property
    def rows(self) -> Rows:
        return Rows(self.session.number, self.tokens, self.num_logits)


def gather(sessions: Scheduler, model: Model, prefill_chunk: int) -> list[ScheduledRows]:
    """The next rows of every running session. Prompts share `prefill_chunk` tokens, in the order of admission."""
    feeds: list[ScheduledRows] = []
    for session in sessions.leading():
        tokens, cached = session.chain.tokens, model.num_cached(session.number)
        if session.length - cached == 1:
            source, proposals, _ = session.proposal()
            feeds.append(ScheduledRows(session, [tokens[-1], *proposals], proposals, 1 + len(proposals), source))
        elif prefill_chunk > 0:
            cached = sessions.recall(session)
            chunk = tokens[cached : cached + prefill_chunk]
            prefill_chunk -= len(chunk)
            drawn = int(cached + len(chunk) == session.length)
            scored = len(chunk) - drawn if session.scores_prompt else 0
            feeds.append(ScheduledRows(session, chunk, (), scored + drawn, scored=scored))
    return feeds
