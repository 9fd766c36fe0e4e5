"""The commit rule: which of the tokens a target pass drew become part of the answer.

Enters: the tokens the target drew for one session's rows and those the draft had proposed. Leaves: a `Run`. A run is
walked token by token as if each had been decoded alone, so where a run was cut shows in nothing a client can see.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from tokenizers import Tokenizer

from core.errors import InvalidRequest
from core.generation import FinishReason, GenerationRequest, Run, TokenLogprob
from core.text import TextStream


class Chain:
    """The committed tokens of one session, and why it ended.

    `tokens` is the prompt and everything generated, `counts` how often each token was generated. A request that
    already holds generated tokens goes on exactly where it stopped. `context` is the most tokens the target can hold;
    `eos_ids` are the target's own.
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
        self._eos_ids = frozenset(eos_ids)
        self._context = context
        self._text = _stop_watch(tokenizer, request.params.stop)
        for token in request.tokens[request.prompt_length :]:
            self._append(token)

    @property
    def num_generated(self) -> int:
        return len(self.tokens) - self.prompt_length

    @property
    def remaining(self) -> int:
        """How many more tokens the answer may have, by `max_tokens` and by the context."""
        return min(self.params.max_tokens - self.num_generated, self._context - len(self.tokens))

    def limit_proposals(self, proposed: int) -> int:
        """How many of `proposed` tokens may be put to the target: one place is left for the token after them."""
        return max(0, min(proposed, self.remaining - 1))

    def commit(self, drawn: Sequence[int], proposed: Sequence[int], logprobs: Sequence[TokenLogprob] = ()) -> Run:
        """Take what the target drew as far as it counts.

        `drawn[j]` was drawn after the first j of the `proposed` tokens, so there is one more of them. It counts if all
        j were drawn before it and none of them ended the answer. `logprobs` is empty or parallel to `drawn`.
        """
        start = len(self.tokens)
        accepted = 0
        for token, guess in zip(drawn, [*proposed, None], strict=True):
            self._append(token)
            accepted += token == guess
            if token != guess or self.finish_reason is not None:
                break
        tokens = tuple(self.tokens[start:])
        return Run(
            tokens=tokens,
            proposed=len(proposed),
            accepted=accepted,
            logprobs=tuple(logprobs[: len(tokens)]),
            finish_reason=self.finish_reason,
        )

    def _append(self, token: int) -> None:
        self.tokens.append(token)
        self.counts[token] += 1
        if token in self._eos_ids or self._completes_stop(token):
            self.finish_reason = "stop"
        elif self.remaining <= 0:
            self.finish_reason = "length"

    def _completes_stop(self, token: int) -> bool:
        if self._text is None:
            return False
        self._text.push(token)
        return self._text.stopped


def _stop_watch(tokenizer: Tokenizer | None, stop: tuple[str, ...]) -> TextStream | None:
    if not stop:
        return None
    if tokenizer is None:
        raise InvalidRequest("stop", "stop strings need a tokenizer, and this engine runs without one")
    return TextStream(tokenizer, stop)
