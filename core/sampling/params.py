"""The sampling parameters of one request, and the ranges they must lie in: top_p, temperature, penalties and so on.

The ingress makes them; they travel unchanged to the verifier and the drafts.
"""

from __future__ import annotations

import math

import msgspec

from core.errors import InvalidRequest

GREEDY_BELOW = 1e-5  # a temperature under this counts as 0
MAX_STOPS = 32
MAX_STOP_IDS = 1024
MAX_TOP_LOGPROBS = 20
MAX_BIAS = 100.0
MAX_PENALTY = 2.0
REPETITION_PENALTIES = (0.01, 100.0)
INT64 = 1 << 63


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """The sampling parameters of one request, fully resolved: nothing is drawn or defaulted later.

    `seed` is always set: the ingress draws one if the client gave none. `top_k` 0 means off. A `repetition_penalty` of
    1 means off. `logprobs` is None, or the number of alternatives to report beside the chosen token (0 to 20);
    `prompt_logprobs` the same for every token of the prompt but the first.

    An answer ends with a token of `stop_ids` or an end-of-sequence token, unless `ignore_eos`, and gets none of these
    among its first `min_tokens`. It also ends with a string of `stop`, looked for in its text with or without special
    tokens. `grammar` is what it must agree with, in the form of `core.grammar`; empty for anything.
    """

    seed: int
    max_tokens: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = {}
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    repetition_penalty: float = 1.0
    min_tokens: int = 0
    ignore_eos: bool = False
    stop_ids: tuple[int, ...] = ()
    skip_special_tokens: bool = True
    grammar: str = ""

    @property
    def greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW

    @property
    def penalised(self) -> bool:
        return self.presence_penalty != 0.0 or self.frequency_penalty != 0.0 or self.repetition_penalty != 1.0

    @property
    def warped(self) -> bool:
        """True if anything but the temperature and the grammar can change which token is drawn."""
        filtered = self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0
        return self.penalised or bool(self.logit_bias) or (filtered and not self.greedy)

    def validate(self, vocab_size: int) -> None:
        """Raise `InvalidRequest` for the first field out of its range, naming it."""
        _within("seed", self.seed, -INT64, INT64 - 1)
        _within("max_tokens", self.max_tokens, 1, math.inf)
        _within("temperature", self.temperature, 0.0, 2.0)
        _within("top_k", self.top_k, 0, math.inf)
        _within("min_p", self.min_p, 0.0, 1.0)
        if not 0.0 < self.top_p <= 1.0:
            raise InvalidRequest("top_p", f"top_p must be over 0 and at most 1, not {self.top_p}")
        _within("presence_penalty", self.presence_penalty, -MAX_PENALTY, MAX_PENALTY)
        _within("frequency_penalty", self.frequency_penalty, -MAX_PENALTY, MAX_PENALTY)
        for token, bias in self.logit_bias.items():
            _within("logit_bias", token, 0, vocab_size - 1)
            _within("logit_bias", bias, -MAX_BIAS, MAX_BIAS)
        if len(self.stop) > MAX_STOPS or "" in self.stop:
            raise InvalidRequest("stop", f"stop takes at most {MAX_STOPS} strings, none of them empty")
        _within("repetition_penalty", self.repetition_penalty, *REPETITION_PENALTIES)
        _within("min_tokens", self.min_tokens, 0, self.max_tokens)
        if len(self.stop_ids) > MAX_STOP_IDS:
            raise InvalidRequest("stop_token_ids", f"stop_token_ids takes at most {MAX_STOP_IDS} tokens")
        for token in self.stop_ids:
            _within("stop_token_ids", token, 0, vocab_size - 1)
        for field, value in (("ignore_eos", self.ignore_eos), ("min_tokens", self.min_tokens)):
            if value and self.grammar:
                holds = "a schema, an expression, choices or tools hold this answer, which ends where they say"
                raise InvalidRequest(field, f"{field} cannot be set with a grammar: {holds}; leave {field} out")
        for field, number in (("logprobs", self.logprobs), ("prompt_logprobs", self.prompt_logprobs)):
            if number is not None:
                _within(field, number, 0, MAX_TOP_LOGPROBS)


def _within(field: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # false for NaN too
        limit = f"at least {low}" if high == math.inf else f"between {low} and {high}"
        raise InvalidRequest(field, f"{field} must be {limit}, not {value}")
