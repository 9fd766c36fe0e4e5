"""From raw logits to a drawn token: the warps of the request, then the dice.

Enters: float32 logits of one session's rows and its `SamplingParams`. Leaves: one token per row, or the scores whose
largest that is. Draft and target engine both draw by `score`, so they follow one law.

The warped logits z are not divided by the temperature T: the token is argmax(z + T * gumbel), a sample of
softmax(z / T), and at T = 0 simply the most likely token. Order: penalties, logit bias, ids the tokenizer lacks, then
top-k, top-p and min-p, each on what the former left. A filter keeps the first tokens by (logit descending, id
ascending), so what it keeps is a set that neither device nor kernel can change.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple, Protocol

import torch

from core.dice import NoiseWindow, gumbel
from core.sampling_params import SamplingParams

GeneratedCounts = Counter[int]  # how often each token was generated; the prompt is never counted

MASKED = -math.inf
UNIT = 2.0**40  # probability mass in fixed point: the most likely token weighs 2^40, 2^18 of them fit an int64
CACHED = 1 << 18  # numbers that a CPU's cores keep near: beyond, sessions together take longer than one after another
HELD = 1 << 24  # numbers that a GPU scores at once: 128 MiB in float64, of which top-p holds some at a time
FIRST_LOOK = 256  # tokens that usually hold top-p's mass; looking at all of them costs a sort


def sample(
    logits: torch.Tensor,
    params: SamplingParams,
    choice: int,
    first_position: int,
    history: GeneratedCounts | None,
    proposed: Sequence[int],
    num_valid: int,
) -> list[int]:
    """Draw one token per row of float32 logits [n, V]; row j follows the first j of the `proposed` tokens.

    The token of row j stands at absolute position `first_position + j`. `history` counts the generated tokens before
    row 0 and is read only with penalties. Only ids below `num_valid` can be drawn.
    """
    counts = None
    if params.penalised:
        counts = count_rows(history or Counter(), proposed, logits)
    z = warp(logits, params, counts, num_valid)
    return draw(z, params, choice, range(first_position, first_position + len(logits)))


class Filter(Protocol):
    """Bans tokens of rows, each by the knobs of its own request."""

    def __call__(self, z: torch.Tensor, knobs: Sequence[SamplingParams]) -> torch.Tensor: ...


class Sampling(NamedTuple):
    """What a session's request asks of its rows: row j follows the first j of the `proposed` tokens, none is after all.

    `noise` is that of the session, with the request's seed and choice; the rest is as for `sample`.
    """

    params: SamplingParams
    noise: NoiseWindow
    first_position: int
    history: GeneratedCounts
    proposed: Sequence[int] = ()

    @property
    def rows(self) -> int:
        return 1 + len(self.proposed)


def score(logits: torch.Tensor, sessions: Sequence[Sampling], num_valid: int) -> torch.Tensor:
    """What `sample` draws the largest of, for many sessions at once: float32 [all their rows, num_valid].

    Filters and dice go over the rows of many: on a GPU no session costs launches or waiting of its own, but for the
    making of its noise, without penalties or a bias. Each is scored as it would be alone.
    """
    z = logits[:, :num_valid]
    if all(one.params.greedy and not one.params.warped for one in sessions):
        return z
    together = max(1, (HELD if z.is_cuda else CACHED) // num_valid)
    return _cat([_score(rows, some) for rows, some in _groups(z, sessions, together)])


def _groups(
    z: torch.Tensor, sessions: Sequence[Sampling], together: int
) -> Iterator[tuple[torch.Tensor, list[Sampling]]]:
    """The sessions and their rows, in groups of no more than so many rows unless one session has more."""
    begin = end = 0
    group: list[Sampling] = []
    for one in sessions:
        if group and end + one.rows - begin > together:
            yield z[begin:end], group
            begin, group = end, []
        group.append(one)
        end += one.rows
    yield z[begin:end], group


def _score(z: torch.Tensor, sessions: Sequence[Sampling]) -> torch.Tensor:
    if any(one.params.penalised or one.params.logit_bias for one in sessions):
        split = torch.split(z, [one.rows for one in sessions])
        z = _cat([_adjusted(rows, one) for one, rows in zip(sessions, split, strict=True)])
    z = _filter(z, [(one.params, one.rows) for one in sessions])
    thrown = [one for one in sessions if not one.params.greedy]
    if not thrown:
        return z
    noise = _cat([one.noise.rows(one.first_position, one.rows, z.shape[-1], z.device) for one in thrown])
    temperature = _column([one.params.temperature for one in thrown for _ in range(one.rows)], z)
    where = _where([(not one.params.greedy, one.rows) for one in sessions], z)
    return _on(z, where, lambda rows: _scores(rows, temperature, noise))


def _adjusted(rows: torch.Tensor, one: Sampling) -> torch.Tensor:
    counts = count_rows(one.history, one.proposed, rows) if one.params.penalised else None
    return _adjust(rows, one.params, counts, rows.shape[-1])


def _cat(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def draw(z: torch.Tensor, params: SamplingParams, choice: int, positions: Sequence[int] | torch.Tensor) -> list[int]:
    """The token of each row of warped logits [n, V], for the given absolute positions."""
    noise = None
    if not params.greedy:
        where = torch.as_tensor(positions, dtype=torch.int64, device=z.device)
        noise = gumbel(params.seed, choice, where, z.shape[-1])
    drawn: list[int] = pick(z, params.temperature, noise).tolist()
    return drawn


def pick(z: torch.Tensor, temperature: float, noise: torch.Tensor | None) -> torch.Tensor:
    """argmax(z + temperature * noise) over the last dimension, ties to the lowest id; no noise is temperature 0."""
    return (z if noise is None else _scores(z, temperature, noise)).argmax(-1)


def _scores(z: torch.Tensor, temperature: float | torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    # two roundings, not one: a fused multiply-add would differ between kernels
    return (noise * temperature).add_(z)


def warp(logits: torch.Tensor, params: SamplingParams, counts: torch.Tensor | None, num_valid: int) -> torch.Tensor:
    """Warped, unscaled logits [n, V]; banned tokens are -inf. `logits` is left as it is, and returned if no warp is on.

    `counts` [n, V] tells how often each token was generated before each row; None unless the request has penalties.
    The filters do nothing at temperature 0.
    """
    z = _adjust(logits, params, counts, num_valid)
    return _filter(z, [(params, len(z))])


def count_rows(history: GeneratedCounts, proposed: Sequence[int], logits: torch.Tensor) -> torch.Tensor:
    """Counts [n, V] for rows of `logits` [n, V]: the history, and in row j the first j proposed tokens."""
    counts = torch.zeros_like(logits)
    if history:
        seen = torch.tensor([list(history), list(history.values())], device=logits.device)
        counts[:, seen[0]] = seen[1].to(logits.dtype)
    for row, token in enumerate(islice(proposed, len(logits) - 1), start=1):
        counts[row:, token] += 1.0
    return counts


def _adjust(logits: torch.Tensor, params: SamplingParams, counts: torch.Tensor | None, num_valid: int) -> torch.Tensor:
    z = logits
    if counts is not None:
        z = z - counts * params.frequency_penalty - (counts > 0) * params.presence_penalty
    if z is logits and (params.logit_bias or num_valid < z.shape[-1]):
        z = z.clone()
    if params.logit_bias:
        tokens = torch.tensor(list(params.logit_bias), device=z.device)
        z[:, tokens] += torch.tensor(list(params.logit_bias.values()), device=z.device)
    z[:, num_valid:] = MASKED
    return z


def _filter(z: torch.Tensor, requests: Sequence[tuple[SamplingParams, int]]) -> torch.Tensor:
    """The filters of requests, each with so many rows, on the rows of all of them."""
    filters: list[tuple[Callable[[SamplingParams], bool], Filter]] = [
        (lambda params: 0 < params.top_k < z.shape[-1], _most_likely),
        (lambda params: params.top_p < 1.0, _nucleus),
        (lambda params: params.min_p > 0.0, _drop_unlikely),
    ]
    for wanted, keep in filters:
        on = [(not params.greedy and wanted(params), rows) for params, rows in requests]
        knobs = [params for (is_on, rows), (params, _) in zip(on, requests, strict=True) if is_on for _ in range(rows)]
        if knobs:
            z = _on(z, _where(on, z), partial(keep, knobs=knobs))
    return z


def _where(on: Sequence[tuple[bool, int]], z: torch.Tensor) -> torch.Tensor | None:
    """The rows of those that are on, each with so many; None for all."""
    if all(is_on for is_on, _ in on):
        return None
    rows = [is_on for is_on, count in on for _ in range(count)]
    return torch.tensor([row for row, is_on in enumerate(rows) if is_on], device=z.device)


def _on(z: torch.Tensor, where: torch.Tensor | None, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """`z` with some of its rows changed, or all of them."""
    return change(z) if where is None else z.index_copy(0, where, change(z[where]))


def _column(values: Sequence[float], z: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A number for each row [n, 1], in the type of `z` where none is given."""
    dtype = dtype or z.dtype
    if len(set(values)) == 1:  # no copy to a GPU
        return torch.full((1, 1), values[0], dtype=dtype, device=z.device).expand(len(values), 1)
    return torch.tensor(values, dtype=dtype, device=z.device)[:, None]


