"""The sampling filters: top-k, top-p and min-p, each over the rows of many requests at once.

A filter sets the logits of banned tokens to -inf. It keeps the first tokens by (logit descending, id ascending), so the
kept set does not depend on the device or the kernel. A new filter is a function like `_top_k` and a line in
`apply_filters`. Filters do nothing at temperature 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from core.arrays import Array, converted, highest, namespace
from core.sampling.params import SamplingParams

BANNED = -math.inf
UNIT = 2.0**40  # probability mass in fixed point: the most likely token weighs 2^40, 2^18 of them fit an int64
FIRST_LOOK = 256  # top-p sorts this many tokens first, which usually hold the mass; sorting all costs far more


class Filter(NamedTuple):
    """`applies` says which requests it is for; `keep` bans tokens in rows z [n, V], given the request of each row."""

    applies: Callable[[SamplingParams], bool]
    keep: Callable[..., Any]


def apply_filters(z: Array, requests: Sequence[tuple[SamplingParams, int]]) -> Array:
    """Filter the rows of all requests, given with their number of rows; the order is top-k, top-p, min-p."""
    filters = (
        Filter(lambda params: 0 < params.top_k < z.shape[-1], _top_k),
        Filter(lambda params: params.top_p < 1.0, _top_p),
        Filter(lambda params: params.min_p > 0.0, _min_p),
    )
    for applies, keep in filters:
        on = [(not params.greedy and applies(params), rows) for params, rows in requests]
        own = [params for (is_on, rows), (params, _) in zip(on, requests, strict=True) if is_on for _ in range(rows)]
        if own:
            where = selected_rows(on, z)
            z = change_rows(z, where, keep(z if where is None else z[where], own))
    return z


def selected_rows(on: Sequence[tuple[bool, int]], z: Array) -> Any:
    """The indices of the rows of those requests that are on, given with their number of rows; None for all rows."""
    if all(is_on for is_on, _ in on):
        return None
    rows = [is_on for is_on, count in on for _ in range(count)]
    chosen = [row for row, is_on in enumerate(rows) if is_on]
    xp = namespace(z.device)
    return xp.asarray(chosen, dtype=xp.int64, device=z.device)


def change_rows(z: Array, where: Any, rows: Array) -> Array:
    """`z` with the rows `where` replaced by `rows`; `rows` themselves where that is None."""
    if where is None:
        return rows
    changed: Array = namespace(z.device).asarray(z, copy=True)
    changed[where] = rows
    return changed


def column(values: Sequence[float], z: Array, dtype: str | None = None) -> Any:
    """One number per row, as [n, 1] on the device of `z`, in its dtype unless another is given."""
    xp = namespace(z.device)
    form = {"dtype": z.dtype if dtype is None else getattr(xp, dtype), "device": z.device}
    if len(set(values)) == 1:  # no copy to a GPU
        return xp.full((len(values), 1), values[0], **form)
    return xp.asarray(values, **form)[:, None]


def _top_k(z: Array, params: Sequence[SamplingParams]) -> Any:
    num_kept = column([row.top_k for row in params], z, "int64")
    values = highest(z, max(row.top_k for row in params))
    return _keep_first(z, _at(values, num_kept - 1), num_kept)


def _top_p(z: Array, params: Sequence[SamplingParams]) -> Any:
    """Keep a token iff the mass of the tokens before it is under top_p. Masses are integers: sums have no order."""
    xp = namespace(z.device)
    temperature = column([row.temperature for row in params], z, "float64")
    top_p = column([row.top_p for row in params], z, "float64")
    peak = xp.amax(z, -1, keepdims=True)
    total = _mass(z, peak, temperature).sum(-1, keepdims=True)
    needed = converted(xp.ceil(total * top_p), "int64")
    needed = xp.clip(needed, 1, None)  # the product of the smallest top_p underflows to 0
    lowest, num_kept, reached = _first_with(needed, z, peak, temperature, FIRST_LOOK)
    if not bool(reached.all()):
        rest = ~reached
        lowest[rest], num_kept[rest], _ = _first_with(needed[rest], z[rest], peak[rest], temperature[rest], z.shape[-1])
    return _keep_first(z, lowest, num_kept)


def _first_with(needed: Array, z: Array, peak: Array, temperature: Array, look: int) -> tuple[Any, Any, Any]:
    """The first tokens of each row that together hold the mass `needed` [n, 1], among the `look` most likely ones.

    Returns the logit of the last of them [n, 1], their number [n, 1], and whether the mass was reached [n].
    """
    values = highest(z, min(look, z.shape[-1]))
    mass = _mass(values, peak, temperature)
    reached = mass.cumsum(-1)
    num_kept = (reached - mass < needed).sum(-1, keepdims=True)
    return _at(values, num_kept - 1), num_kept, reached[:, -1] >= needed[:, 0]


def _min_p(z: Array, params: Sequence[SamplingParams]) -> Any:
    # p >= min_p * max p  <=>  z >= max z + T * log(min_p), in float64 because float32 would move the edge
    xp = namespace(z.device)
    margin = column([row.temperature * math.log(row.min_p) for row in params], z, "float64")
    peak = converted(xp.amax(z, -1, keepdims=True), "float64")
    return xp.where(converted(z, "float64") < peak + margin, BANNED, z)


def _keep_first(z: Array, lowest: Array, num_kept: Array) -> Any:
    """Keep the first `num_kept` [n, 1] tokens of each row; `lowest` [n, 1] is the logit of the last one kept."""
    above = z > lowest
    level = z == lowest
    places = num_kept - above.sum(-1, keepdims=True)
    return namespace(z.device).where(above | level & (level.cumsum(-1) <= places), z, BANNED)


def _at(values: Array, columns: Array) -> Any:
    """The value [n, 1] of each row in its column [n, 1]."""
    return values[namespace(values.device).arange(len(values), device=values.device)[:, None], columns]


def _mass(z: Array, peak: Array, temperature: Array) -> Any:
    xp = namespace(z.device)
    shares = (converted(z, "float64") - peak) / temperature
    xp.exp(shares, out=shares)
    shares *= UNIT
    return converted(shares, "int64")
