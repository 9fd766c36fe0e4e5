"""Drafts in service beside their replay: a sound one does what its replay says, and a broken one does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from core.draft.engine import DraftConfig
from core.generation import GenerationRequest
from core.model.base import Rows
from core.replay.decay import FEWEST, MARGIN, WINDOW, Agreement, DecayWatch, DraftedAnswer, DraftedPass, agreement
from core.sampling.params import SamplingParams
from core.traces.record import Record
from tests.core.pair import LAWS, Pair, opened
from tests.core.simulation import VERIFIER
from tests.core.toy import PROMPT, VOCAB_SIZE, ToyModel

IDS = VOCAB_SIZE


def draft_model(context: int = 4096) -> ToyModel:
    """A model that often agrees with the target, and often does not."""
    model = ToyModel(context=context)
    noise = 0.7 * torch.randn(model._table.shape, generator=torch.Generator().manual_seed(1))
    model._table = model._table + noise
    return model


class BrokenCache(ToyModel):
    """What it reads into its cache beyond one token at a time is another text."""

    def forward(self, batch: Sequence[Rows]) -> torch.Tensor:
        return super().forward(
            [rows._replace(tokens=[5] * (len(rows.tokens) - 1) + [rows.tokens[-1]]) for rows in batch]
        )


@dataclass
class Drafted:
    """What a draft proposed for one answer."""

    request: GenerationRequest
    tokens: list[int] = field(default_factory=list)
    passes: list[DraftedPass] = field(default_factory=list)

    @property
    def answer(self) -> DraftedAnswer:
        return DraftedAnswer(Record.of(self.request, tuple(self.tokens)), tuple(self.passes), "math", None)


def asked(count: int, max_tokens: int = 40, **law: Any) -> list[GenerationRequest]:
    params = [SamplingParams(**{"seed": seed, "max_tokens": max_tokens, **law}) for seed in range(count)]
    prompts = [(*PROMPT, seed % VOCAB_SIZE) for seed in range(count)]
    return [
        GenerationRequest(tokens=prompt, prompt_length=len(prompt), params=one)
        for prompt, one in zip(prompts, params, strict=True)
    ]


def served(model: ToyModel, requests: Sequence[GenerationRequest], ahead: int = 4) -> list[DraftedAnswer]:
    """The answers that a verifier gave with this draft."""
    pair = Pair(model, DraftConfig())
    drafted: dict[int, Drafted] = {}
    for request in requests:
        [number] = pair.verifier.open([request])
        pair.draft.open(opened(request, number, ahead=ahead), VERIFIER)
        drafted[number] = Drafted(request)
    while pair.verifier.gauges()["sessions"]:
        while pair.draft.drafting:
            pair.draft.step()
        for _, proposal in pair.draft.outgoing():
            pair.verifier.receive(b"math#1", proposal)
        pair.clock.now += 0.01
        for number, run in pair.verifier.step():
            if run.proposed:
                passes = drafted[number].passes
                passes.append(DraftedPass(len(drafted[number].tokens), run.proposed, run.accepted))
            drafted[number].tokens += run.tokens
        for _, message in pair.verifier.outgoing():
            pair.draft.receive(VERIFIER, message)
    return [each.answer for each in drafted.values()]


def total(answers: Sequence[DraftedAnswer], model: ToyModel) -> Agreement:
    agreements = [agreement(model, IDS, answer) for answer in answers]
    return Agreement(*map(sum, zip(*agreements, strict=True)))


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("ahead", [1, 4, 11])
def test_a_sound_draft_does_in_service_exactly_what_its_replay_says(law: dict[str, Any], ahead: int) -> None:
    """Answer by answer, whatever is drafted ahead, and however long proposals are."""
    answers = served(draft_model(), asked(12, **law), ahead)
    for answer in answers:
        found = agreement(draft_model(), IDS, answer)
        assert found.accepted == found.replayed
    whole = total(answers, draft_model())
    assert 0 < whole.accepted < whole.judged


def test_an_answer_beyond_the_drafts_context_is_compared_within_it() -> None:
    model = draft_model(context=32)
    answers = served(model, asked(8, max_tokens=60))
    whole = total(answers, draft_model(context=32))
    assert 0 < whole.judged < total(answers, draft_model()).judged
    assert whole.accepted == whole.replayed


def test_a_draft_with_a_broken_cache_does_less_than_its_replay_says() -> None:
    broken = BrokenCache()
    broken._table = draft_model()._table
    whole = total(served(broken, asked(30)), draft_model())
    assert whole.replayed - whole.accepted > MARGIN * whole.judged


def test_a_draft_with_other_weights_does_less_than_its_replay_says() -> None:
    whole = total(served(ToyModel(salt=9), asked(30)), draft_model())
    assert whole.replayed - whole.accepted > 10 * MARGIN * whole.judged


def test_harder_traffic_raises_no_alarm_and_a_gap_does_once_there_are_enough_answers() -> None:
    watch = DecayWatch()
    for number, accepted in enumerate([9] * WINDOW + [1] * WINDOW):
        watch.add("math", Agreement(10, accepted, accepted))
        assert number % 7 or not watch.record("math").decayed
    for number in range(1, WINDOW + 1):
        watch.add("english", Agreement(10, 1, 6))
        assert watch.record("english").decayed == (number >= FEWEST)
    assert watch.record("english").gap.value == pytest.approx(0.5)


def test_rounding_that_flips_a_token_now_and_then_raises_no_alarm() -> None:
    watch = DecayWatch()
    for number in range(200):
        watch.add("math", Agreement(10, 5, 5 + (number % 20 == 0) - (number % 20 == 10)))
        assert number % 7 or not watch.record("math").decayed


def test_a_draft_that_was_restarted_is_well_again_after_a_window() -> None:
    watch = DecayWatch()
    for _ in range(WINDOW):
        watch.add("math", Agreement(10, 1, 6))
    assert watch.record("math").decayed
    for _ in range(WINDOW):
        watch.add("math", Agreement(10, 6, 6))
    assert not watch.record("math").decayed
    assert watch.record("nothing") is None