def _most_likely(z: torch.Tensor, knobs: Sequence[SamplingParams]) -> torch.Tensor:
    """Top-k, each row with its own."""
    kept = _column([params.top_k for params in knobs], z, torch.int64)
    values = z.topk(max(params.top_k for params in knobs)).values
    return _keep_first(z, values.gather(-1, kept - 1), kept)


def _nucleus(z: torch.Tensor, knobs: Sequence[SamplingParams]) -> torch.Tensor:
    """Top-p: a token stays iff the mass of those before it is under top_p. Masses are integers: sums have no order."""
    temperature = _column([params.temperature for params in knobs], z, torch.float64)
    top_p = _column([params.top_p for params in knobs], z, torch.float64)
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
    """The first tokens of each row that together have the mass `needed` [n, 1], looking at so many.

    Returns the logit of the last of them and their number, both [n, 1], and whether they were found [n].
    """
    values = z.topk(min(look, z.shape[-1])).values
    mass = _mass(values, peak, temperature)
    reached = mass.cumsum(-1)
    kept = (reached - mass < needed).sum(-1, keepdim=True)
    return values.gather(-1, kept - 1), kept, reached[:, -1] >= needed[:, 0]


def _drop_unlikely(z: torch.Tensor, knobs: Sequence[SamplingParams]) -> torch.Tensor:
    # p >= min_p * max p  <=>  z >= max z + T * log(min_p), in float64 because float32 would move the edge
    margin = _column([params.temperature * math.log(params.min_p) for params in knobs], z, torch.float64)
    return z.masked_fill(z.double() < z.amax(-1, keepdim=True).double() + margin, MASKED)


def _keep_first(z: torch.Tensor, lowest: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """Keep the first `kept` [n, 1] tokens of each row; `lowest` [n, 1] is the logit of the last one kept."""
    above = z > lowest
    level = z == lowest
    places = kept - above.sum(-1, keepdim=True)
    return z.masked_fill(~(above | level & (level.cumsum(-1) <= places)), MASKED)


def _mass(z: torch.Tensor, peak: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    return ((z.double() - peak) / temperature).exp_().mul_(UNIT).long()
