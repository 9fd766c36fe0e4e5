"""The check of row invariance: a token's logits must be the same bits in every pass that computes them.

Libraries choose kernels by the number of rows, and an untested processor or GPU may choose others. The check feeds one
session whole, and again in pieces beside another session, and counts the positions whose bits differ. It is a sample:
no difference in it does not prove that there is none.
"""

from __future__ import annotations

from itertools import cycle
from typing import NamedTuple

import torch

from core.model.base import Model, Rows
from core.model.pages import pages_for

_LENGTH = 160  # tokens, on three pages
_CUTS = (1, 5, 2, 8, 3, 16, 1, 4, 7)  # rows of the passes, in turn
_WHOLE, _CUT, _OTHER = -1, -2, -3  # sessions


class Found(NamedTuple):
    """The number of positions whose bits differed, and of all positions compared."""

    differing: int
    positions: int


def differing(model: Model) -> Found:
    """Compare the bits of a session fed in one pass and in many; the model must hold no sessions."""
    length = min(_LENGTH, model.context)
    tokens = torch.randint(model.vocab_size, (length,), generator=torch.Generator().manual_seed(0)).tolist()
    try:
        model.open(_WHOLE)
        whole = model.forward([Rows(_WHOLE, tokens, length)])
        model.close(_WHOLE)
        cut = _in_cuts(model, tokens)
    finally:
        for session in (_WHOLE, _CUT, _OTHER):
            model.close(session)
    return Found(int((whole != cut).any(-1).sum()), length)


def _in_cuts(model: Model, tokens: list[int]) -> torch.Tensor:
    """The logits of all tokens, fed in pieces; every other pass has a second session if there are pages for it."""
    beside = model.num_free_pages > pages_for(len(tokens))
    for session in (_CUT, _OTHER) if beside else (_CUT,):
        model.open(session)
    logits, begin, number = [], 0, 0
    for rows in cycle(_CUTS):
        if begin >= len(tokens):
            break
        part = tokens[begin : begin + rows]
        batch = [Rows(_CUT, part, len(part))]
        if beside and number % 2:
            batch.insert(0, Rows(_OTHER, [tokens[number]], 0))
        logits.append(model.forward(batch))
        begin, number = begin + rows, number + 1
    return torch.cat(logits)
