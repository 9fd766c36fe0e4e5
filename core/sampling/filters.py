"""The sampling filters: top-k, top-p and min-p, each over the rows of many requests at once.

A filter sets the logits of banned tokens to -inf. It keeps the first tokens by (logit descending, id ascending), so the
kept set does not depend on the device or the kernel. A new filter is a function like `_top_k` and a line in
`apply_filters`. Filters do nothing at temperature 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import torch

from core.sampling.params import SamplingParams

BANNED = -math.inf
UNIT = 2.0**40  # probability mass in fixed point: the most likely token weighs 2^40, 2^18 of them fit an int64
FIRST_LOOK = 256  # top-p sorts this many tokens first, which usually hold the mass; sorting all costs far more


class Filter(Protocol):
    """Bans tokens in rows z [n, V]; `params` holds the request of each row."""

    def __call__(self, z: torch.Tensor, params: Sequence[SamplingParams]) -> torch.Tensor: ...


def apply_filters(z: torch.Tensor, requests: Sequence[tuple[SamplingParams, int]]) -> torch.Tensor:
    """Filter the rows of all requests, given with their number of rows; the order is top-k, top-p, min-p."""
    filters: list[tuple[Callable[[SamplingParams], bool], Filter]] = [
        (lambda params: 0 < params.top_k < z.shape[-1], _top_k),
        (lambda params: params.top_p < 1.0, _top_p),
        (lambda params: params.min_p > 0.0, _min_p),
    ]
    for wanted, keep in filters:
        on = [(not params.greedy and wanted(params), rows) for params, rows in requests]
        own = [params for (is_on, rows), (params, _) in zip(on, requests, strict=True) if is_on for _ in range(rows)]
        if own:
            z = change_rows(z, selected_rows(on, z), partial(keep, params=own))
    return z


def selected_rows(on: Sequence[tuple[bool, int]], z: torch.Tensor) -> torch.Tensor | None:
    """The indices of the rows of those requests that are on, given with their number of rows; None for all rows."""
    if all(is_on for is_on, _ in on):
        return None
    rows = [is_on for is_on, count in on for _ in range(count)]
    return torch.tensor([row for row, is_on in enumerate(rows) if is_on], device=z.device)


def change_rows(
    z: torch.Tensor, where: torch.Tensor | None, change: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """`z` with the rows `where` changed, or all rows where that is None."""
    return change(z) if where is None else z.index_copy(0, where, change(z[where]))


def column(values: Sequence[float], z: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """One number per row, as [n, 1] on the device of `z`, in its dtype unless another is given."""
    dtype = dtype or z.dtype
    if len(set(values)) == 1:  # no copy to a GPU
        return torch.full((1, 1), values[0], dtype=dtype, device=z.device).expand(len(values), 1)
    return torch.tensor(values, dtype=dtype, device=z.device)[:, None]


def _top_k(z: torch.Tensor, params: Sequence[SamplingParams]) -> torch.Tensor:
    kept = column([one.top_k for one in params], z, torch.int64)
    values = z.topk(max(one.top_k for one in params)).values
    return _keep_first(z, values.gather(-1, kept - 1), kept)


def _top_p(z: torch.Tensor, params: Sequence[SamplingParams]) -> torch.Tensor:
    """Keep a token iff the mass of the tokens before it is under top_p. Masses are integers: sums have no order."""
    temperature = column([one.temperature for one in params], z, torch.float64)
    top_p = column([one.top_p for one in params], z, torch.float64)
    peak = z.amax(-1, keepdim=True)
    total = _mass(z, peak, temperature).sum(-1, keepdim=True)
    needed = (total * top_p).ceil().long().clamp_min(1)  # the product of the smallest top_p underflows to 0
    lowest, kept, found = _first_with(needed, z, peak, temperature, FIRST_LOOK)
    if not bool(found.all()):
        rest = (~found).nonzero().flatten()
        lowest[rest], kept[rest], _ = _first_with(needed[rest], z[rest], peak[rest], temperature[rest], z.shape[-1])
    return _keep_first(z, lowest, kept)


def _first_with(
    needed: torch.Tensor, z: torch.Tensor, peak: torch.Tensor, temperature: torch.Tensor, look: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The first tokens of each row that together hold the mass `needed` [n, 1], among the `look` most likely ones.

    Returns the logit of the last of them [n, 1], their number [n, 1], and whether the mass was reached [n].
    """
    values = z.topk(min(look, z.shape[-1])).values
    mass = _mass(values, peak, temperature)
    reached = mass.cumsum(-1)
    kept = (reached - mass < needed).sum(-1, keepdim=True)
    return values.gather(-1, kept - 1), kept, reached[:, -1] >= needed[:, 0]


def _min_p(z: torch.Tensor, params: Sequence[SamplingParams]) -> torch.Tensor:
    # p >= min_p * max p  <=>  z >= max z + T * log(min_p), in float64 because float32 would move the edge
    margin = column([one.temperature * math.log(one.min_p) for one in params], z, torch.float64)
    return z.masked_fill(z.double() < z.amax(-1, keepdim=True).double() + margin, BANNED)


def _keep_first(z: torch.Tensor, lowest: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """Keep the first `kept` [n, 1] tokens of each row; `lowest` [n, 1] is the logit of the last one kept."""
    above = z > lowest
    level = z == lowest
    places = kept - above.sum(-1, keepdim=True)
    return z.masked_fill(~(above | level & (level.cumsum(-1) <= places)), BANNED)


def _mass(z: torch.Tensor, peak: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    return ((z.double() - peak) / temperature).exp_().mul_(UNIT).long()
