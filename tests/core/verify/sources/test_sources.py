"""Sources beside drafts: the tokens are those of plain decoding, and answers are shown to their owner alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.draft_key import DraftKey
from core.errors import ConfigError
from core.generation import GenerationRequest
from core.model.base import Rows
from core.policy.draft_policy import DraftPolicy
from core.verify.commit import Chain
from core.verify.engine import VerifyConfig
from core.verify.sources import DEFAULT, DRAFTS_ALONE, SourceOptions, made
from core.verify.sources.answers import AnswerMemory
from core.verify.sources.prediction import Prediction
from tests.core.pair import LAWS
from tests.core.simulation import PASS, Simulation
from tests.core.toy import PROMPT, VOCAB_SIZE, plain_tokens, request
from tests.core.verify.bench import Bench

EVERYTHING: SourceOptions = {**DEFAULT, "answers": {"max_tokens": 500, "without_owner": True}}
PREDICTION: SourceOptions = {"prediction": {}}
LOOPING = request(200, temperature=0.0)  # the toy repeats itself soon


def proposed(bench: Bench, number: int) -> dict[str, int]:
    """Tokens by who proposed them."""
    found: dict[str, int] = {}
    for run in bench.runs[number]:
        if run.proposed:
            found[run.source] = found.get(run.source, 0) + run.proposed
    return found


def answered(bench: Bench, asked: GenerationRequest) -> int:
    """The number of a session that was alone and is over; its tokens are those of plain decoding."""
    [number] = bench.engine.open([asked])
    bench.finish()
    assert bench.tokens(number) == plain_tokens(asked)
    return number


# ---- the same tokens

STEPS = st.tuples(
    st.sampled_from(["nothing", "right", "wrong", "late", "ahead"]),  # what the draft says before a pass
    st.integers(0, 6),  # tokens of it
)


def edited(answer: Sequence[int], edits: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """The answer with some tokens replaced, removed or put in."""
    tokens = list(answer)
    for at, kind in edits:
        where = at % max(1, len(tokens))
        tokens[where : where + kind % 3] = [at % VOCAB_SIZE] * (kind // 3)
    return tuple(tokens)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(LAWS),
    st.sampled_from([0.0, 1.0]),
    st.lists(st.integers(0, 3), min_size=1, max_size=12),
    st.integers(1, 3),
    st.sampled_from([None, 0, 1, 6, 16]),
    st.booleans(),
    st.sampled_from([DEFAULT, DRAFTS_ALONE, PREDICTION, EVERYTHING]),
    st.none() | st.lists(st.tuples(st.integers(0, 99), st.integers(0, 8)), max_size=4),
    st.lists(STEPS, min_size=1, max_size=8),
)
def test_whoever_proposes_the_tokens_are_those_of_plain_decoding(
    law: dict[str, Any],
    temperature: float,
    prompt: list[int],
    n: int,
    most: int | None,
    always: bool,
    lookup: SourceOptions,
    edits: list[tuple[int, int]] | None,
    steps: list[tuple[str, int]],
) -> None:
    one = request(40, tokens=prompt)
    params = msgspec.structs.replace(one.params, **{"temperature": temperature, **law})
    plain = [msgspec.structs.replace(one, params=params, choice=choice) for choice in range(n)]
    answers = [plain_tokens(asked) for asked in plain]
    prediction = () if edits is None else edited(answers[0], edits)
    group = [
        msgspec.structs.replace(asked, prediction=prediction, num_speculative_tokens=most, always_draft=always)
        for asked in plain
    ]
    bench = Bench(VerifyConfig(lookup=lookup))
    for _ in range(2):  # the second time there are earlier answers
        numbers = bench.engine.open(group)
        passes = 0
        while bench.sessions:
            says, length = steps[passes % len(steps)]
            for number, asked, answer in zip(numbers, group, answers, strict=True):
                known = len(bench.tokens(number))
                base = asked.prompt_length + known - (2 if says == "late" and known > 2 else 0)
                right = [*asked.tokens, *answer][base : base + length]
                run = [(token + 1) % VOCAB_SIZE for token in right] if says == "wrong" else right
                if says != "nothing":
                    bench.propose(number, base + (says == "ahead"), run)
            bench.step()
            bench.engine.outgoing()
            passes += 1
        assert [bench.tokens(number) for number in numbers] == answers
        if most == 0:
            assert not any(proposed(bench, number) for number in numbers)


# ---- what is looked up


def test_a_text_that_repeats_itself_is_continued_without_any_draft() -> None:
    bench = Bench()
    number = answered(bench, LOOPING)
    assert set(proposed(bench, number)) == {"own_text"}
    assert len(bench.runs[number]) < 120
    counts = bench.engine.counts
    assert counts["proposed_own_text"] == counts["proposed"]
    assert counts["accepted_own_text"] == counts["accepted"] > 80


def test_what_the_prompt_says_is_continued_with() -> None:
    answer = plain_tokens(request(60, temperature=0.0))
    bench = Bench()
    asked = request(20, tokens=[*PROMPT, *answer, *PROMPT, *answer[:4]], temperature=0.0)
    [number] = bench.engine.open([asked])
    bench.step()
    bench.step()
    assert bench.runs[number][-1].source == "own_text"
    assert bench.runs[number][-1].accepted == 16


def test_nothing_is_proposed_where_nothing_may_be() -> None:
    bench = Bench(VerifyConfig(lookup=DRAFTS_ALONE))
    assert proposed(bench, answered(bench, LOOPING)) == {}


def test_a_request_without_speculation_is_proposed_nothing_and_not_remembered() -> None:
    bench = Bench(VerifyConfig(lookup=EVERYTHING))
    off = msgspec.structs.replace(LOOPING, num_speculative_tokens=0, prediction=plain_tokens(LOOPING))
    assert proposed(bench, answered(bench, off)) == {}
    bench = Bench(VerifyConfig(lookup=ANSWERS))
    answered(bench, msgspec.structs.replace(owned("ann"), num_speculative_tokens=0))
    assert proposed(bench, answered(bench, owned("ann"))) == {}


# ---- earlier answers

ANSWERS: SourceOptions = {"answers": {"max_tokens": 500}}


def owned(owner: str | None, *, store: bool = True, seed: int = 3) -> GenerationRequest:
    return msgspec.structs.replace(request(60, seed=seed), owner=owner, store=store)


def test_an_answer_is_proposed_to_the_next_request_of_its_owner() -> None:
    bench = Bench(VerifyConfig(lookup=ANSWERS))
    assert proposed(bench, answered(bench, owned("ann"))) == {}
    again = answered(bench, owned("ann"))
    assert set(proposed(bench, again)) == {"answers"}
    assert len(bench.runs[again]) < 20


@pytest.mark.parametrize(
    ("first", "second", "without_owner", "shared"),
    [
        (owned("ann"), owned("bob"), False, False),
        (owned("ann"), owned(None), True, False),
        (owned(None), owned("ann"), True, False),
        (owned(None), owned(None), False, False),
        (owned(None), owned(None), True, True),
        (owned("ann", store=False), owned("ann"), False, False),
        (owned("ann"), owned("ann", store=False), False, True),
    ],
)
def test_answers_are_shown_to_their_owner_alone(
    first: GenerationRequest, second: GenerationRequest, *, without_owner: bool, shared: bool
) -> None:
    bench = Bench(VerifyConfig(lookup={"answers": {"max_tokens": 500, "without_owner": without_owner}}))
    answered(bench, first)
    assert bool(proposed(bench, answered(bench, second))) == shared


def with_a_draft(bench: Bench, peer: bytes) -> dict[str, int]:
    """What was proposed for a session of ann's that this draft, which proposes nothing, has joined."""
    [number] = bench.engine.open([owned("ann")])
    bench.step()
    bench.propose(number, len(PROMPT) + 1, (), peer=peer)
    bench.finish()
    assert bench.tokens(number) == plain_tokens(owned("ann"))
    return proposed(bench, number)


