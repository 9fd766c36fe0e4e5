"""What a draft vocabulary of some size costs and brings: the cost of a drafted token, and the acceptance.

A smaller vocabulary makes drafting cheaper, and misses more of the target's tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from core.model.base import Model, Rows, drawable_ids
from core.model.draft_tokens import StopRule
from core.model.draft_vocabulary import DraftVocabulary
from core.model.tensor_views import as_tensor
from core.replay import replay
from core.replay.replay import AcceptanceCounts, Terms
from core.replay.speed import DraftCosts
from core.sampling.gumbel import gumbel, keys, num_ids
from core.traces.record import Record

_CACHED = 128  # tokens before the drafted ones
_TURNS = 20
_SESSION = 0


def score_vocabularies(
    model: Model,
    vocabularies: Sequence[DraftVocabulary | None],
    records: Sequence[Record],
    terms: Terms,
    costs: Sequence[DraftCosts | None],
) -> list[list[AcceptanceCounts]]:
    """The counts that `score_draft` finds of `model` with each of the vocabularies; None is the model's own.

    `costs` are those of each, if they are known. One pass over a record serves all of them. The model's head has all of
    their ids. It needs pages for one session of its context.
    """
    forward = replay.session_forward(model)
    heads = [model.head_ids if cut is None else as_tensor(cut.ids).to(model.device) for cut in vocabularies]
    scores: list[list[AcceptanceCounts]] = [[] for _ in vocabularies]
    for record in records:
        logits = replay.output_logits(record, forward, model.context)
        for head_ids, cost, counts in zip(heads, costs, scores, strict=True):
            hit = replay.hits_among(drawable_ids(head_ids, terms.num_valid), record, _of_ids(logits, model, head_ids))
            counts.append(replay.replay(hit, record, terms, cost))
    return scores


def _of_ids(logits: torch.Tensor, model: Model, ids: torch.Tensor | None) -> torch.Tensor:
    """The columns of a model's logits that are of these ids; None stands for all columns."""
    if ids is None or ids is model.head_ids:
        return logits
    return logits[:, ids if model.head_ids is None else torch.searchsorted(model.head_ids, ids)]


def seconds_per_token(model: Model, num_valid: int, clock: Callable[[], float], *, sampled: bool) -> float:
    """Seconds of a drafted token of one session: the quickest of some proposals, which the model draws.

    With `sampled` the noise is made too, as at any temperature above 0. The model must hold no sessions, and holds none
    after.
    """
    steps, ids = replay.NUM_SPECULATIVE_TOKENS, drawable_ids(model.head_ids, num_valid)
    cached = min(_CACHED, model.context - steps)
    places = [(0, 0, position) for position in range(cached, cached + steps)]
    row_keys = torch.as_tensor(keys(places), device=model.device)
    quickest = math.inf
    model.open(_SESSION)
    try:
        model.forward([Rows(_SESSION, [0] * cached, 0)])
        for _ in range(_TURNS):
            began = clock()
            noise = gumbel(row_keys, ids)[:, None] if sampled else None
            model.draw([Rows(_SESSION, [0], 1)], steps, num_ids(ids), noise, StopRule.never(1))
            quickest = min(quickest, clock() - began)
            model.rollback(_SESSION, cached)
    finally:
        model.close(_SESSION)
    return quickest / steps
