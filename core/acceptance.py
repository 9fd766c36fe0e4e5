"""How much of an answer a draft would have guessed: the exact counterfactual, from one teacher-forced pass.

Enters: a draft and records of what the target answered. Leaves: counts per record. A drafted token is accepted iff it
is the target's, and the dice are known; so the draft's draw after every true prefix says at which positions it hits,
and from the hits follows every pass that serial drafting would have led to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

import torch

from core.model.base import Model, Rows
from core.record import Record
from core.warps import sample

# (tokens, n) -> float32 logits [n, V] after each of the last n tokens; the tokens fit the draft's context
Forward = Callable[[Sequence[int], int], torch.Tensor]
_SESSION = 0


class Terms(NamedTuple):
    """Under what a draft is judged: tokens drafted after every commit, ids the tokenizer has, the target's context."""

    num_speculative_tokens: int
    num_valid: int
    context: int


class Acceptance(NamedTuple):
    """What speculation would have done for one record, or for several by addition.

    `tokens` came out of `passes` target passes, plain ones among them; the prefill's pass and token are not counted.
    """

    tokens: int = 0
    passes: int = 0
    proposed: int = 0
    accepted: int = 0

    @property
    def acceptance_rate(self) -> float:
        """Accepted / proposed; 0 where nothing was proposed."""
        return self.accepted / self.proposed if self.proposed else 0.0

    @property
    def tokens_per_pass(self) -> float:
        """Tokens per target pass; 1, as without a draft, where there was no pass to count."""
        return self.tokens / self.passes if self.passes else 1.0


def total(acceptances: Iterable[Acceptance]) -> Acceptance:
    """The sum, field by field."""
    return Acceptance(*map(sum, zip(Acceptance(), *acceptances, strict=True)))


def score(model: Model, records: Sequence[Record], terms: Terms) -> list[Acceptance]:
    """What `model` as the draft of each record would have done, serially drafting; one entry per record.

    The model needs pages for one session of its context.
    """
    return [replay(hits(record, session_forward(model), model.context, terms), record, terms) for record in records]


@torch.inference_mode()
def hits(record: Record, forward: Forward, context: int, terms: Terms) -> list[bool]:
    """For every output token whether the draft, given all tokens before it, draws it by the same dice.

    `context` is the draft's. Beyond it the draft starts again from the last half, as the draft engine does.
    """
    tokens = record.tokens
    spans = _spans(record.prompt_length, len(tokens), context)
    logits = torch.cat([forward(tokens[start : last - 1], last - first) for start, first, last in spans])
    position = record.prompt_length
    drawn = sample(logits, record.params, record.choice, position, None, record.output_ids, terms.num_valid)
    return [token == said for token, said in zip(drawn, record.output_ids, strict=True)]


def replay(hit: Sequence[bool], record: Record, terms: Terms) -> Acceptance:
    """The passes of a draft that proposes as many tokens as it may after every commit, by the commit rule's limits."""
    whole = min(record.params.max_tokens, terms.context - record.prompt_length)
    committed = passes = proposed = accepted = 0
    committed += 1  # by the prefill
    while committed < len(hit):
        proposals = max(0, min(terms.num_speculative_tokens, whole - committed - 1))
        run = sum(takewhile(bool, hit[committed : committed + proposals]))
        passes += 1
        proposed += proposals
        accepted += run
        committed += run + 1
    return Acceptance(max(0, len(hit) - 1), passes, proposed, accepted)


def session_forward(model: Model) -> Forward:
    """A model with a cache, used for one sequence at a time."""

    def forward(tokens: Sequence[int], num_logits: int) -> torch.Tensor:
        model.open(_SESSION)
        try:
            return model.forward([Rows(_SESSION, tokens, num_logits)])
        finally:
            model.close(_SESSION)

    return forward


def _spans(first: int, end: int, context: int) -> Iterator[tuple[int, int, int]]:
    """Cut positions `first .. end - 1` into (start, first, last) of which the draft sees tokens from `start` on."""
    start = 0
    while first < end:
        if first - start > context:
            start = max(0, first - context // 2)
        last = min(end, start + context + 1)
        yield start, first, last
        first = last