def test_an_answer_is_found_again_whichever_draft_joins() -> None:
    bench = Bench(VerifyConfig(lookup=ANSWERS))
    assert not with_a_draft(bench, b"math@1a2b#1")
    for peer in (b"math@3c4d#2", b"code@1a2b#3", b"general#4"):
        assert set(with_a_draft(bench, peer)) == {"answers"}
    assert set(proposed(bench, answered(bench, owned("ann")))) == {"answers"}


def test_an_answer_that_was_broken_off_is_not_remembered() -> None:
    bench = Bench(VerifyConfig(lookup=ANSWERS))
    [number] = bench.engine.open([owned("ann")])
    for _ in range(30):
        bench.step()
    bench.engine.close(number)
    assert proposed(bench, answered(bench, owned("ann"))) == {}


@given(st.lists(st.tuples(st.sampled_from("ab"), st.lists(st.integers(0, 3), max_size=9)), max_size=20))
def test_the_memory_is_bounded_and_the_oldest_answers_make_room(answers: list[tuple[str, list[int]]]) -> None:
    memory, most = AnswerMemory(20), 20
    kept: list[tuple[str, tuple[int, ...]]] = []
    for owner, tokens in answers:
        memory.add(owner, tuple(tokens))
        if len(tokens) > 2:
            kept.append((owner, tuple(tokens)))
        while sum(len(tokens) for _, tokens in kept) > most:
            del kept[0]
        assert memory.num_tokens == sum(len(tokens) for _, tokens in kept) <= most
    for owner in "ab":
        known = [tokens for name, tokens in kept if name == owner]
        index = memory.index(owner)
        assert (index is not None) == bool(known)
        places = [place for lists in index._places.values() for place in lists] if index else []
        assert {tuple(text) for text, _ in places} == set(known)


