"""Log-probabilities for clients: of the raw target logits, before any warp."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from core.generation import TokenLogprob


def token_logprobs(logits: torch.Tensor, tokens_chosen: Sequence[int], top: int) -> list[TokenLogprob]:
    """One entry per row of raw float32 logits [n, V]: the drawn token and the `top` most likely, ties by lowest id.

    The drawn token is always among the reported ones, so a row may have `top + 1` of them.
    """
    if not len(logits):
        return []
    logprobs = logits.log_softmax(-1)
    tokens = torch.tensor(tokens_chosen, device=logits.device)[:, None]
    chosen = zip(tokens_chosen, logprobs.gather(-1, tokens)[:, 0].tolist(), strict=True)
    return [
        TokenLogprob(token=token, logprob=value, top=tuple(best if (token, value) in best else [*best, (token, value)]))
        for (token, value), best in zip(chosen, _best(logprobs, top), strict=True)
    ]


def _best(logprobs: torch.Tensor, top: int) -> list[list[tuple[int, float]]]:
    """The `top` likeliest tokens of each row and their values, by (value descending, id ascending)."""
    top = min(top, logprobs.shape[-1])
    if top == 0:
        return [[] for _ in logprobs]
    # One more than is asked for shows whether topk had a choice among equals at the end; then all are looked at.
    values, tokens = logprobs.topk(min(top + 1, logprobs.shape[-1]))
    tied = (values[:, top - 1] == values[:, -1]).tolist() if values.shape[-1] > top else [False] * len(logprobs)
    tokens, order = tokens[:, :top].sort(-1)
    values, by_value = values[:, :top].gather(-1, order).sort(dim=-1, descending=True, stable=True)
    rows = zip(tokens.gather(-1, by_value).tolist(), values.tolist(), logprobs, tied, strict=True)
    return [_with_ties(row, top) if tie else list(zip(ids, of, strict=True)) for ids, of, row, tie in rows]


def _with_ties(logprobs: torch.Tensor, top: int) -> list[tuple[int, float]]:
    lowest = logprobs.topk(top).values[-1]
    tokens = (logprobs >= lowest).nonzero()[:, 0]
    values, order = logprobs[tokens].sort(descending=True, stable=True)
    return list(zip(tokens[order].tolist()[:top], values.tolist()[:top], strict=True))
