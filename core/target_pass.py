"""What goes into a target pass: a row per session and its proposals, and prompts by the chunk beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from core.model.base import Model, Rows
from core.session_table import SessionTable
from core.verify_session import VerifySession


class Feed(NamedTuple):
    """One session's part: tokens that follow its cached ones, the last `proposals` of them uncommitted."""

    session: VerifySession
    tokens: Sequence[int]
    proposals: tuple[int, ...]
    num_logits: int

    @property
    def rows(self) -> Rows:
        return Rows(self.session.number, self.tokens, self.num_logits)


def gather(sessions: SessionTable, model: Model, prefill_chunk: int) -> list[Feed]:
    """What every running session feeds next; prompts share `prefill_chunk` tokens, those admitted first come first."""
    feeds: list[Feed] = []
    for session in sessions.leading():
        tokens, cached = session.chain.tokens, model.num_cached(session.number)
        if session.length - cached == 1:
            proposals = session.proposals()
            feeds.append(Feed(session, [tokens[-1], *proposals], proposals, 1 + len(proposals)))
        elif prefill_chunk > 0:
            cached = sessions.recall(session)
            chunk = tokens[cached : cached + prefill_chunk]
            prefill_chunk -= len(chunk)
            feeds.append(Feed(session, chunk, (), int(cached + len(chunk) == session.length)))
    return feeds
