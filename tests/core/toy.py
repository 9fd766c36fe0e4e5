"""A language model small enough to think about: the last three tokens pick a row of a table, and that is the logits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import tokenizers
import torch
from msgspec import structs

from core.errors import OutOfPages
from core.generation import GenerationRequest, Run
from core.model.base import Rows, one_by_one
from core.model.draft_tokens import DraftToken, StopRule
from core.model.pages import PAGE_SIZE, PagePool
from core.sampling.params import SamplingParams
from core.verify.engine import VerifyConfig, VerifyEngine

VOCAB_SIZE = 24
PROMPT = (1, 2, 3, 4, 5)
ROWS = 1009


class ToyModel:
    """Models with the same salt are equal; `on_forward` sees every pass.

    A page holds its tokens where another model's would hold keys, and logits follow from what the pages hold; `cached`
    says what they ought to hold.
    """

    vocab_size = VOCAB_SIZE
    head_ids: torch.Tensor | None = None
    device = torch.device("cpu")

    def __init__(
        self,
        salt: int = 0,
        context: int = 4096,
        sharpness: float = 1.5,
        num_pages: int = 2048,
        *,
        loops: bool = False,
    ) -> None:
        self.context = context
        self.loops = loops
        self.cached: dict[int, list[int]] = {}
        self.on_forward: Callable[[Sequence[Rows]], None] = lambda _: None
        self._salt = salt
        self._table = torch.randn(ROWS, VOCAB_SIZE, generator=torch.Generator().manual_seed(7)) * sharpness
        self._pool = PagePool(num_pages)
        self._held: dict[int, list[int]] = defaultdict(lambda: [-1] * PAGE_SIZE)  # by page

    @property
    def num_used_pages(self) -> int:
        return self._pool.num_pages - self._pool.num_free

    @property
    def num_free_pages(self) -> int:
        return self._pool.num_free

    @property
    def num_prefix_pages(self) -> int:
        return self._pool.num_prefix

    def open(self, session: int) -> None:
        self._pool.open(session)
        self.cached[session] = []

    def fork(self, source: int, session: int) -> None:
        self._pool.fork(source, session)
        self.cached[session] = list(self.cached[source])

    def num_cached(self, session: int) -> int:
        return len(self.cached[session])

    def forward(self, batch: Sequence[Rows]) -> torch.Tensor:
        for source, target in self._pool.extend([(rows.session, len(rows.tokens)) for rows in batch]):
            self._held[target] = list(self._held[source])
        self.on_forward(batch)
        rows: list[int] = []
        for session, tokens, num_logits in batch:
            for index, token in enumerate(tokens):
                self._append(session, token)
                if index >= len(tokens) - num_logits:
                    rows.append(self._row(self._last(session)))
        return self._table[rows]

    def draw(
        self, batch: Sequence[Rows], steps: int, num_ids: int, noise: torch.Tensor | None, ending: StopRule
    ) -> list[list[DraftToken]]:
        rows = max(len(rows.tokens) for rows in batch) + steps
        if self.loops and self._pool.num_free < len(batch) * -(-rows // PAGE_SIZE):
            raise OutOfPages
        return one_by_one(self, batch, steps, num_ids, noise, StopRule.never(len(batch)) if self.loops else ending)

    def store_prefix(self, session: int, tokens: Sequence[int]) -> None:
        self._pool.store_prefix(session, tokens)

    def lookup_prefix(self, session: int, tokens: Sequence[int]) -> int:
        gained = self._pool.lookup_prefix(session, tokens)
        known = len(self.cached[session])
        self.cached[session] += tokens[known : known + gained]
        return gained

    def rollback(self, session: int, length: int) -> None:
        self._pool.rollback(session, length)
        del self.cached[session][length:]

    def close(self, session: int) -> None:
        self._pool.close(session)
        self.cached.pop(session, None)

    def _append(self, session: int, token: int) -> None:
        page, place = divmod(len(self.cached[session]), PAGE_SIZE)
        self._held[self._pool.pages(session)[page]][place] = token
        self.cached[session].append(token)
        assert len(self.cached[session]) <= self.context

    def _last(self, session: int) -> list[int]:
        pages, length = self._pool.pages(session), len(self.cached[session])
        places = range(max(0, length - 3), length)
        return [self._held[pages[place // PAGE_SIZE]][place % PAGE_SIZE] for place in places]

    def _row(self, last: Sequence[int]) -> int:
        value = self._salt
        for token in last:
            value = value * 31 + token + 1
        return value % ROWS


class ToyVocabulary:
    """No text and no end of sequence unless given."""

    def __init__(self, eos_ids: Sequence[int] = ()) -> None:
        self.raw = tokenizers.Tokenizer(tokenizers.models.BPE())
        self.eos_ids = eos_ids
        self.num_valid = VOCAB_SIZE


class Clock:
    """Time that moves when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def request(
    max_tokens: int = 40, *, tokens: Sequence[int] = PROMPT, seed: int = 3, choice: int = 0, temperature: float = 1.0
) -> GenerationRequest:
    params = SamplingParams(seed=seed, max_tokens=max_tokens, temperature=temperature)
    return GenerationRequest(tokens=tuple(tokens), prompt_length=len(tokens), params=params, choice=choice)


def plain_tokens(asked: GenerationRequest, salt: int = 0, context: int = 4096) -> tuple[int, ...]:
    """What the target answers when nothing is ever proposed."""
    engine = VerifyEngine(ToyModel(salt, context), ToyVocabulary(), VerifyConfig(), Clock())
    engine.open([structs.replace(asked, num_speculative_tokens=0)])
    runs: list[Run] = []
    while engine.gauges()["sessions"]:
        runs += [run for _, run in engine.step()]
    return tuple(token for run in runs for token in run.tokens)
