"""However a generation is cut into runs, what is committed is what decoding one token at a time gives."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from core.errors import InvalidRequest
from core.generation import GenerationRequest, Run, TokenLogprob
from core.sampling.params import SamplingParams
from core.text.detokenizer import TextStream
from core.tools.call_spans import AnswerForm
from core.tools.markers import MARKS
from core.verify.commit import Chain
from core.verify.logprobs import token_logprobs
from tests.core.toy_tokenizer import END_OF_TURN, EOS, byte_level, one_byte

TOKENIZER = byte_level()
VOCAB = TOKENIZER.get_vocab_size()
EOS_IDS = [TOKENIZER.token_to_id(EOS), TOKENIZER.token_to_id(END_OF_TURN)]
PROMPT = (5, 6, 7)
WORDS = ["the end", " END", "stop", "中文", "🙂", "é", "st", "op", " again", "!"]
WORD_TOKENS = st.sampled_from(WORDS).map(lambda word: TOKENIZER.encode(word).ids)
ODD_TOKENS = st.sampled_from([EOS_IDS[0], EOS_IDS[1], one_byte(0xE4), one_byte(0xAD)]).map(lambda token: [token])
STREAMS = st.lists(WORD_TOKENS | WORD_TOKENS | WORD_TOKENS | ODD_TOKENS, min_size=1, max_size=12).map(
    lambda parts: [token for part in parts for token in part]
)
CUTS = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), min_size=1, max_size=6)  # (right guesses, wrong ones)


@dataclass
class Answer:
    """Everything a client or the accounts can see of a generation."""

    tokens: list[int] = field(default_factory=list)
    text: str = ""
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish_reason: str | None = None


def request(tokens: list[int], **knobs: Any) -> GenerationRequest:
    params = SamplingParams(seed=0, logprobs=2, **{"max_tokens": 100, **knobs})
    return GenerationRequest(tokens=(*PROMPT, *tokens), prompt_length=len(PROMPT), params=params)


def chain(tokens: list[int], context: int = 1000, **knobs: Any) -> Chain:
    return Chain(request(tokens, **knobs), eos_ids=EOS_IDS, context=context, tokenizer=TOKENIZER)


def logits_after(count: int) -> torch.Tensor:
    """Raw logits [VOCAB] of the row after `count` generated tokens."""
    return torch.randn(VOCAB, generator=torch.Generator().manual_seed(count))


def one_at_a_time(stream: list[int], context: int, max_tokens: int, stop: tuple[str, ...]) -> Answer:
    """The reference: decode the whole answer again after every token."""
    answer = Answer()
    for token in stream:
        answer.logprobs += token_logprobs(logits_after(len(answer.tokens))[None], [token], 2)
        answer.tokens.append(token)
        answer.text = TOKENIZER.decode(answer.tokens)
        starts = [answer.text.find(string) for string in stop if string in answer.text]
        if token in EOS_IDS:
            answer.finish_reason = "stop"
        elif starts:
            answer.finish_reason = "stop"
            answer.text = answer.text[: min(starts)]
        elif len(answer.tokens) == max_tokens or len(PROMPT) + len(answer.tokens) == context:
            answer.finish_reason = "length"
        if answer.finish_reason:
            break
    return answer


def next_run(session: Chain, stream: list[int], right: int, wrong: int) -> Run:
    """One target pass over `right` correct proposals and `wrong` others, as far as the chain allows them."""
    done = session.num_generated
    right = min(right, len(stream) - done - 1)
    guesses = [*stream[done : done + right], *[(stream[done + right] + 1) % VOCAB] * wrong]
    proposed = guesses[: session.limit_proposals(len(guesses))]
    # what the target draws behind a wrong guess belongs to another continuation
    drawn = (stream[done : done + right + 1] + [EOS_IDS[0]] * wrong)[: len(proposed) + 1]
    logits = torch.stack([logits_after(done + j) for j in range(len(drawn))])
    return session.commit(drawn, proposed, token_logprobs(logits, drawn, 2))


def in_runs(session: Chain, stream: list[int], cuts: list[tuple[int, int]]) -> tuple[list[Run], Answer]:
    runs, answer, text = [], Answer(), TextStream(TOKENIZER, session.params.stop)
    while session.finish_reason is None and session.num_generated < len(stream):
        run = next_run(session, stream, *cuts[len(runs) % len(cuts)])
        runs.append(run)
        answer.tokens += run.tokens
        answer.logprobs += run.logprobs
        answer.text += "".join(text.push(token) for token in run.tokens)
        answer.finish_reason = run.finish_reason
    answer.text += text.flush()
    return runs, answer


@st.composite
def limits(draw: st.DrawFn, stream: list[int]) -> tuple[int, int, tuple[str, ...]]:
    text = TOKENIZER.decode(stream)
    pieces = st.tuples(st.integers(0, len(text)), st.integers(1, 9)).map(lambda cut: text[cut[0] : sum(cut)])
    stop = draw(st.lists(pieces, max_size=3))
    assume(all(string and "\ufffd" not in string for string in stop))
    return draw(st.integers(len(PROMPT) + 1, 40)), draw(st.integers(1, 30)), tuple(stop)


@settings(max_examples=400)
@given(st.data(), STREAMS, CUTS)
def test_any_cut_into_runs_gives_the_answer_of_one_token_at_a_time(
    data: st.DataObject, stream: list[int], cuts: list[tuple[int, int]]
) -> None:
    context, max_tokens, stop = data.draw(limits(stream))
    expected = one_at_a_time(stream, context, max_tokens, stop)
    session = chain([], context, max_tokens=max_tokens, stop=stop)
    runs, answer = in_runs(session, stream, cuts)
    assert answer == expected
    assert session.tokens == [*PROMPT, *expected.tokens]
    assert session.num_generated == len(expected.tokens)
    assert +session.counts == Counter(expected.tokens)
    assert sum(run.accepted + 1 for run in runs) >= len(expected.tokens)
    assert all(len(run.tokens) - 1 <= run.accepted <= run.proposed for run in runs)


@settings(max_examples=200)
@given(st.data(), STREAMS, CUTS)
def test_a_resumed_generation_ends_as_if_it_had_never_stopped(
    data: st.DataObject, stream: list[int], cuts: list[tuple[int, int]]
) -> None:
    context, max_tokens, stop = data.draw(limits(stream))
    expected = one_at_a_time(stream, context, max_tokens, stop)
    received = data.draw(st.integers(0, len(expected.tokens)))
    session = chain(expected.tokens[:received], context, max_tokens=max_tokens, stop=stop)
    in_runs(session, stream, cuts)
    assert session.tokens == [*PROMPT, *expected.tokens]
    assert session.finish_reason == expected.finish_reason
    assert session.counts == Counter(expected.tokens)


@given(st.integers(1, 20), st.integers(len(PROMPT) + 1, 30), st.integers(0, 20), st.integers(0, 9))
def test_proposals_leave_room_for_the_token_after_them(
    max_tokens: int, context: int, generated: int, proposed: int
) -> None:
    assume(generated < max_tokens and len(PROMPT) + generated < context)
    session = chain([9] * generated, context, max_tokens=max_tokens)
    length = len(PROMPT) + generated
    allowed = session.limit_proposals(proposed)
    assert allowed == min(proposed, max_tokens - generated - 1, context - length - 1)
    assert session.finish_reason is None


def test_an_accepted_eos_ends_the_run_and_counts_as_accepted() -> None:
    run = chain([]).commit([8, EOS_IDS[1], 9, 9], [8, EOS_IDS[1], 9])
    assert run == Run(tokens=(8, EOS_IDS[1]), proposed=3, accepted=2, finish_reason="stop")


def test_a_recovered_token_ends_the_run() -> None:
    run = chain([]).commit([8, 10, 11], [8, 9])
    assert run == Run(tokens=(8, 10), proposed=2, accepted=1)


def test_all_accepted_brings_a_bonus_token() -> None:
    run = chain([]).commit([8, 9, 10], [8, 9])
    assert run == Run(tokens=(8, 9, 10), proposed=2, accepted=2)


@pytest.mark.parametrize(("proposed", "accepted", "judged"), [(0, 0, 0), (4, 0, 1), (4, 2, 3), (4, 4, 4)])
def test_the_target_judges_what_it_accepts_and_the_first_that_it_rejects(
    proposed: int, accepted: int, judged: int
) -> None:
    assert Run((1,) * (accepted + 1), proposed, accepted).num_judged == judged


def test_no_proposal_commits_one_token() -> None:
    assert chain([]).commit([8], []) == Run(tokens=(8,))


def test_eos_in_the_last_allowed_place_finishes_with_stop() -> None:
    assert chain([], max_tokens=1).commit([EOS_IDS[0]], []).finish_reason == "stop"
    assert chain([], max_tokens=1).commit([8], []).finish_reason == "length"
    assert chain([], context=len(PROMPT) + 1).commit([8], []).finish_reason == "length"


def test_a_stop_string_that_stood_in_the_prompt_does_not_end_the_answer() -> None:
    end, more = TOKENIZER.encode("END").ids, TOKENIZER.encode(" again").ids
    prompt = GenerationRequest(
        tokens=tuple(end), prompt_length=len(end), params=SamplingParams(seed=0, max_tokens=99, stop=("END", "D again"))
    )
    session = Chain(prompt, eos_ids=EOS_IDS, context=999, tokenizer=TOKENIZER)
    for token in more:
        session.commit([token], [])
    assert session.finish_reason is None
    for token in end:
        session.commit([token], [])
    assert session.finish_reason == "stop"


def test_rows_and_proposals_that_do_not_match_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        chain([]).commit([8], [8])


HELD = AnswerForm({EOS_IDS[1]: "<tool_call>"}, "hermes")  # its marker is a token in some answers, and text in others
CALL = '<tool_call>\n{"name": "END", "arguments": {"a": "stop <END}"}}\n</tool_call>'
BEFORE = TOKENIZER.encode("the end <tool <").ids
HELD_ANSWERS = [
    [*BEFORE, *TOKENIZER.encode(f"{CALL} stop END.").ids],
    [*BEFORE, EOS_IDS[1], *TOKENIZER.encode(f"{CALL.removeprefix('<tool_call>')} stop END.").ids],
]


@given(
    st.sampled_from(HELD_ANSWERS),
    st.lists(st.sampled_from(["END", "}", "stop", "<", "<tool", "_call>", '"', "\n", "d <"]), min_size=1, max_size=3),
    st.integers(1, 60),
    CUTS,
)
def test_no_stop_string_ends_an_answer_in_a_call_that_its_grammar_holds_wherever_runs_are_cut(
    answer: list[int], stop: list[str], max_tokens: int, cuts: list[tuple[int, int]]
) -> None:
    asked = msgspec.structs.replace(request([], stop=tuple(stop), max_tokens=max_tokens), form=HELD)
    ends = (EOS_IDS[0],)
    alone = Chain(asked, eos_ids=ends, context=1000, tokenizer=TOKENIZER)
    for token in [*answer, *ends]:
        if alone.finish_reason is None:
            alone.commit([token], [])
    session = Chain(asked, eos_ids=ends, context=1000, tokenizer=TOKENIZER)
    in_runs(session, [*answer, *ends], cuts)
    assert (session.tokens, session.finish_reason) == (alone.tokens, alone.finish_reason)
    text = TextStream(TOKENIZER, tuple(stop), form=HELD)
    shown = "".join(map(text.push, session.tokens[len(PROMPT) :])) + text.flush()
    assert text.stopped == (session.finish_reason == "stop" and session.tokens[-1:] != list(ends))
    outside = shown.replace(MARKS["<tool_call>"], "<tool_call>").partition("<tool_call>")[0::2]
    texts = [outside[0], outside[1].partition("</tool_call>")[2]]
    assert not any(string in text for text in texts for string in stop)


def test_what_may_become_a_call_ends_the_answer_once_it_is_none() -> None:
    asked = msgspec.structs.replace(request([], stop=("<tool",), max_tokens=9), form=HELD)
    for answer, ended, reason in (
        ("a <tools", "a <tools", "stop"),
        ("a <tool_ca", "a <tool_c", "stop"),  # at the limit it is known that it becomes none
        ("a b c d e", "a b c d e", "length"),
    ):
        session = Chain(asked, eos_ids=EOS_IDS, context=1000, tokenizer=TOKENIZER)
        for char in answer:
            if session.finish_reason is None:
                session.commit([one_byte(ord(char))], [])
        assert TOKENIZER.decode(session.tokens[len(PROMPT) :]) == ended
        assert session.finish_reason == reason


def test_stop_strings_without_a_tokenizer_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="tokenizer"):
        Chain(request([], stop=("x",)), eos_ids=EOS_IDS, context=99)


def test_logprobs_are_of_the_raw_logits_and_always_hold_the_chosen_token() -> None:
    logits = torch.tensor([[0.0, 2.0, 2.0, 1.0, 2.0]]).repeat(3, 1)
    expected = torch.log_softmax(logits[0].double(), -1).tolist()
    first, second, third = token_logprobs(logits, [1, 3, 4], 2)
    assert [token for token, _ in first.top] == [1, 2]
    assert [token for token, _ in second.top] == [1, 2, 3]
    assert [token for token, _ in third.top] == [1, 2, 4]
    assert second.logprob == pytest.approx(expected[3], abs=1e-6)
    assert [logprob for _, logprob in second.top] == pytest.approx([expected[1], expected[2], expected[3]], abs=1e-6)
    assert token_logprobs(logits[:1], [3], 0)[0].top == ((3, second.logprob),)


def test_logprobs_of_a_row_are_the_same_bits_alone_and_among_others() -> None:
    logits = torch.randn(8, 2051, generator=torch.Generator().manual_seed(3)) * 4
    drawn = list(range(8))
    assert token_logprobs(logits, drawn, 5) == [token_logprobs(logits[j : j + 1], [j], 5)[0] for j in drawn]
