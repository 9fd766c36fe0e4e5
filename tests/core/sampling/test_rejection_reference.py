"""Rejection sampling is exact by enumeration, and coupled sampling accepts a little less than it."""

from __future__ import annotations

import math
import sys
from itertools import product

import numpy as np
import pytest
import torch

from tests.core.sampling.drawing import drawn_at, keys_of
from tests.core.sampling.rejection import Choose, Law, Model, acceptance, speculative_run, unfold

VOCAB = 3
LENGTH = 3
SEEDS = 20_000
WIDE = 64


def toy_model(seed: int, sharpness: float) -> Model:
    """A law for every prefix up to LENGTH + 3 tokens; a sharp one also has impossible tokens."""
    generator = np.random.default_rng(seed)
    laws: dict[tuple[int, ...], Law] = {}
    for length in range(LENGTH + 4):
        for tokens in product(range(VOCAB), repeat=length):
            weights = np.exp(sharpness * generator.normal(size=VOCAB))
            weights[generator.integers(VOCAB)] *= sharpness < 3
            laws[tokens] = (weights / weights.sum()).tolist()
    return laws.__getitem__


def whole_answer(target: Model, draft: Model, num_speculative_tokens: int, choose: Choose) -> tuple[int, ...]:
    tokens: tuple[int, ...] = ()
    while len(tokens) < LENGTH:
        tokens = speculative_run(target, draft, tokens, num_speculative_tokens, choose)
    return tokens[:LENGTH]


@pytest.mark.parametrize("num_speculative_tokens", [0, 1, 2, 3])
@pytest.mark.parametrize(("target_sharpness", "draft_sharpness"), [(1.0, 0.5), (1.0, 3.0), (3.0, 1.0)])
def test_the_law_of_rejection_sampling_is_the_target_s(
    num_speculative_tokens: int, target_sharpness: float, draft_sharpness: float
) -> None:
    target, draft = toy_model(1, target_sharpness), toy_model(2, draft_sharpness)
    law = unfold(lambda choose: whole_answer(target, draft, num_speculative_tokens, choose))
    for tokens in product(range(VOCAB), repeat=LENGTH):
        expected = math.prod(target(tokens[:at])[tokens[at]] for at in range(LENGTH))
        assert law.get(tokens, 0.0) == pytest.approx(expected, abs=1e-6)
    assert sum(law.values()) == pytest.approx(1.0, abs=1e-9)


def law_pair(distance: float, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    target = torch.randn(WIDE, generator=generator) * 2.5
    draft = target + distance * torch.randn(WIDE, generator=generator)
    return target, draft


def coupled_acceptance(target: torch.Tensor, draft: torch.Tensor) -> float:
    """P(both draw the same token under the same Gumbel noise) = sum_v 1 / sum_w max(p_w / p_v, q_w / q_v)."""
    p, q = target.double().softmax(0), draft.double().softmax(0)
    return float((1 / torch.maximum(p / p[:, None], q / q[:, None]).sum(1)).sum())


def test_coupled_acceptance_is_what_theory_says_and_never_above_rejection_sampling(
    capsys: pytest.CaptureFixture[str],
) -> None:
    generator = torch.Generator().manual_seed(0)
    keys = keys_of(np.arange(SEEDS), 0, 12)
    lines = ["", "acceptance on random laws of 64 tokens", "draft's distance   coupled   rejection sampling"]
    for distance in (0.0, 0.25, 0.5, 1.0, 2.0):
        measured, best = [], []
        for _ in range(8):
            target, draft = law_pair(distance, generator)
            same = (drawn_at(target, 1.0, keys) == drawn_at(draft, 1.0, keys)).double().mean().item()
            measured.append(same)
            best.append(acceptance(target.double().softmax(0).tolist(), draft.double().softmax(0).tolist()))
            four_sigma = 4 * math.sqrt(0.25 / SEEDS)
            assert same == pytest.approx(coupled_acceptance(target, draft), abs=four_sigma)
            assert same <= best[-1] + four_sigma
        lines.append(f"{distance:16.2f}   {np.mean(measured):7.3f}   {np.mean(best):7.3f}")
    with capsys.disabled():
        sys.stdout.write("\n".join(lines) + "\n")
