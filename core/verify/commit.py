"""The commit rule, in the place of rejection sampling: the tokens that a target pass adds to an answer.

A run is walked token by token, as if each had been decoded alone. So nothing that a client can see depends on where
runs were cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from tokenizers import Tokenizer

from core.errors import InvalidRequest
from core.generation import FinishReason, GenerationRequest, Run, Source, TokenLogprob
from core.text.detokenizer import TextStream


class Chain:
    """The committed tokens of one session, and the reason that it finished.

    `tokens` is the prompt and everything generated; `counts` counts the generated tokens. A request that already holds
    generated tokens continues exactly where it stopped. `context` is the most tokens that the target can hold.
    `eos_ids` are the target's own; `end_ids` are the tokens that end this answer.
    """

    def __init__(
        self,
        request: GenerationRequest,
        *,
        eos_ids: Collection[int],
        context: int,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self.tokens = list(request.tokens[: request.prompt_length])
        self.prompt_length = request.prompt_length
        self.params = request.params
        self.choice = request.choice
        self.counts: Counter[int] = Counter()
        self.finish_reason: FinishReason | None = None
        self.end_ids = frozenset(() if request.params.ignore_eos else eos_ids) | frozenset(request.params.stop_ids)
        self._context = context
        self._text = _stop_watch(tokenizer, request)
        for token in request.tokens[request.prompt_length :]:
            self._append(token)

    @property
    def num_generated(self) -> int:
        return len(self.tokens) - self.prompt_length

    @property
    def remaining(self) -> int:
        """The number of tokens that the answer may still get, by `max_tokens` and by the context."""
        return min(self.params.max_tokens - self.num_generated, self._context - len(self.tokens))

    def limit_proposals(self, proposed: int) -> int:
        """The number of `proposed` tokens that may be verified: one place is left for the bonus token."""
        return max(0, min(proposed, self.remaining - 1))

    def commit(
        self,
        target_tokens: Sequence[int],
        proposed: Sequence[int],
        logprobs: Sequence[TokenLogprob] = (),
        source: Source = "draft",
    ) -> Run:
        """Append the tokens that the target drew, up to the first that differs from its proposal or ends the answer.

        `target_tokens[j]` was drawn after the first j `proposed` tokens, so there is one more of them. `logprobs` is
        empty or parallel to `target_tokens`. `source` is who proposed.
        """
        start = len(self.tokens)
        accepted = 0
        for token, proposal in zip(target_tokens, [*proposed, None], strict=True):
            self._append(token)
            accepted += token == proposal
            if token != proposal or self.finish_reason is not None:
                break
        tokens = tuple(self.tokens[start:])
        return Run(
            tokens=tokens,
            proposed=len(proposed),
            accepted=accepted,
            logprobs=tuple(logprobs[: len(tokens)]),
            finish_reason=self.finish_reason,
            source=source,
        )

    def _append(self, token: int) -> None:
        self.tokens.append(token)
        self.counts[token] += 1
        if token in self.end_ids or self._completes_stop(token):
            self.finish_reason = "stop"
        elif self.remaining <= 0:
            self.finish_reason = "stop" if self._ends_with_stop() else "length"

    def _completes_stop(self, token: int) -> bool:
        if self._text is None:
            return False
        self._text.push(token)
        return self._text.stopped

    def _ends_with_stop(self) -> bool:
        """Whether the text of an answer that ends here has a stop string in what might have become a call."""
        if self._text is None:
            return False
        self._text.flush()
        return self._text.stopped


def _stop_watch(tokenizer: Tokenizer | None, request: GenerationRequest) -> TextStream | None:
    params = request.params
    if not params.stop:
        return None
    if tokenizer is None:
        raise InvalidRequest("stop", "stop strings need a tokenizer, and this engine runs without one")
    return TextStream(tokenizer, params.stop, params.skip_special_tokens, form=request.form)
