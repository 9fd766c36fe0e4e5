"""The nouns of one generation: what is asked of the verifier and what comes back, a run at a time."""

from __future__ import annotations

from typing import Literal

import msgspec

from core.sampling_params import SamplingParams

FinishReason = Literal["stop", "length"]


class TokenLogprob(msgspec.Struct, frozen=True):
    """log_softmax of the raw target logits: of the chosen token and of the most likely ones, best first.

    `top` holds (token, logprob) pairs; the chosen token is always among them.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class Run(msgspec.Struct, frozen=True):
    """The tokens one target pass committed for one session.

    The first `accepted` tokens were proposed by the draft; the one after them, if any, is the recovered or bonus
    token. `proposed` is what was put to the target in that pass. `logprobs` is empty unless asked for.
    """

    tokens: tuple[int, ...]
    proposed: int = 0
    accepted: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One session as the ingress asks for it.

    `tokens` is the prompt followed by whatever was generated before (empty unless resumed); the first
    `prompt_length` are the prompt. `choice` is the index in `n` and enters the dice.
    `num_speculative_tokens` caps the proposals per pass; 0 turns speculation off, None leaves it to the service.
    """

    tokens: tuple[int, ...]
    prompt_length: int
    params: SamplingParams
    choice: int = 0
    num_speculative_tokens: int | None = None
