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
from collections.abc import Sequence
from itertools import islice

import torch

from core.dice import NoiseWindow, gumbel
from core.sampling_params import SamplingParams

GeneratedCounts = Counter[int]  # how often each token was generated; the prompt is never counted

MASKED = -math.inf
UNIT = 2.0**40  # probability mass in fixed point: the most likely token weighs 2^40, 2^18 of them fit an int64
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


def score(
    logits: torch.Tensor,
    params: SamplingParams,
    noise: NoiseWindow,
    first_position: int,
    history: GeneratedCounts,
    proposed: Sequence[int],
    num_valid: int,
) -> torch.Tensor:
    """What `sample` draws the largest of: float32 [n, num_valid], for engines that draw for many sessions at once.

    `noise` is that of the session, with the request's seed and choice.
    """
    logits = logits[:, :num_valid]
    counts = count_rows(history, proposed, logits) if params.penalised else None
    z = warp(logits, params, counts, num_valid)
    if params.greedy:
        return z
    return _scores(z, params.temperature, noise.rows(first_position, len(z), num_valid, z.device))


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


def _scores(z: torch.Tensor, temperature: float, noise: torch.Tensor) -> torch.Tensor:
    # two roundings, not one: a fused multiply-add would differ between kernels
    return (noise * temperature).add_(z)


def warp(logits: torch.Tensor, params: SamplingParams, counts: torch.Tensor | None, num_valid: int) -> torch.Tensor:
    """Warped, unscaled logits [n, V]; banned tokens are -inf. `logits` is left as it is, and returned if no warp is on.

    `counts` [n, V] tells how often each token was generated before each row; None unless the request has penalties.
    The filters do nothing at temperature 0.
    """
    z = _adjust(logits, params, counts, num_valid)
    if params.greedy:
        return z
    vocab_size = z.shape[-1]
    if 0 < params.top_k < vocab_size:
        values = z.topk(params.top_k).values
        z = _keep_first(z, values[:, -1:], torch.full_like(values[:, :1], params.top_k))
    if params.top_p < 1.0:
        z = _keep_first(z, *_nucleus(z, params.top_p, params.temperature))
    if params.min_p > 0.0:
        z = _drop_unlikely(z, params.min_p, params.temperature)
    return z


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


def _keep_first(z: torch.Tensor, lowest: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """Keep the first `kept` [n, 1] tokens of each row; `lowest` [n, 1] is the logit of the last one kept."""
    above = z > lowest
    level = z == lowest
    places = kept - above.sum(-1, keepdim=True)
    return z.masked_fill(~(above | level & (level.cumsum(-1) <= places)), MASKED)


def _nucleus(z: torch.Tensor, top_p: float, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The logit of the last token top-p keeps and how many it keeps, both [n, 1].

    A token stays iff the mass of those before it is under top_p. Masses are integers, so sums have no order.
    """
    peak = z.amax(-1, keepdim=True)
    total = _mass(z, peak, temperature).sum(-1, keepdim=True)
    needed = (total * top_p).ceil().long().clamp_min(1)  # the product of the smallest top_p underflows to 0
    for width in (FIRST_LOOK, z.shape[-1]):
        values = z.topk(min(width, z.shape[-1])).values
        mass = _mass(values, peak, temperature)
        reached = mass.cumsum(-1)
        if bool((reached[:, -1:] >= needed).all()):
            break
    kept = (reached - mass < needed).sum(-1, keepdim=True)
    return values.gather(-1, kept - 1), kept


def _mass(z: torch.Tensor, peak: torch.Tensor, temperature: float) -> torch.Tensor:
    return ((z.double() - peak) / temperature).exp_().mul_(UNIT).long()


def _drop_unlikely(z: torch.Tensor, min_p: float, temperature: float) -> torch.Tensor:
    # p >= min_p * max p  <=>  z >= max z + T * log(min_p), in float64 because float32 would move the edge
    lowest = z.amax(-1, keepdim=True).double() + temperature * math.log(min_p)
    return z.masked_fill(z.double() < lowest, MASKED)
