"""Whatever a draft proposes and wherever runs are cut, a client sees what it would see without speculation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher

from core.generation import GenerationRequest, TokenLogprob
from core.sampling.params import SamplingParams
from core.text.detokenizer import TextStream
from core.verify.engine import VerifyConfig, VerifyEngine
from core.wire.messages import Propose
from tests.core.toy import Clock, ToyModel
from tests.core.toy_tokenizer import END_OF_TURN, EOS, byte_level
from tests.examples import examples

TOKENIZER = byte_level()
VOCAB = TOKENIZER.get_vocab_size()
LETTERS = [TOKENIZER.token_to_id(letter) for letter in "enodtsp!"]
PADDING = 5  # columns of the logits that are no tokens


class WordyModel(ToyModel):
    """A toy target over a real vocabulary that often says the same few letters, so that stop strings happen."""

    vocab_size = VOCAB + PADDING

    def __init__(self, context: int) -> None:
        super().__init__(context=context)
        generator = torch.Generator().manual_seed(11)
        self._table = torch.randn(1009, VOCAB + PADDING, generator=generator)
        self._table[:, LETTERS] += 4.0
        self._table[:, :2] += 2.0  # ends of sequence
        self._table[:, VOCAB:] += 9.0


class WordyVocabulary:
    raw = TOKENIZER
    eos_ids = (TOKENIZER.token_to_id(EOS), TOKENIZER.token_to_id(END_OF_TURN))
    num_valid = VOCAB


@dataclass
class Answer:
    """Everything a client can see."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    text: str = ""
    finish_reason: str | None = None
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)


Guess = tuple[int, int, int]  # how far behind the draft is, right guesses, then wrong ones


def generate(request: GenerationRequest, context: int, truth: Sequence[int], guesses: Sequence[Guess]) -> Answer:
    """One session; before every pass a draft that knows `truth` proposes it, as far and as wrongly as `guesses` say."""
    engine = VerifyEngine(WordyModel(context), WordyVocabulary(), VerifyConfig(prefill_chunk=4), Clock())
    [number] = engine.open([request])
    answer, text = Answer(), TextStream(TOKENIZER, request.params.stop)
    chain = [*request.tokens, *truth]
    passes = 0
    while engine.gauges()["sessions"]:
        if guesses:
            behind, right, wrong = guesses[passes % len(guesses)]
            base = max(0, len(request.tokens) + len(answer.tokens) - behind)
            run = chain[base : base + behind + right]
            run += [(chain[base + len(run)] + 1) % VOCAB if base + len(run) < len(chain) else 7] * wrong
            engine.receive(b"math#1", Propose(number, 0, base, tuple(run[:16])))
        for _, run_out in engine.step():
            answer.tokens += run_out.tokens
            answer.logprobs += run_out.logprobs
            answer.prompt_logprobs += run_out.prompt_logprobs
            answer.text += "".join(text.push(token) for token in run_out.tokens)
            answer.finish_reason = run_out.finish_reason
        passes += 1
    answer.text += text.flush()
    return answer


GRAMMARS = [
    LLMatcher.grammar_from_regex("(end|stop|dot)(, (end|stop|[0-9]{2,5}))*!"),
    LLMatcher.grammar_from_json_schema(
        {"properties": {"stop": {"type": "boolean"}, "end": {"enum": ["the end", "no end"]}}, "required": ["end"]}
    ),
    'start: thought "{" NUMBER "}"\nthought[lazy]: /[^!]*!/\nNUMBER: /[1-9][0-9]*/',
]


def agreeing(law: dict[str, Any]) -> dict[str, Any]:
    """Without what the request would be refused for."""
    law = law | {"min_tokens": min(law.get("min_tokens", 0), law["max_tokens"])}
    return law | ({"ignore_eos": False, "min_tokens": 0} if "grammar" in law else {})


LAWS = st.fixed_dictionaries(
    {
        "seed": st.integers(-(2**63), 2**63 - 1),
        "max_tokens": st.integers(1, 40),
        "temperature": st.sampled_from([0.0, 0.7, 1.0]),
    },
    optional={
        "top_k": st.integers(0, VOCAB + 9),
        "top_p": st.floats(0.05, 1.0),
        "min_p": st.floats(0.0, 0.5),
        "presence_penalty": st.floats(-2.0, 2.0),
        "frequency_penalty": st.floats(-2.0, 2.0),
        "logit_bias": st.dictionaries(st.integers(0, VOCAB - 1), st.floats(-100.0, 6.0), max_size=3),
        "logprobs": st.just(3),
        "stop": st.lists(st.text("enodtsp!", min_size=1, max_size=4), max_size=3).map(tuple),
        "skip_special_tokens": st.booleans(),
        "stop_ids": st.lists(st.sampled_from(LETTERS), max_size=2).map(tuple),
        "repetition_penalty": st.floats(0.1, 5.0),
        "min_tokens": st.integers(0, 12),
        "ignore_eos": st.booleans(),
        "prompt_logprobs": st.just(2),
        "grammar": st.sampled_from(GRAMMARS),
    },
).map(agreeing)
GUESSES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9), st.integers(0, 4)), min_size=1, max_size=6)


@settings(max_examples=examples(150), deadline=None)
@given(
    LAWS,
    st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=9),
    st.integers(1, 60),
    st.integers(0, 3),
    st.sampled_from([0, 1, 4, 7, 16]),
    GUESSES,
)
def test_speculation_shows_in_nothing_but_speed(
    law: dict[str, Any], prompt: list[int], room: int, choice: int, most: int, guesses: list[Guess]
) -> None:
    context = len(prompt) + room
    request = GenerationRequest(
        tokens=tuple(prompt),
        prompt_length=len(prompt),
        params=SamplingParams(**law),
        choice=choice,
        num_speculative_tokens=most,
    )
    plain = generate(request, context, (), ())
    assert generate(request, context, plain.tokens, guesses) == plain
    assert plain.finish_reason == "stop" or len(plain.tokens) == min(law["max_tokens"], room)
    assert max(plain.tokens) < VOCAB
    assert len(plain.prompt_logprobs) == (len(prompt) - 1 if "prompt_logprobs" in law else 0)
