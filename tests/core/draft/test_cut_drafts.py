"""Drafts with a draft vocabulary: only its tokens are proposed, and the answers are the target's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
import torch

from core.draft.engine import DraftConfig, DraftEngine
from core.errors import ConfigError
from core.model.base import Rows
from core.wire.messages import Propose
from tests.core.pair import LAWS, opened
from tests.core.simulation import PASS, VERIFIER, Simulation
from tests.core.toy import VOCAB_SIZE, Clock, ToyModel, plain_tokens, request

LISTED = [token for token in range(VOCAB_SIZE) if token % 4]
LOOPS = pytest.mark.parametrize("loops", [False, True], ids=["one by one", "loops"])


class Cut(ToyModel):
    """The target itself, with logits of some ids only."""

    def __init__(self, ids: Sequence[int] = LISTED, *, loops: bool = False) -> None:
        super().__init__(loops=loops)
        self.head_ids = torch.tensor(ids)

    def forward(self, batch: Sequence[Rows]) -> torch.Tensor:
        return super().forward(batch)[:, self.head_ids]


def proposals(engine: DraftEngine) -> list[Propose]:
    while engine.drafting:
        engine.step()
    return [message for _, message in engine.outgoing()]


@LOOPS
@pytest.mark.parametrize("law", LAWS)
def test_it_proposes_the_targets_tokens_up_to_one_that_is_not_listed(law: dict[str, Any], loops: bool) -> None:
    """Filters see fewer tokens and may pass others, so they are left out."""
    unfiltered = {key: value for key, value in law.items() if key not in ("top_k", "top_p", "min_p")}
    reached = 0
    for seed in range(30):
        asked = request(60, seed=seed)
        asked = msgspec.structs.replace(asked, params=msgspec.structs.replace(asked.params, **unfiltered))
        engine = DraftEngine(Cut(loops=loops), VOCAB_SIZE, DraftConfig(), Clock())
        engine.open(opened(asked, ahead=8, lookahead=False), VERIFIER)
        [proposal] = proposals(engine)
        answer = plain_tokens(asked)[:8]
        same = next((at for at, token in enumerate(answer) if token not in LISTED), 8)
        assert proposal.tokens[:same] == answer[:same]
        assert set(proposal.tokens) <= set(LISTED)
        reached += same
    assert reached >= 30


@LOOPS
@pytest.mark.parametrize("lookahead", [False, True])
@pytest.mark.parametrize("law", LAWS)
def test_answers_are_those_without_speculation(law: dict[str, Any], lookahead: bool, loops: bool) -> None:
    simulation = Simulation()
    draft = simulation.draft(PASS / 20, Cut(loops=loops))
    answers = {}
    for seed in range(3):
        asked = request(60, seed=seed)
        asked = msgspec.structs.replace(asked, params=msgspec.structs.replace(asked.params, **law))
        number = simulation.generate(asked)
        simulation.join(draft, number, asked, lookahead=lookahead)
        answers[number] = plain_tokens(asked)
    simulation.run()
    for number, answer in answers.items():
        assert tuple(token for run in simulation.target.runs[number] for token in run.tokens) == answer
    assert simulation.target.engine.counts["accepted"] > 10
    assert draft.engine.gauges()["pages"] == 0


def test_tokens_that_the_tokenizer_lacks_are_never_proposed() -> None:
    with pytest.raises(ConfigError, match="none of the 4 ids"):
        DraftEngine(Cut([4, 5, 6]), 4, DraftConfig(), Clock())
    engine = DraftEngine(Cut(), 6, DraftConfig(), Clock())
    engine.open(opened(request(60), ahead=8, lookahead=False), VERIFIER)
    assert set(proposals(engine)[0].tokens) <= {1, 2, 3, 5}
