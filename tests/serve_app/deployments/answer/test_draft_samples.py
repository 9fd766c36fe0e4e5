"""Which answers an ingress replica hands to the check of drafts, and when."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import msgspec

from core.generation import GenerationRequest, Run
from core.replay.decay import DraftedAnswer, DraftedPass
from core.sampling.params import SamplingParams
from serve_app.config import load_config
from serve_app.deployments.answer.draft_samples import EVERY, PATIENCE, SAMPLES, DraftSamples
from serve_app.deployments.answer.generation import Generation
from serve_app.deployments.models.served_models import ServedModels
from serve_app.http.service import ChoiceRun
from tests.core.toy import Clock

SERVED = ServedModels(load_config("family"), drafts={"general": None, "math": "/parts/feed"})
REQUEST = GenerationRequest(tokens=(5, 6), prompt_length=2, params=SamplingParams(seed=5, max_tokens=9))
RUNS = [
    ("math", Run((1,))),
    ("math", Run((2, 3, 4), proposed=4, accepted=2)),
    ("math", Run((5, 6), proposed=3, accepted=1, source="own_text")),
    ("math", Run((7,), proposed=2, accepted=0, finish_reason="stop")),
]


class Check:
    """As the handle of the check, which fails as often."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.taken: list[list[DraftedAnswer]] = []
        self.take = SimpleNamespace(remote=self._take)

    async def _take(self, answers: list[DraftedAnswer]) -> None:
        if self.failures:
            self.failures -= 1
            raise TimeoutError
        self.taken.append(answers)


def samples(check: Check, clock: Clock) -> DraftSamples:
    made = DraftSamples(clock)
    made._check = check
    return made


def generation(runs: list[tuple[str, Run]] = RUNS, request: GenerationRequest = REQUEST) -> Generation:
    made = Generation([request])
    for task, run in runs:
        made.ledger.add(ChoiceRun(0, run, task))
    return made


def offered(*generations: Generation) -> list[DraftedAnswer]:
    made = DraftSamples()
    for each in generations:
        made.offer(each, 0, SERVED)
    return made._sample.items


async def handed(made: DraftSamples) -> None:
    made.hand_over()
    if made._handing is not None:
        await made._handing


def test_an_answer_is_sampled_with_the_passes_that_its_draft_proposed_for() -> None:
    [answer] = offered(generation())
    assert (answer.task, answer.directory) == ("math", "/parts/feed")
    assert answer.record.output_ids == (1, 2, 3, 4, 5, 6, 7)
    assert answer.passes == (DraftedPass(1, 4, 2), DraftedPass(6, 2, 0))


def test_an_answer_that_another_service_had_begun_counts_from_its_beginning() -> None:
    resumed = msgspec.structs.replace(REQUEST, tokens=(5, 6, 8, 9))
    [answer] = offered(generation(request=resumed))
    assert answer.record.output_ids == (8, 9, 1, 2, 3, 4, 5, 6, 7)
    assert answer.passes == (DraftedPass(3, 4, 2), DraftedPass(8, 2, 0))


def test_others_are_not_sampled() -> None:
    moved = [*RUNS[:2], ("general", RUNS[3][1])]
    undrafted = [RUNS[0], RUNS[2]]
    unknown = [("gone", run) for _, run in RUNS]
    private = msgspec.structs.replace(REQUEST, store=False)
    assert not offered(generation(moved), generation(undrafted), generation(unknown), generation(request=private))


def test_of_many_answers_a_few_are_sampled() -> None:
    assert len(offered(*(generation() for _ in range(10 * SAMPLES)))) == SAMPLES


async def test_they_are_handed_over_every_few_seconds() -> None:
    check, clock = Check(), Clock()
    made = samples(check, clock)
    await handed(made)  # nothing
    for second, number in ((0.0, 1), (EVERY / 2, 1), (EVERY, 2)):
        clock.now = second
        made.offer(generation(), 0, SERVED)
        await handed(made)
        assert len(check.taken) == number
    assert [len(answers) for answers in check.taken] == [1, 2]


async def test_a_check_that_does_not_answer_is_left_alone_for_a_while() -> None:
    check, clock = Check(failures=1), Clock()
    made = samples(check, clock)
    for second, number in ((0.0, 0), (EVERY, 0), (PATIENCE, 1)):
        clock.now = second
        made.offer(generation(), 0, SERVED)
        await handed(made)
        assert len(check.taken) == number


async def test_handing_over_returns_at_once() -> None:
    clock, waiting = Clock(), asyncio.Event()

    class Slow(Check):
        async def _take(self, answers: list[DraftedAnswer]) -> None:
            await waiting.wait()
            await super()._take(answers)

    check = Slow()
    made = samples(check, clock)
    made.offer(generation(), 0, SERVED)
    made.hand_over()
    made.hand_over()
    assert not check.taken
    waiting.set()
    assert made._handing is not None
    await made._handing
    assert len(check.taken) == 1
