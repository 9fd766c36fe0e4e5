"""Penalties, bias, filters and draws against the plain Python reference, row by row."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from core.sampling import sampler
from core.sampling.params import SamplingParams
from core.sampling.sampler import Sampling, count_rows, sample, score
from tests.core import reference
from tests.core.sampling.drawing import filtered, of, one_session
from tests.examples import examples

VOCAB = 12
QUARTERS = st.sampled_from([quarters / 4 for quarters in range(-6, 7)])  # exact in float32, and with many ties
ROWS = st.lists(st.lists(QUARTERS, min_size=VOCAB, max_size=VOCAB), min_size=1, max_size=4)
TOKENS = st.lists(st.integers(0, VOCAB - 1), max_size=6)
NUM_VALID = st.sampled_from([VOCAB, VOCAB, VOCAB, 7, 2, 1])
PARAMS = st.builds(
    SamplingParams,
    seed=st.integers(-(2**63), 2**63 - 1),
    max_tokens=st.just(9),
    temperature=st.sampled_from([0.0, 0.3, 0.7, 1.0, 2.0]),
    top_k=st.sampled_from([0, 0, 1, 2, 3, 5, 8, VOCAB + 2]),
    top_p=st.sampled_from([1.0, 1.0, 1.0, 0.1004, 0.5004, 0.9004, 0.9904]),
    min_p=st.sampled_from([0.0, 0.0, 0.0, 0.02, 0.3, 1.0]),
    presence_penalty=st.sampled_from([0.0, 0.5, -1.25]),
    frequency_penalty=st.sampled_from([0.0, 0.25, -2.0]),
    repetition_penalty=st.sampled_from([1.0, 1.0, 2.0, 0.5]),
    logit_bias=st.dictionaries(st.integers(0, VOCAB - 1), QUARTERS | st.sampled_from([-100.0, 100.0]), max_size=3),
)


def admitted(params: SamplingParams, num_valid: int) -> SamplingParams:
    """The request with its biases on ids that the tokenizer has; others are refused before."""
    bias = {token % num_valid: by for token, by in params.logit_bias.items()}
    return msgspec.structs.replace(params, logit_bias=bias)


def ids(tokens: list[int], num_valid: int) -> list[int]:
    return [token % num_valid for token in tokens]


@settings(max_examples=examples(400))
@given(ROWS, PARAMS, TOKENS, TOKENS, NUM_VALID)
@example([[0.0] * VOCAB], SamplingParams(seed=0, max_tokens=1, top_k=5, top_p=0.5, min_p=1.0), [], [], VOCAB)
def test_any_request_warps_every_row_as_the_reference_does(
    rows: list[list[float]], params: SamplingParams, history: list[int], tokens: list[int], num_valid: int
) -> None:
    params, history = admitted(params, num_valid), ids(history, num_valid)
    proposed = ids((tokens + [0] * len(rows))[: len(rows) - 1], num_valid)
    logits = torch.tensor(rows)
    z = filtered(logits, params, num_valid, Counter(history), proposed)
    for j, row in enumerate(rows):
        expected = reference.warped(row, params, Counter(history + proposed[:j]), num_valid)
        assert of(z[j]) == expected
        assert expected
    assert torch.equal(logits, torch.tensor(rows))


@settings(max_examples=examples(200))
@given(ROWS, PARAMS, TOKENS, TOKENS, st.lists(st.lists(st.booleans(), min_size=VOCAB, max_size=VOCAB), min_size=4))
def test_what_is_not_allowed_is_banned_before_all_else_and_the_prompt_counts_as_repeated(
    rows: list[list[float]], params: SamplingParams, history: list[int], prompt: list[int], masks: list[list[bool]]
) -> None:
    allowed = [[*mask[:-1], True] for mask in masks[: len(rows)]]  # a grammar leaves a token at any place
    z = filtered(torch.tensor(rows), params, VOCAB, Counter(history), [3] * (len(rows) - 1), prompt, allowed)
    for j, row in enumerate(rows):
        banned = [token for token in range(VOCAB) if not allowed[j][token]]
        assert of(z[j]) == reference.warped(row, params, Counter(history + [3] * j), VOCAB, prompt, banned)


@settings(max_examples=examples(300))
@given(ROWS, PARAMS, TOKENS, TOKENS, NUM_VALID, st.integers(0, 2), st.integers(0, 5000))
def test_any_request_draws_the_reference_s_token_in_every_row(
    rows: list[list[float]],
    params: SamplingParams,
    history: list[int],
    tokens: list[int],
    num_valid: int,
    choice: int,
    first_position: int,
) -> None:
    params, history = admitted(params, num_valid), ids(history, num_valid)
    proposed = ids((tokens + [0] * len(rows))[: len(rows) - 1], num_valid)
    session = one_session(params, choice, first_position, Counter(history), proposed)
    drawn = sample(torch.tensor(rows), [session], num_valid)
    temperature = 0.0 if params.greedy else params.temperature
    for j, row in enumerate(rows):
        z = reference.warped(row, params, Counter(history + proposed[:j]), num_valid)
        score = {
            v: z[v] + temperature * reference.gumbel(params.seed, choice, first_position + j, v) for v in sorted(z)
        }
        assert score[drawn[j]] >= max(score.values()) - 1e-5  # the production noise is rounded to float32
        assert temperature > 0 or drawn[j] == max(score, key=lambda v: score[v])


@settings(max_examples=examples(100))
@given(ROWS, PARAMS, TOKENS, TOKENS)
def test_a_row_is_warped_and_drawn_alone_as_among_others(
    rows: list[list[float]], params: SamplingParams, history: list[int], tokens: list[int]
) -> None:
    proposed = (tokens + [0] * len(rows))[: len(rows) - 1]
    logits = torch.tensor(rows)
    together = sample(logits, [one_session(params, 0, 40, Counter(history), proposed)], VOCAB)
    alone = [
        sample(logits[j : j + 1], [one_session(params, 0, 40 + j, Counter(history + proposed[:j]))], VOCAB)[0]
        for j in range(len(rows))
    ]
    assert together == alone


SESSIONS = st.lists(st.tuples(PARAMS, ROWS, TOKENS, TOKENS, st.integers(0, 5000)), min_size=1, max_size=6)


@settings(max_examples=examples(200))
@given(SESSIONS, NUM_VALID, st.sampled_from([1, 40, sampler.CPU_BATCH]))
def test_sessions_are_scored_among_others_as_alone(
    drawing: list[tuple[SamplingParams, list[list[float]], list[int], list[int], int]], num_valid: int, cached: int
) -> None:
    logits = torch.tensor([row for _, rows, *_ in drawing for row in rows])
    sessions = []
    for asked, rows, history, tokens, at in drawing:
        said, proposed = Counter(ids(history, num_valid)), ids(tokens + [0] * 4, num_valid)[: len(rows) - 1]
        sessions.append(one_session(admitted(asked, num_valid), 1, at, said, proposed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampler, "CPU_BATCH", cached)
        together = score(logits, sessions, num_valid)
    begin = 0
    for one in sessions:
        rows = slice(begin, begin := begin + one.rows)
        assert torch.equal(together[rows], score(logits[rows], [one], num_valid))
        drawn = sample(logits[rows], [one], num_valid)
        assert together[rows].argmax(-1).tolist() == drawn
    assert begin == len(together)


@settings(max_examples=examples(200))
@given(SESSIONS, st.sets(st.integers(0, VOCAB - 1), min_size=1))
def test_columns_of_some_ids_are_scored_as_among_all_where_the_others_are_impossible(
    drawing: list[tuple[SamplingParams, list[list[float]], list[int], list[int], int]], listed: set[int]
) -> None:
    kept = torch.tensor(sorted(listed))
    logits = torch.tensor([row for _, rows, *_ in drawing for row in rows])
    sessions = [
        one_session(asked, 1, at, Counter(history), (tokens + [0] * 4)[: len(rows) - 1])
        for asked, rows, history, tokens, at in drawing
    ]
    possible = torch.full_like(logits, -torch.inf).index_copy_(1, kept, logits[:, kept])
    among_all = score(possible, sessions, VOCAB)
    assert torch.equal(score(logits[:, kept], sessions, kept), among_all[:, kept])
    assert sample(logits[:, kept], sessions, kept) == among_all.argmax(-1).tolist()


class _Operations(TorchDispatchMode):
    """Counts what torch does: on a GPU a launch each, and a wait for each `_local_scalar_dense`."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[str(func)] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "knobs", [{"temperature": 0.0}, {}, {"top_p": 0.9}, {"top_k": 5, "min_p": 0.1, "top_p": 0.5}, {"mixed": True}]
)
def test_what_is_done_for_a_session_is_done_for_many_at_once(knobs: dict[str, float]) -> None:
    def done(count: int) -> Counter[str]:
        sessions = []
        for seed in range(count):
            own = {"temperature": seed % 2, "top_k": seed % 3} if "mixed" in knobs else {"temperature": 1.0, **knobs}
            params = SamplingParams(seed=seed, max_tokens=9, **own)
            sessions.append(Sampling(params, 0, 7, Counter(), (1, 2)))
        with _Operations() as seen:
            score(torch.linspace(0, 9, 3 * count * 40).view(-1, 40), sessions, 40)
        return seen.counts

    few, many = done(12), done(24)
    assert few["aten._local_scalar_dense.default"] == many["aten._local_scalar_dense.default"] <= 1
    assert many - few == Counter()


