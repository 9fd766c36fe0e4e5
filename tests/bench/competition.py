"""Replay of a draft beside what can be looked up (`core.verify.sources`), which chooses and learns as in the engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

import msgspec

from core.generation import MAX_SPECULATIVE_TOKENS, GenerationRequest, Run
from core.policy.acceptance import AcceptanceEstimate
from core.replay.replay import AcceptanceCounts, Terms, total
from core.traces.record import Record
from core.verify.commit import Chain
from core.verify.sources.choice import NOTHING, Proposal, Sources, better
from core.verify.sources.source import Generation

_WRONG = -1  # stands for whatever a draft proposes where it is not the target's token


def competition(
    record: Record,
    terms: Terms,
    sources: Sources,
    hit: Sequence[bool] | None,
    draft: AcceptanceEstimate,
    *,
    prediction: Sequence[int] = (),
    owner: str | None = None,
) -> Iterator[Run]:
    """The runs of one record after its prefill, if a draft and `sources` propose to it.

    `hit` is as `core.replay.replay.hits_among` gives it; None: there is no draft. `sources` and `draft`, the estimate
    of the draft's acceptance, learn from the record. The earlier answers of `owner` may be proposed, and this one is
    added to them. The draft proposes as many tokens as `terms` allow, and `sources` as many as are worth a row of the
    target, which costs what their policy has observed.
    """
    truth = record.output_ids
    asked = GenerationRequest(
        tokens=record.prompt_ids,
        prompt_length=record.prompt_length,
        params=msgspec.structs.replace(record.params, stop=()),  # the record ends where it ended
        prediction=tuple(prediction),
        owner=owner,
    )
    chain = Chain(asked, eos_ids=(), context=terms.context)
    most = terms.num_speculative_tokens
    session = sources.open(Generation(asked, chain), MAX_SPECULATIVE_TOKENS)
    tokens = truth[:1]
    while True:
        chain.commit(tokens, tokens[:-1])
        session.committed(tokens)
        if chain.num_generated == len(truth):
            break
        sources.propose([session], 1)
        begin = chain.num_generated
        drafted = NOTHING if hit is None else _drafted(hit, truth, begin, chain.limit_proposals(most), draft)
        source, proposed, _ = better(drafted, session.proposal)
        accepted = _agreed(proposed, truth[begin:])
        tokens = truth[begin : begin + accepted + 1]
        if source == "draft" and proposed:
            draft.observe(most, len(proposed), accepted)
        elif drafted.tokens:
            known = drafted.tokens[: len(tokens)]
            draft.observe(len(known), len(known), _agreed(known, tokens))
        yield Run(tokens, len(proposed), accepted, source=source)
    sources.finished(session)


def counts(runs: Iterable[Run]) -> AcceptanceCounts:
    """The counts of runs, none of which is of a prefill."""
    return total(AcceptanceCounts(len(run.tokens), 1, run.proposed, run.accepted) for run in runs)


def _drafted(
    hit: Sequence[bool], truth: Sequence[int], begin: int, most: int, estimate: AcceptanceEstimate
) -> Proposal:
    """What the draft proposes after `begin` tokens: nothing that it says after a wrong token is right."""
    right = sum(takewhile(bool, hit[begin : begin + most]))
    tokens = (*truth[begin : begin + right], *[_WRONG] * (most - right))
    return Proposal("draft", tokens, estimate.tokens(len(tokens)) - 1.0)


def _agreed(proposed: Sequence[int], truth: Sequence[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(proposed, truth, strict=False)))
