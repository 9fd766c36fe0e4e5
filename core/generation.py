"""Data types shared by service, verifier and drafts: a request, the runs of tokens that come back, and their limits.

`MAX_SPECULATIVE_TOKENS` is the most that any draft may propose.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from core.sampling.params import SamplingParams
from core.tools.call_spans import PLAIN, AnswerForm

if TYPE_CHECKING:
    import tokenizers

MAX_SPECULATIVE_TOKENS = 16
"""The most tokens that a draft may propose for one pass of one session."""

FinishReason = Literal["stop", "length"]
Source = str
"""Who proposes: `draft`, or one of `core.verify.sources.SOURCES` by its name."""


class Vocabulary(Protocol):
    """The part of the target's tokenizer that engines and grammars use; `core.text.tokenizer.Tokenizer` is one."""

    @property
    def raw(self) -> tokenizers.Tokenizer: ...
    @property
    def eos_ids(self) -> Sequence[int]: ...
    @property
    def num_valid(self) -> int: ...


class TokenLogprob(msgspec.Struct, frozen=True):
    """log_softmax of the raw target logits: of the chosen token and of the most likely ones, best first.

    `top` holds (token, logprob) pairs; the chosen token is always among them.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class Run(msgspec.Struct, frozen=True):
    """The tokens one target pass committed for one session.

    The first `accepted` tokens were proposed by `source`; the one after them, if any, is the recovered or bonus token.
    `proposed` counts the tokens that the target verified in that pass; if there are none, `source` says nothing.
    `logprobs` is empty unless requested. So are the `prompt_logprobs`, which come with the first run: those of the
    prompt's tokens but the first.
    """

    tokens: tuple[int, ...]
    proposed: int = 0
    accepted: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None
    source: Source = "draft"
    prompt_logprobs: tuple[TokenLogprob, ...] = ()

    @property
    def num_judged(self) -> int:
        """The proposed tokens that the target judged: the accepted ones and the first rejected. It ignores the rest."""
        return self.accepted + (self.accepted < self.proposed)


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One session: a prompt, how to sample its answer, and how far to speculate on it.

    The first `prompt_length` of `tokens` are the prompt; any others were generated before, by a verifier that was lost.
    `choice` is the index in `n`, which the sampling noise depends on. `num_speculative_tokens` caps the proposals per
    pass: 0 turns speculation off, None leaves the cap to the service. With `always_draft` the session gets a draft, and
    proposals in every pass, even where the service estimates that drafting does not pay.

    `form` says where in the answer no stop string ends it. `prediction` is what the client expects the answer to be.
    `owner` stands for the client, whose earlier answers may be proposed; without `store` this one will not be, and no
    trace of it is kept.
    """

    tokens: tuple[int, ...]
    prompt_length: int
    params: SamplingParams
    choice: int = 0
    num_speculative_tokens: int | None = None
    always_draft: bool = False
    form: AnswerForm = PLAIN
    prediction: tuple[int, ...] = ()
    owner: str | None = None
    store: bool = True
