"""The dice and the warps a second time, in plain Python over lists: slow, obvious, and sharing no code with core."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from core.sampling.params import SamplingParams

WORD = (1 << 64) - 1
G = 0x9E3779B97F4A7C15


def mix(word: int) -> int:
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & WORD
    return word ^ (word >> 31)


def bits(seed: int, choice: int, position: int, token: int) -> int:
    key = mix((mix((mix((seed + G) & WORD) + choice * G + G) & WORD) + position * G + G) & WORD)
    return mix((key + (token + 1) * G) & WORD)


def gumbel(seed: int, choice: int, position: int, token: int) -> float:
    return -math.log(-math.log(((bits(seed, choice, position, token) >> 32) + 0.5) / 2**32))


def warped(
    logits: Sequence[float],
    params: SamplingParams,
    counts: Mapping[int, int],
    num_valid: int,
    prompt: Collection[int] = (),
    banned: Collection[int] = (),
) -> dict[int, float]:
    """Token -> z of the tokens that may be drawn."""
    z = {}
    for token in set(range(num_valid)) - set(banned):
        count, logit = counts.get(token, 0), logits[token]
        if count or token in prompt:
            logit *= params.repetition_penalty if logit <= 0 else 1 / params.repetition_penalty
        penalty = count * params.frequency_penalty + (count > 0) * params.presence_penalty
        z[token] = logit - penalty + params.logit_bias.get(token, 0.0)
    if params.temperature < 1e-5:
        return z
    ranked = sorted(z, key=lambda token: (-z[token], token))
    if params.top_k:
        ranked = ranked[: params.top_k]
    if params.top_p < 1:
        ranked = _nucleus(ranked, _law(z, ranked, params.temperature), params.top_p)
    law = _law(z, ranked, params.temperature)
    return {token: z[token] for token in ranked if law[token] >= params.min_p * law[ranked[0]] * (1 - 1e-12)}


def law(logits: Sequence[float], params: SamplingParams, counts: Mapping[int, int], num_valid: int) -> dict[int, float]:
    """Token -> the probability with which the target draws it."""
    z = warped(logits, params, counts, num_valid)
    return _law(z, list(z), params.temperature)


def _nucleus(ranked: list[int], law: dict[int, float], top_p: float) -> list[int]:
    kept, before = [], 0.0
    for token in ranked:
        if before >= top_p:
            break
        kept.append(token)
        before += law[token]
    return kept


def _law(z: dict[int, float], tokens: list[int], temperature: float) -> dict[int, float]:
    peak = max(z[token] for token in tokens)
    weights = {token: math.exp((z[token] - peak) / temperature) for token in tokens}
    total = math.fsum(weights.values())
    return {token: weight / total for token, weight in weights.items()}
