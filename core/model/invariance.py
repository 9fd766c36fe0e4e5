"""Whether a model keeps its promise: a token's logits are the same bits whichever pass they come out of.

Kernels are chosen by the number of rows, and a processor or GPU that nobody has tried may choose others. Enters: a
model. Leaves: of how many positions the bits hung on how the tokens before were cut into passes, and on who else was
in these. It is a sample: that no bit differs in it does not prove that none ever will.
"""

from __future__ import annotations

from itertools import cycle
from typing import NamedTuple

import torch

from core.model.base import Model, Rows
from core.model.pages import pages_for

_LENGTH = 160  # tokens, of three pages
_CUTS = (1, 5, 2, 8, 3, 16, 1, 4, 7)  # rows of passes, in turn
_WHOLE, _CUT, _OTHER = -1, -2, -3  # sessions


class Found(NamedTuple):
    """How many positions were looked at, and of how many the bits differed."""

    differing: int
    positions: int


def differing(model: Model) -> Found:
    """Compare bits of a session read in one pass and in many; the model must hold no sessions, and holds none after."""
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
    """Logits of all tokens, which share every other pass with another session's where pages are left for it."""
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