# ---- by name


def test_a_source_is_switched_on_by_its_name() -> None:
    assert list(made({"prediction": {}, "own_text": {}})) == ["own_text", "prediction"]
    with pytest.raises(ConfigError, match="'ngram'; there are grammar, own_text, answers, prediction"):
        made({"ngram": {}})
    with pytest.raises(ConfigError, match="no_such_argument"):
        made({"answers": {"no_such_argument": 1}})


# ---- predictions


def predicted(asked: GenerationRequest, prediction: Sequence[int]) -> GenerationRequest:
    return msgspec.structs.replace(asked, prediction=tuple(prediction))


def test_a_right_prediction_is_followed_from_the_first_token_on() -> None:
    answer = plain_tokens(request(61))
    bench = Bench(VerifyConfig(num_speculative_tokens=6, lookup=PREDICTION))
    number = answered(bench, predicted(request(61), answer))
    assert [len(run.tokens) for run in bench.runs[number]] == [1, *[17] * 3, 9]
    assert bench.engine.counts["accepted_prediction"] == bench.engine.counts["proposed_prediction"]


@pytest.mark.parametrize("put", [(), (9,), (9, 9, 9), (9, 9, 9, 9, 9)])
def test_after_a_difference_the_place_is_found_again(put: tuple[int, ...]) -> None:
    answer = plain_tokens(request(60))
    bench = Bench(VerifyConfig(num_speculative_tokens=6, lookup=PREDICTION))
    other = [*answer[:30], *put, *answer[33:]]
    number = answered(bench, predicted(request(60), other))
    assert len(bench.runs[number]) <= 12


def test_a_prediction_is_followed_where_the_answer_was_resumed() -> None:
    answer = plain_tokens(request(60))
    bench = Bench(VerifyConfig(num_speculative_tokens=6, lookup=PREDICTION))
    resumed = msgspec.structs.replace(predicted(request(60), answer), tokens=(*PROMPT, *answer[:20]))
    [number] = bench.engine.open([resumed])
    bench.finish()
    assert bench.tokens(number) == answer[20:]
    assert len(bench.runs[number]) < 10


