"""Log-probabilities for clients: of the raw target logits, before any warp."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from core.generation import TokenLogprob


def token_logprobs(logits: torch.Tensor, drawn: Sequence[int], top: int) -> list[TokenLogprob]:
    """One entry per row of raw float32 logits [n, V]: the drawn token and the `top` most likely, ties by lowest id.

    The drawn token is always among the reported ones, so a row may have `top + 1` of them.
    """
    return [_of_row(row, token, top) for row, token in zip(logits.log_softmax(-1), drawn, strict=True)]


def _of_row(logprobs: torch.Tensor, token: int, top: int) -> TokenLogprob:
    best = _best(logprobs, top)
    chosen = (token, float(logprobs[token]))
    if chosen not in best:
        best.append(chosen)
    return TokenLogprob(token=token, logprob=chosen[1], top=tuple(best))


def _best(logprobs: torch.Tensor, top: int) -> list[tuple[int, float]]:
    if top == 0:
        return []
    # topk leaves open which of equal values it takes: take all of them, then order by (value, id)
    lowest = logprobs.topk(min(top, len(logprobs))).values[-1]
    tokens = (logprobs >= lowest).nonzero()[:, 0]
    values, order = logprobs[tokens].sort(descending=True, stable=True)
    return list(zip(tokens[order].tolist()[:top], values.tolist()[:top], strict=True))
