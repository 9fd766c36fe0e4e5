"""A verifier and a draft engine joined by a wire without faults, and the requests that they are tried on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.draft.engine import DraftConfig, DraftEngine
from core.generation import GenerationRequest
from core.verify.engine import VerifyConfig, VerifyEngine
from core.verify.sources import DRAFTS_ALONE
from core.wire.messages import Address, OpenSession
from tests.core.simulation import VERIFIER
from tests.core.toy import VOCAB_SIZE, Clock, ToyModel, ToyVocabulary

LAWS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.0},
    {"presence_penalty": 1.5, "frequency_penalty": 0.8},
    {"logit_bias": {3: 4.0, 7: -100.0}},
    {"presence_penalty": -1.0, "logit_bias": {5: 2.0}, "temperature": 0.7, "top_k": 6, "top_p": 0.8, "min_p": 0.05},
    {"frequency_penalty": 2.0, "temperature": 0.0},
]


def opened(
    asked: GenerationRequest,
    session: int = 1,
    tokens: Sequence[int] | None = None,
    epoch: int = 0,
    ahead: int = 4,
    *,
    lookahead: bool = True,
) -> OpenSession:
    return OpenSession(
        session=session,
        epoch=epoch,
        verifier=Address("", ""),
        tokens=asked.tokens if tokens is None else tuple(tokens),
        prompt_length=asked.prompt_length,
        params=asked.params,
        choice=asked.choice,
        num_speculative_tokens=ahead,
        lookahead=lookahead,
    )


class Pair:
    """A verifier and a draft joined by a wire without faults; every round the draft has all the time it needs."""

    def __init__(self, model: ToyModel, config: DraftConfig | None = None) -> None:
        self.clock = Clock()
        self.verifier = VerifyEngine(ToyModel(), ToyVocabulary(), VerifyConfig(lookup=DRAFTS_ALONE), self.clock)
        self.model = model
        self.draft = DraftEngine(model, VOCAB_SIZE, config or DraftConfig(), self.clock)

    def generate(self, asked: Sequence[GenerationRequest], ahead: int = 4) -> None:
        for one in asked:
            [number] = self.verifier.open([one])
            self.draft.open(opened(one, number, ahead=ahead), VERIFIER)
        while self.verifier.gauges()["sessions"]:
            self.round()
        self.round()

    def round(self) -> None:
        while self.draft.drafting:
            self.draft.step()
        for _, proposal in self.draft.outgoing():
            self.verifier.receive(b"math#1", proposal)
        self.clock.now += 0.01
        self.verifier.step()
        for _, message in self.verifier.outgoing():
            self.draft.receive(VERIFIER, message)
