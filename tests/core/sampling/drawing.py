"""Short ways into the production sampler for tests: one session, many seeds, no noise."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from core.sampling import sampler
from core.sampling.gumbel import keys
from core.sampling.params import SamplingParams
from core.sampling.sampler import Sampling


def keys_of(seeds: ArrayLike, choice: int, positions: ArrayLike) -> NDArray[np.int64]:
    """The key of each of some seeds, at some positions, or of one at one."""
    return keys(np.stack(np.broadcast_arrays(np.atleast_1d(seeds), choice, positions), -1))


def one_session(
    params: SamplingParams,
    choice: int = 0,
    first_position: int = 0,
    history: Mapping[int, int] | None = None,
    proposed: Sequence[int] = (),
) -> Sampling:
    return Sampling(params, choice, first_position, Counter(history or {}), proposed)


def filtered(
    logits: torch.Tensor,
    params: SamplingParams,
    num_valid: int,
    history: Mapping[int, int] | None = None,
    proposed: Sequence[int] | None = None,
    prompt: Sequence[int] = (),
    allowed: Sequence[Sequence[bool]] | None = None,
) -> torch.Tensor:
    """The logits [n, num_valid] to which noise is added; banned tokens are -inf."""
    after = [0] * (len(logits) - 1) if proposed is None else proposed
    mask = None if allowed is None else np.array(allowed)
    session = Sampling(params, 0, 0, Counter(history or {}), after, prompt, mask)
    z: torch.Tensor = sampler._scores(logits, [session], num_valid, lambda z, *_: z)
    return z


def drawn_at(z: torch.Tensor, temperature: float, row_keys: NDArray[np.int64]) -> torch.Tensor:
    """The token at each key [n], over one row z [V] or a row of z [n, V] each."""
    rows = z.expand(len(row_keys), -1)
    temperatures = np.full((len(rows), 1), temperature, np.float32)
    return torch.from_numpy(sampler._contenders(rows.numpy(), temperatures, row_keys, z.shape[-1]).argmax(-1))


def of(row: torch.Tensor) -> dict[int, float]:
    """Token -> z of the tokens that are not banned."""
    return {token: z for token, z in enumerate(row.tolist()) if z > -math.inf}
