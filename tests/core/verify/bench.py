"""A verify engine over a toy target that writes down every pass and every run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from core.generation import Run
from core.model.base import Rows
from core.verify.engine import VerifyConfig, VerifyEngine
from core.wire.messages import Propose
from tests.core.toy import Clock, ToyModel, ToyVocabulary


class Bench:
    """The engine, what it computed and what came out of it."""

    def __init__(
        self,
        config: VerifyConfig | None = None,
        *,
        context: int = 4096,
        eos_ids: Sequence[int] = (),
        num_pages: int = 2048,
    ) -> None:
        self.clock = Clock()
        self.model = ToyModel(context=context, num_pages=num_pages)
        self.model.on_forward = lambda batch: self.passes.append(list(batch))
        self.passes: list[list[Rows]] = []
        self.runs: dict[int, list[Run]] = defaultdict(list)
        self.engine = VerifyEngine(self.model, ToyVocabulary(eos_ids), config or VerifyConfig(), self.clock)

    def step(self) -> None:
        for number, run in self.engine.step():
            self.runs[number].append(run)

    def finish(self) -> None:
        while self.sessions:
            self.step()

    @property
    def sessions(self) -> int:
        return self.engine.gauges()["sessions"]

    @property
    def computed(self) -> int:
        """Rows of all passes so far."""
        return sum(len(rows.tokens) for batch in self.passes for rows in batch)

    def tokens(self, number: int) -> tuple[int, ...]:
        return tuple(token for run in self.runs[number] for token in run.tokens)

    def propose(self, number: int, base: int, tokens: Sequence[int], epoch: int = 0, peer: bytes = b"math#1") -> None:
        self.engine.receive(peer, Propose(number, epoch, base, tuple(tokens)))