def test_of_equal_places_in_a_prediction_the_nearest_is_followed() -> None:
    answer = [1, 2, 3, 9, 9, 9, 7, 1, 2]
    chain = Chain(msgspec.structs.replace(request(60), tokens=(*PROMPT, *answer)), eos_ids=(), context=4096)
    prediction = Prediction([1, 2, 3, 9, 9, 9, 1, 2, 4, 9, 9, 9, 1, 2, 5], chain)
    assert [guess.token for guess in prediction.guess(1)] == [4]


@pytest.mark.parametrize("rows", [0.01, 0.1])
def test_a_nonsense_prediction_costs_next_to_nothing(rows: float) -> None:
    asked = request(200)
    nonsense = [(token + 1) % VOCAB_SIZE for token in plain_tokens(asked)]
    ends = [ended(predicted(asked, prediction), rows) for prediction in (nonsense, ())]
    assert ends[0] <= 1.02 * ends[1]


# ---- what it costs, and beside drafts


def ended(asked: GenerationRequest, rows: float, lookup: SourceOptions = PREDICTION) -> float:
    """When the answer is complete, of a target each row of which adds so much of a pass."""
    simulation = Simulation(VerifyConfig(num_speculative_tokens=6, lookup=lookup))

    def take_time(batch: Sequence[Rows]) -> None:
        simulation.clock.now += PASS * (1 + rows * (sum(len(rows.tokens) for rows in batch) - 1))

    simulation.target.model.on_forward = take_time
    for size in (1, 2, 4, 8):
        simulation.target.engine.policy.costs.observe(size, PASS * (1 + rows * (size - 1)))
    simulation.generate(asked)
    simulation.run()
    return simulation.target.passes[-1][1]


@pytest.mark.parametrize("rows", [0.0, 0.05, 0.2, 1.0])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_looking_up_makes_nothing_slower(temperature: float, rows: float) -> None:
    asked = request(300, temperature=temperature)
    assert ended(asked, rows, DEFAULT) <= ended(asked, rows) / 0.98


def test_the_draft_speaks_unless_more_is_expected_of_another() -> None:
    bench = Bench(VerifyConfig(num_speculative_tokens=4))
    answer = plain_tokens(LOOPING)
    [number] = bench.engine.open([LOOPING])
    sources = set()
    while bench.sessions:
        known = len(bench.tokens(number))
        bench.propose(number, len(PROMPT) + known, answer[known : known + 1])
        bench.step()
        sources.add(bench.runs[number][-1].source)
    assert sources == {"draft", "own_text"}
    assert bench.tokens(number) == answer


@pytest.mark.parametrize(("off", "better"), [(0, True), (1, False)])
def test_a_draft_is_known_by_its_own_proposals_while_another_source_speaks(off: int, better: bool) -> None:
    answer = plain_tokens(request(80))
    bench = Bench(VerifyConfig(num_speculative_tokens=6, lookup=PREDICTION))
    [number] = bench.engine.open([predicted(request(80), answer)])
    bench.step()
    while bench.sessions:
        known = len(bench.tokens(number))
        bench.propose(number, len(PROMPT) + known, [(token + off) % VOCAB_SIZE for token in answer[known : known + 2]])
        bench.step()
    assert proposed(bench, number)["prediction"] > 60 > 10 > proposed(bench, number).get("draft", 0)
    estimates = bench.engine.policy.estimates(DraftKey("math"), b"math#1", 1.0)
    untold = DraftPolicy().estimates(DraftKey("math"), b"", 1.0).acceptance.expected(2)[-1].tokens
    assert (estimates.acceptance.expected(2)[-1].tokens > untold) == better


def test_no_draft_is_waited_for_where_a_better_proposal_is_there() -> None:
    asked, waited = request(200), []
    for one in (asked, predicted(asked, plain_tokens(asked))):
        simulation = Simulation(VerifyConfig(num_speculative_tokens=6))
        simulation.join(simulation.draft(PASS / 3), simulation.generate(one), one)
        simulation.run()
        waited.append(simulation.target.engine.counts["waiting_us"])
    assert waited[1] < 0.2 * waited[0]
