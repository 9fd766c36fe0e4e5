"""Chunked prefill: how much of the waiting prompts a pass reads.

A pass that carries running answers may take `BOUND_PASSES` times as long as without prompts, or `BOUND_SECONDS` if that
is longer. So answers are never slowed down by more than that, prompts have at least three quarters of the time, and
where passes are short nobody gets fewer than 20 tokens a second. A pass without answers reads as much as it may.

The prompt with the least left has up to half of it, and the rest is given in order of arrival: a short question does
not wait until a long text beside it is read, and the text has half the time at least.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from core.model.pages import PAGE_SIZE
from core.policy.cost_model import PassCosts
from core.policy.prompt_costs import Chunk, PromptCosts

BOUND_PASSES = 4.0
BOUND_SECONDS = 0.050
LEAST_CHUNK = 8  # tokens of the first prompt, whatever they take; fewer hardly take less


class UnreadPrompt(NamedTuple):
    """A prompt: how many of its tokens are unread, how many are read, and whether it `follows` another."""

    num_unread: int
    num_read: int
    follows: bool = False


class Room(NamedTuple):
    """What a pass has for prompts: tokens, and seconds."""

    tokens: int
    seconds: float = math.inf


def room(costs: PassCosts, limit: int, rows: float, num_drafting: float = 0) -> Room:
    """What a pass over `rows` of answers has for prompts, of which it may read `limit` tokens."""
    without = costs.seconds(rows, num_drafting)
    if not rows or not without:
        return Room(limit)
    return within(costs, limit, max(BOUND_PASSES * without, BOUND_SECONDS) - without)


def within(costs: PassCosts, limit: int, seconds: float) -> Room:
    """Room for so many seconds; before reading was observed, a token is taken to cost what a pass of one row does."""
    if not costs.prompts.known and costs.known:
        limit = min(limit, max(LEAST_CHUNK, int(seconds / costs.seconds(1))))
    return Room(limit, seconds)


def shares(prompts: Sequence[UnreadPrompt], space: Room, costs: PromptCosts) -> list[int]:
    """How many tokens are read of each prompt; they are in order of arrival."""
    lengths = [0] * len(prompts)
    tokens, seconds = space

    def give(index: int, share: float, least: int = 0) -> None:
        nonlocal tokens, seconds
        prompt, length = prompts[index], lengths[index]
        depth, limit = prompt.num_read + length, min(prompt.num_unread - length, int(share * tokens))
        fitting = costs.fitting(share * seconds, depth)
        chunk = int(min(limit, max(fitting, least)))
        lengths[index] += chunk
        tokens -= chunk
        seconds -= costs.seconds([Chunk(chunk, depth)])

    own = [index for index, prompt in enumerate(prompts) if not prompt.follows]
    if own and (quickest := min(own, key=lambda index: prompts[index].num_unread)):
        give(quickest, 0.5)
    for index in range(len(prompts)):
        give(index, 1.0, 0 if index else LEAST_CHUNK)
    return lengths


def follows(tokens: Sequence[int], num_read: int, before: Iterable[Sequence[int]]) -> bool:
    """Whether a prompt before it has its next page, too, which can be shared once that one has read it."""
    end = num_read + PAGE_SIZE
    return any(
        other[num_read:end] == tokens[num_read:end] and other[:num_read] == tokens[:num_read] for other in before
    )
