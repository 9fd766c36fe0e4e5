"""What masks add to a target pass: the same tokens with a mask and without, pass by pass in turns, on one model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from time import perf_counter, process_time
from typing import NamedTuple

import torch
from msgspec import structs

from core.model.base import Model
from core.text.tokenizer import Tokenizer
from core.verify.batch import ScheduledRows
from core.verify.engine import VerifyConfig, VerifyEngine, _Drawn
from core.verify.sources import DRAFTS_ALONE
from core.wire.messages import Propose
from tests.bench.paired import Durations, rotated
from tests.bench.structured_requests import Question

MASKED, FREE, KNOWING = "with a mask", "without", "without, where others had masks"
AHEAD = (0, 7)  # tokens proposed for a pass; every row has a mask


class Taken(NamedTuple):
    """Seconds of a pass: on the clock, and of the processor, which others' work on the machine does not stretch."""

    clock: float
    processor: float


class Timed(NamedTuple):
    """Seconds of a pass by answer: the median on the clock, and the mean of the processor's, with rare slow masks."""

    clock: Durations
    processor: Durations


class Told(VerifyEngine):
    """Draws as any engine does, and then says what it is told: so a free answer goes the way of a masked one."""

    def __init__(self, model: Model, tokenizer: Tokenizer, ahead: int) -> None:
        config = VerifyConfig(num_speculative_tokens=ahead, lookup=DRAFTS_ALONE)
        super().__init__(model, tokenizer, config, lambda: 0.0)
        self.said: Sequence[int] = ()
        self._ahead = ahead
        self._number = 0

    def begin(self, question: Question, said: Sequence[int], *, masked: bool) -> None:
        """Read the prompt and say the first token."""
        params = structs.replace(question.request.params, max_tokens=len(said))
        if not masked:
            params = structs.replace(params, grammar="")
        self.said = said
        [self._number] = self.open([structs.replace(question.request, params=params)])
        while not (session := self._sessions.get(self._number)) or not session.chain.num_generated:
            self.step()

    def timed_pass(self) -> Taken | None:
        """The next pass; None when the answer is complete."""
        session = self._sessions.get(self._number)
        if session is None:
            return None
        if self._ahead:
            at = session.chain.num_generated
            self.receive(b"told#1", Propose(self._number, 0, session.length, tuple(self.said[at : at + self._ahead])))
        began, computed = perf_counter(), process_time()
        self.step()
        return Taken(perf_counter() - began, process_time() - computed)

    def _draw(
        self, drawn: Sequence[_Drawn], feeds: Sequence[ScheduledRows], logits: torch.Tensor
    ) -> tuple[list[_Drawn], list[list[int]]]:
        sessions, tokens = super()._draw(drawn, feeds, logits)
        for one, drawn_tokens in zip(sessions, tokens, strict=True):
            begin = one.session.chain.num_generated
            known = self.said[begin : begin + len(drawn_tokens)]
            drawn_tokens[: len(known)] = known
        return sessions, tokens


def measure(
    model: Model, tokenizer: Tokenizer, answered: Sequence[tuple[Question, Sequence[int]]], ahead: int
) -> Iterator[Timed]:
    """Passes with `ahead` proposed tokens each; what is known after each answer."""
    engines = {name: Told(model, tokenizer, ahead) for name in (MASKED, FREE, KNOWING)}
    timed = Timed(Durations(), Durations())
    for item, (question, said) in enumerate(answered):
        engines[KNOWING].grammars.begin(question.request.params.grammar)
        for name, engine in engines.items():
            engine.begin(question, said, masked=name == MASKED)
        taken: dict[str, list[Taken]] = {name: [] for name in engines}
        for turn in range(len(said)):
            for name in rotated(list(engines), turn):
                if one := engines[name].timed_pass():
                    taken[name].append(one)
        if len({len(passes) for passes in taken.values()}) > 1:
            raise SystemExit(f"passes of unlike number: {question.of}")
        for name, passes in taken.items():
            if passes:
                timed.clock.add(name, item, median(one.clock for one in passes))
                timed.processor.add(name, item, sum(one.processor for one in passes), len(passes))
        yield timed
