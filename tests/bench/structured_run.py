"""Who proposes in `structured`, and all answers with each of them: one thread, no wire, a clock that tells passes.

Every pass takes the same time on that clock, so rows cost nothing and all that is guessed is proposed. Drafts have all
the time they need. So the counts are the same on every machine, and a draft is asked for all it may propose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import Any, NamedTuple, Protocol

from msgspec import structs

from core.draft.engine import DraftConfig, DraftEngine
from core.grammar.matching import GrammarState
from core.model.base import Model
from core.text.tokenizer import Tokenizer
from core.verify.engine import VerifyConfig, VerifyEngine
from core.verify.sources import DEFAULT, DRAFTS_ALONE, SourceOptions
from core.wire.messages import Address, Close, Commit, OpenSession, Propose
from tests.bench.structured_requests import Question

PASS = 0.01  # seconds on the clock
_VERIFIER = b"verifier"
_MOST_RIGHT = 5  # tokens before a hostile draft's first wrong one
_HOSTILE_TOKENS = 16

PLAIN = "plain decoding"
GRAMMAR_ALONE: SourceOptions = {"grammar": {}}
EVERYTHING: SourceOptions = {**DEFAULT, "answers": {"without_owner": True}}
ALL_BUT_GRAMMAR = {name: options for name, options in EVERYTHING.items() if name != "grammar"}


class Contender(NamedTuple):
    """A row of the table: what is looked up, whose draft proposes, at most how many tokens.

    With `capped` the other sources may propose no more, either. `killed` drafts are gone after half of an answer.
    """

    name: str
    lookup: SourceOptions
    draft: str = ""
    length: int = 7
    capped: bool = False
    killed: bool = False


OWN, OTHER, HOSTILE = "own", "another task's", "hostile"
CONTENDERS = (
    Contender(PLAIN, DRAFTS_ALONE, length=0, capped=True),
    Contender("grammar alone", GRAMMAR_ALONE),
    Contender("own text and earlier answers", ALL_BUT_GRAMMAR),
    Contender("the same and grammar", EVERYTHING),
    Contender("own draft, k = 1", EVERYTHING, OWN, length=1, capped=True),
    Contender("own draft, k = 7, without grammar", ALL_BUT_GRAMMAR, OWN),
    Contender("own draft, k = 7", EVERYTHING, OWN),
    Contender("another task's draft, k = 7", EVERYTHING, OTHER),
    Contender("hostile draft, k = 16", DRAFTS_ALONE, HOSTILE, length=16),
    Contender("own draft, killed half way", EVERYTHING, OWN, killed=True),
)
WITHOUT_GRAMMAR = {  # the contender that differs in nothing else
    "grammar alone": PLAIN,
    "the same and grammar": "own text and earlier answers",
    "own draft, k = 7": "own draft, k = 7, without grammar",
}


@dataclass
class Answer:
    """`passes` are those of the target that committed something; tokens by source that were `proposed` or `accepted`.

    `reason` is why it ended: stop, length, or what was wrong.
    """

    tokens: list[int] = field(default_factory=list)
    reason: str = ""
    passes: int = 0
    proposed: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)


class Draft(Protocol):
    """What proposes for sessions of an engine."""

    def join(self, number: int, question: Question) -> None: ...
    def leave(self, number: int) -> None: ...
    def propose(self) -> Iterator[tuple[bytes, Propose]]: ...
    def hear(self, messages: Sequence[tuple[bytes, Commit | Close]]) -> None: ...


class NoDraft:
    def join(self, number: int, question: Question) -> None: ...
    def leave(self, number: int) -> None: ...
    def propose(self) -> Iterator[tuple[bytes, Propose]]:
        return iter(())

    def hear(self, messages: Sequence[tuple[bytes, Commit | Close]]) -> None: ...


class ModelDraft:
    """A draft engine; one that is `misled` has read the prompts backwards."""

    def __init__(
        self, model: Model[Any], num_valid: int, length: int, clock: Callable[[], float], *, misled: bool = False
    ) -> None:
        self._engine = DraftEngine(model, num_valid, DraftConfig(), clock)
        self._length = length
        self._misled = misled

    def join(self, number: int, question: Question) -> None:
        asked = question.request
        opened = OpenSession(
            session=number,
            epoch=0,
            verifier=Address("", ""),
            tokens=asked.tokens[::-1] if self._misled else asked.tokens,
            prompt_length=asked.prompt_length,
            params=asked.params,
            choice=asked.choice,
            num_speculative_tokens=self._length,
            lookahead=False,
        )
        self._engine.open(opened, _VERIFIER)

    def leave(self, number: int) -> None:
        self._engine.close(number)

    def propose(self) -> Iterator[tuple[bytes, Propose]]:
        while self._engine.drafting:
            self._engine.step()
        return ((b"draft#1", proposal) for _, proposal in self._engine.outgoing())

    def hear(self, messages: Sequence[tuple[bytes, Commit | Close]]) -> None:
        for _, message in messages:
            self._engine.receive(_VERIFIER, message)


class HostileDraft:
    """It knows the answers, goes on rightly, then with a token that the grammar allows and is wrong, then with any."""

    def __init__(self, engine: VerifyEngine, num_valid: int, truths: Mapping[int, Sequence[int]]) -> None:
        self._engine = engine
        self._ids = range(num_valid)
        self._truths = truths
        self._random = Random(0)
        self._asked: dict[int, Question] = {}

    def join(self, number: int, question: Question) -> None:
        self._asked[number] = question

    def leave(self, number: int) -> None:
        self._asked.pop(number, None)

    def propose(self) -> Iterator[tuple[bytes, Propose]]:
        for number, question in list(self._asked.items()):
            session = self._engine._sessions.get(number)
            if session is None:
                del self._asked[number]
                continue
            truth, at = self._truths[question.request.params.seed], session.chain.num_generated
            right = list(truth[at : at + self._random.randrange(_MOST_RIGHT)])
            tokens = right + self._wrong(session.grammar, right) + self._random.choices(self._ids, k=_HOSTILE_TOKENS)
            yield b"hostile#1", Propose(number, 0, session.length, tuple(tokens[:_HOSTILE_TOKENS]))

    def hear(self, messages: Sequence[tuple[bytes, Commit | Close]]) -> None: ...

    def _wrong(self, grammar: GrammarState | None, right: Sequence[int]) -> list[int]:
        """A token that may follow, mostly not the one that will."""
        if grammar is None or grammar.valid(right) < len(right):
            return []
        [allowed] = grammar.allowed(right)[-1].nonzero()
        return [int(self._random.choice(allowed))] if len(allowed) else []


class Answering:
    """All questions with one contender, so many at a time."""

    def __init__(
        self,
        target: Model,
        tokenizer: Tokenizer,
        drafts: Mapping[str, Model[Any]],
        contender: Contender,
        truths: Mapping[int, Sequence[int]],
        streams: int,
    ) -> None:
        self._now = 0.0
        self._contender = contender
        self._truths = truths
        self._streams = streams
        config = VerifyConfig(
            max_sessions=streams, num_speculative_tokens=contender.length, draft_lease=1e9, lookup=contender.lookup
        )
        self._engine = VerifyEngine(target, tokenizer, config, lambda: self._now)
        self._draft: Draft = NoDraft()
        if contender.draft == HOSTILE:
            self._draft = HostileDraft(self._engine, tokenizer.num_valid, truths)
        elif contender.draft:
            misled = contender.draft not in drafts  # there is no other, so this one is led astray
            model = drafts[OWN if misled else contender.draft]
            length = contender.length
            self._draft = ModelDraft(model, tokenizer.num_valid, length, lambda: self._now, misled=misled)

    def answer(self, asked: Sequence[Question]) -> Iterator[tuple[Question, Answer]]:
        """As they end."""
        waiting = iter(asked)
        running: dict[int, tuple[Question, Answer]] = {}
        while True:
            for question in islice(waiting, self._streams - len(running)):
                running[self._open(question)] = question, Answer()
            if not running:
                return
            yield from self._pass(running)

    def _open(self, question: Question) -> int:
        most = self._contender.length if self._contender.capped else None
        [number] = self._engine.open([structs.replace(question.request, num_speculative_tokens=most)])
        self._draft.join(number, question)
        return number

    def _pass(self, running: dict[int, tuple[Question, Answer]]) -> Iterator[tuple[Question, Answer]]:
        for peer, proposal in self._draft.propose():
            self._engine.receive(peer, proposal)
        self._now += PASS
        runs = self._engine.step()
        self._draft.hear(self._engine.outgoing())
        for number, run in runs:
            question, answer = running[number]
            answer.tokens += run.tokens
            answer.passes += 1
            answer.proposed[run.source] += run.proposed
            answer.accepted[run.source] += run.accepted
            answer.reason = run.finish_reason or ""
            if answer.reason:
                yield running.pop(number)
            elif self._contender.killed and 2 * len(answer.tokens) >= len(self._truths[question.request.params.seed]):
                self._draft.leave(number)
        for number, failure in self._engine.failures():
            question, answer = running.pop(number)
            answer.reason = str(failure)
            yield question, answer
