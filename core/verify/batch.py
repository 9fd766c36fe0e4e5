"""The batch of a target pass: a row per session with its proposals, and chunks of prompts beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from core.generation import Source
from core.model.base import Model, Rows
from core.policy.cost_model import PassCosts
from core.policy.prompt_costs import Chunk
from core.policy.prompt_share import Room, UnreadPrompt, follows, room, shares
from core.verify.scheduler import Scheduler
from core.verify.session import VerifySession


class ScheduledRows(NamedTuple):
    """One session's part: tokens that follow its cached ones, the last `proposals` of them uncommitted.

    `source` has proposed them. `reads` is the chunk of a prompt that they are, if it is one; `scored` of its rows, the
    first, are those whose logits are wanted.
    """

    session: VerifySession
    tokens: Sequence[int]
    proposals: tuple[int, ...]
    num_logits: int
    source: Source = "draft"
    scored: int = 0
    reads: Chunk | None = None

    @property
    def rows(self) -> Rows:
        return Rows(self.session.number, self.tokens, self.num_logits)


def gather(
    sessions: Scheduler, model: Model, costs: PassCosts, limit: int, num_drafting: int = 0
) -> list[ScheduledRows]:
    """The next rows of every running session, and of prompts as much as `core.policy.prompt_share` allows, `limit`."""
    feeds, reading = list[ScheduledRows](), list[VerifySession]()
    for session in sessions.leading():
        if session.length - model.num_cached(session.number) == 1:
            source, proposals, _ = session.proposal()
            tokens = [session.chain.tokens[-1], *proposals]
            feeds.append(ScheduledRows(session, tokens, proposals, len(tokens), source))
        else:
            reading.append(session)
    space = room(costs, limit, sum(len(feed.tokens) for feed in feeds), num_drafting)
    return [*feeds, *_chunks(sessions, reading, space, costs)]


def _chunks(
    sessions: Scheduler, reading: Sequence[VerifySession], space: Room, costs: PassCosts
) -> list[ScheduledRows]:
    """Parts of prompts, which come in the order of their admission."""
    waiting, before = list[UnreadPrompt](), list[Sequence[int]]()
    for session in reading:
        tokens, cached = session.chain.tokens, sessions.recall(session)
        shared = not session.scores_prompt and follows(tokens, cached, before)
        waiting.append(UnreadPrompt(session.length - cached, cached, shared))
        before.append(tokens)
    feeds = list[ScheduledRows]()
    for session, prompt, length in zip(reading, waiting, shares(waiting, space, costs.prompts), strict=True):
        if not length:
            continue
        tokens = session.chain.tokens[prompt.num_read : prompt.num_read + length]
        num_last = int(length == prompt.num_unread)
        scored = length - num_last if session.scores_prompt else 0
        chunk = Chunk(length, prompt.num_read)
        feeds.append(ScheduledRows(session, tokens, (), scored + num_last, scored=scored, reads=chunk))
    return feeds
