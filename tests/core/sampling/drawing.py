"""Short ways into the production sampler for tests: one session, given noise, no noise."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from core.sampling.gumbel import Ids, NoiseWindow, num_ids
from core.sampling.params import SamplingParams
from core.sampling.sampler import Sampling, score


class GivenNoise(NoiseWindow):
    """Noise from a tensor, or none at all: z + T * 0 are the adjusted and filtered logits themselves."""

    def __init__(self, noise: torch.Tensor | None = None) -> None:
        super().__init__(0, 0)
        self._noise = noise

    def rows(self, first: int, count: int, ids: Ids, device: torch.device) -> torch.Tensor:
        del first
        return torch.zeros(count, num_ids(ids), device=device) if self._noise is None else self._noise


def one_session(
    params: SamplingParams,
    choice: int = 0,
    first_position: int = 0,
    history: Mapping[int, int] | None = None,
    proposed: Sequence[int] = (),
) -> Sampling:
    return Sampling(params, NoiseWindow(params.seed, choice), first_position, Counter(history or {}), proposed)


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
    return score(logits, [Sampling(params, GivenNoise(), 0, Counter(history or {}), after, prompt, mask)], num_valid)


def drawn_with(z: torch.Tensor, temperature: float, noise: torch.Tensor) -> torch.Tensor:
    """The token of each row of `noise` [n, V], over one row z [V] or a row of z [n, V] each."""
    params = SamplingParams(seed=0, max_tokens=1, temperature=temperature)
    session = Sampling(params, GivenNoise(noise), 0, Counter(), range(len(noise) - 1))
    return score(z.expand(len(noise), -1), [session], z.shape[-1]).argmax(-1)


def of(row: torch.Tensor) -> dict[int, float]:
    """Token -> z of the tokens that are not banned."""
    return {token: z for token, z in enumerate(row.tolist()) if z > -math.inf}