def test_temperature_zero_skips_the_filters_but_not_bias_penalties_and_masks() -> None:
    params = SamplingParams(
        seed=0, max_tokens=1, temperature=0.0, top_k=1, top_p=0.1, min_p=1.0, presence_penalty=2.0, logit_bias={0: -1.0}
    )
    logits = torch.tensor([[5.0, 5.0, 1.0, 9.0]])
    z = filtered(logits, params, 3, {1: 4})
    assert of(z[0]) == {0: 4.0, 1: 3.0, 2: 1.0}
    assert sample(logits, [one_session(params, 0, 7, {1: 4})], 3) == [0]


def test_penalties_count_the_proposed_tokens_before_a_row_and_never_the_prompt() -> None:
    params = SamplingParams(seed=0, max_tokens=9, temperature=0.0, presence_penalty=0.5, frequency_penalty=1.0)
    logits = torch.tensor([[3.0, 2.0, 0.0]] * 4)
    assert sample(logits, [one_session(params, 0, 50, {}, [0, 0, 1])], 3) == [0, 1, 1, 0]
    counts = count_rows(Counter({2: 5}), [0, 0, 1], logits, 3)
    assert counts.tolist() == [[0, 0, 5], [1, 0, 5], [2, 0, 5], [2, 1, 5]]
    some = count_rows(Counter({2: 5, 9: 1}), [0, 0, 1], logits[:, :2], torch.tensor([1, 2]))
    assert some.tolist() == [[0, 5], [0, 5], [0, 5], [1, 5]]


def test_counts_taken_back_no_longer_penalise() -> None:
    history = Counter([2, 2, 1])
    history.subtract([1])
    logits = torch.zeros(1, 3)
    params = SamplingParams(seed=0, max_tokens=1, temperature=0.0, presence_penalty=1.0)
    assert filtered(logits, params, 3, history).tolist() == [[0.0, 0.0, -1.0]]


@pytest.mark.parametrize("knobs", [{}, {"top_k": 9}, {"top_p": 0.9}, {"min_p": 0.1}])
def test_a_lone_valid_token_is_always_drawn(knobs: dict[str, float]) -> None:
    params = SamplingParams(seed=5, max_tokens=1, temperature=2.0, **knobs)
    logits = torch.full((8, 40), 60.0)
    logits[:, 0] = -60.0
    assert sample(logits, [one_session(params, proposed=[0] * 7)], 1) == [0] * 8
