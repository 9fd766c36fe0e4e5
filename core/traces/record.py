"""A record: one answer of the target with its prompt and sampling parameters, enough to train on and to replay."""

from __future__ import annotations

from typing import Self

import msgspec

from core.generation import GenerationRequest
from core.sampling.params import SamplingParams

DICE = 1  # version of the sampling noise; a record made with another version cannot be replayed


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One finished answer: token ids of the prompt and of the output, end-of-sequence token included.

    `choice` is the index in `n`; with `params.seed` it fixes the sampling noise. The grammar that an answer was held to
    is left out: grammars are long, hold texts of clients, and nothing learns from them.
    """

    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    params: SamplingParams
    choice: int = 0
    dice: int = DICE

    @classmethod
    def of(cls, request: GenerationRequest, answer: tuple[int, ...]) -> Self:
        """The record of a request and its answer; tokens that a resumed request came with are output too."""
        split = request.prompt_length
        return cls(
            prompt_ids=request.tokens[:split],
            output_ids=request.tokens[split:] + answer,
            params=msgspec.structs.replace(request.params, grammar=""),
            choice=request.choice,
        )

    @property
    def tokens(self) -> tuple[int, ...]:
        return self.prompt_ids + self.output_ids

    @property
    def prompt_length(self) -> int:
        return len(self.prompt_ids)

    @property
    def seed(self) -> int:
        return self.params.seed
