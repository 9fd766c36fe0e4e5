"""Replay: the exact acceptance that any draft would have had on recorded answers, from one teacher-forced pass.

Draft and target sample with the same noise, and a drafted token is accepted iff it is the target's. So the draft's
sample after every true prefix gives its hits, and the hits give every target pass of serial drafting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

import torch

from core.model.base import Model, Rows, drawable_ids
from core.replay.speed import DraftCosts
from core.sampling.gumbel import Ids
from core.sampling.sampler import GeneratedCounts, Sampling, sample
from core.traces.record import Record

# (tokens, n) -> float32 logits [n, V] after each of the last n tokens; the tokens fit the draft's context
Forward = Callable[[Sequence[int], int], torch.Tensor]
NUM_SPECULATIVE_TOKENS = 6  # of the comparison of drafts in a retraining; a service adapts its own number
_SESSION = 0


class Terms(NamedTuple):
    """The limits of a replay: tokens drafted after every commit, token ids the tokenizer has, the target's context."""

    num_speculative_tokens: int
    num_valid: int
    context: int


class AcceptanceCounts(NamedTuple):
    """Counts of speculative decoding over one record, or summed over several.

    `tokens` were committed in `passes` target passes, plain ones included, the prefill and its token excluded. `times`
    has, in plain passes, how long they take with 1, 2, ... tokens drafted for every pass; it is empty if the draft's
    costs are not known. The other counts are those with as many tokens as the terms allow.
    """

    tokens: int = 0
    passes: int = 0
    proposed: int = 0
    accepted: int = 0
    times: tuple[float, ...] = ()

    @property
    def acceptance_rate(self) -> float:
        """Accepted / proposed; 0 if nothing was proposed."""
        return self.accepted / self.proposed if self.proposed else 0.0

    @property
    def tokens_per_pass(self) -> float:
        """Tokens per target pass; 1, as without a draft, if there was no pass."""
        return self.tokens / self.passes if self.passes else 1.0

    @property
    def speedup(self) -> float:
        """Tokens a second in times plain decoding, with the number of drafted tokens that is best for all.

        It is 1 if there was no pass. There must be `times`.
        """
        return self.tokens / min(self.times) if self.passes else 1.0

    @property
    def length(self) -> int:
        """The number of drafted tokens that `speedup` is of."""
        return 1 + self.times.index(min(self.times))


def total(acceptances: Iterable[AcceptanceCounts]) -> AcceptanceCounts:
    """The sum, field by field."""
    rows = list(acceptances)
    return AcceptanceCounts(
        sum(counts.tokens for counts in rows),
        sum(counts.passes for counts in rows),
        sum(counts.proposed for counts in rows),
        sum(counts.accepted for counts in rows),
        tuple(map(sum, zip(*(counts.times for counts in rows), strict=True))),
    )


def score_draft(
    model: Model, records: Sequence[Record], terms: Terms, costs: DraftCosts | None = None
) -> list[AcceptanceCounts]:
    """Counts of `model` as a serial draft, one entry per record.

    The model needs pages for one session of its context.
    """
    ids = drawable_ids(model.head_ids, terms.num_valid)
    return score(session_forward(model), model.context, ids, records, terms, costs)


def score(
    forward: Forward,
    context: int,
    ids: Ids,
    records: Sequence[Record],
    terms: Terms,
    costs: DraftCosts | None = None,
) -> list[AcceptanceCounts]:
    """Counts of a draft of this `context`, whose logits have a column for each of `ids`; see `score_draft`."""
    hits = (hits_among(ids, record, output_logits(record, forward, context)) for record in records)
    return [replay(hit, record, terms, costs) for record, hit in zip(records, hits, strict=True)]


@torch.inference_mode()
def output_logits(record: Record, forward: Forward, context: int) -> torch.Tensor:
    """The draft's float32 logits [output tokens, V] for every output token, given all tokens before it.

    Beyond its `context` the draft starts again from the last half, as the draft engine does.
    """
    tokens = record.tokens
    spans = _spans(record.prompt_length, len(tokens), context)
    return torch.cat([forward(tokens[start : last - 1], last - first) for start, first, last in spans])


@torch.inference_mode()
def hits_among(ids: Ids, record: Record, logits: torch.Tensor) -> list[bool]:
    """One bool per output token: True if the draft, given all tokens before it, samples it with the same noise.

    It samples among `ids`, which are those of the first columns of its `output_logits`.
    """
    proposed, prompt, nothing_yet = record.output_ids[:-1], record.prompt_ids, GeneratedCounts()
    sampling = Sampling(record.params, record.choice, record.prompt_length, nothing_yet, proposed, prompt)
    samples = sample(logits, [sampling], ids)
    return [token == actual for token, actual in zip(samples, record.output_ids, strict=True)]


def replay(hit: Sequence[bool], record: Record, terms: Terms, costs: DraftCosts | None = None) -> AcceptanceCounts:
    """Counts for a draft that proposes as many tokens as the commit rule allows after every commit.

    With `costs` they have the times of all numbers of tokens up to that of the terms.
    """
    longest = terms.num_speculative_tokens
    counts = _replay(hit, record, terms, longest)
    if costs is None:
        return counts
    by_length = [*(_replay(hit, record, terms, length) for length in range(1, longest)), counts]
    times = (costs.time(length, each.passes, each.proposed) for length, each in enumerate(by_length, 1))
    return counts._replace(times=tuple(times))


def _replay(hit: Sequence[bool], record: Record, terms: Terms, length: int) -> AcceptanceCounts:
    whole = min(record.params.max_tokens, terms.context - record.prompt_length)
    committed = passes = proposed = accepted = 0
    committed += 1  # by the prefill
    while committed < len(hit):
        proposals = max(0, min(length, whole - committed - 1))
        run = sum(takewhile(bool, hit[committed : committed + proposals]))
        passes += 1
        proposed += proposals
        accepted += run
        committed += run + 1
    return AcceptanceCounts(max(0, len(hit) - 1), passes, proposed, accepted)


def session_forward(model: Model) -> Forward:
    """The `Forward` of a model with a KV cache, for one sequence at a time."""

    def forward(tokens: Sequence[int], num_logits: int) -> torch.Tensor:
        model.open(_SESSION)
        try:
            return model.forward([Rows(_SESSION, tokens, num_logits)])
        finally:
            model.close(_SESSION)

    return forward


def _spans(first: int, end: int, context: int) -> Iterator[tuple[int, int, int]]:
    """Cut positions `first .. end - 1` into spans (start, first, last); the draft sees tokens from `start` on."""
    start = 0
    while first < end:
        if first - start > context:
            start = max(0, first - context // 2)
        last = min(end, start + context + 1)
        yield start, first, last
        first = last
