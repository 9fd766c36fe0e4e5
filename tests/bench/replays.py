"""What every draft would have done for an answer: the target answers, the router chooses, all drafts are replayed.

Enters: prompts. Leaves: trials, each with the exact counts of every draft on one answer. No clock is read: a replay is
of serial drafting, with as many tokens proposed for every pass as there may be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from rich.progress import Progress

from core.acceptance import Acceptance, Terms, score
from core.answering import answer
from core.bundle import Bundle
from core.classifier import TaskClassifier
from core.classifier_training import winner
from core.family import DRAFT_DIR, TARGET_DIR
from core.generation import GenerationRequest
from core.model.causal_lm import CausalLM, load_model
from core.record import Record
from core.sampling_params import SamplingParams
from core.tokenizer import load_tokenizer
from tests.bench.items import GENERAL, GENERAL_SLOT, MIXED, live_bundle
from tests.bench.stress import Prompt

TEMPERATURES = (0.0, 1.0)
_SESSIONS, _PAGES = 32, 16  # answers at a time; pages of 64 tokens in a context


@dataclass(frozen=True)
class Trial:
    """One answer: the pool its prompt was routed to, those of its parts asked alone, and the counts of every draft.

    `pools` are all it could have been routed to; the controls are counted beside them.
    """

    prompt: Prompt
    temperature: float
    pools: tuple[str, ...]
    routed: str
    request: str
    other: str | None
    counts: dict[str, Acceptance] = field(default_factory=dict)


class Drafts:
    """The shipped bundle's drafts: a pool for each task and one for the general slot, and the two controls."""

    def __init__(self, bundle: Bundle) -> None:
        slots = bundle.manifest.slots
        self.pools: Mapping[str, Path | None] = {_pool(slot): bundle.directory(slot) for slot in slots}
        self.all = dict(self.pools) | {GENERAL: None, MIXED: bundle.control(MIXED)}
        self.general_slot = slots[GENERAL].decision
        if bundle.router is None:
            raise SystemExit("the shipped bundle has no router, so there is nothing to stress")
        self._router = TaskClassifier.load(bundle.router)

    def route(self, tokens: Sequence[int]) -> str:
        """The pool of the router's first choice."""
        return _pool(winner(self._router, tokens))


def _pool(slot: str) -> str:
    return GENERAL_SLOT if slot == GENERAL else slot


def shipped() -> Drafts:
    return Drafts(live_bundle())


def measure(prompts: Sequence[Prompt], drafts: Drafts, length: int, max_tokens: int, progress: Progress) -> list[Trial]:
    """Every prompt at every temperature, with every draft; `length` tokens are proposed for a pass."""
    asker = _Asker(max_tokens)
    asked = [
        (prompt, asker.request(prompt.text, number, temperature), temperature)
        for temperature in TEMPERATURES
        for number, prompt in enumerate(prompts)
    ]
    trials = [_trial(prompt, request, temperature, drafts, asker) for prompt, request, temperature in asked]
    records = asker.answers([request for _, request, _ in asked], progress)
    terms = Terms(length, asker.tokenizer.num_valid, asker.target.context)
    shown = progress.add_task("replays", total=len(records) * len(drafts.all))
    for name, directory in drafts.all.items():
        for trial, counted in zip(trials, _scores(_draft(directory), records, terms), strict=True):
            trial.counts[name] = counted
            progress.advance(shown)
    return trials


class _Asker:
    """The target, and how prompts are sent to it."""

    def __init__(self, max_tokens: int) -> None:
        self.tokenizer = load_tokenizer(TARGET_DIR)
        self.target = load_model(TARGET_DIR, dtype=torch.bfloat16, num_pages=_SESSIONS * _PAGES)
        self._max_tokens = max_tokens

    def tokens(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode_chat([{"role": "user", "content": text}]))

    def request(self, text: str, seed: int, temperature: float) -> GenerationRequest:
        tokens = self.tokens(text)
        params = SamplingParams(seed=seed, max_tokens=self._max_tokens, temperature=temperature)
        return GenerationRequest(tokens=tokens, prompt_length=len(tokens), params=params)

    def answers(self, requests: Sequence[GenerationRequest], progress: Progress) -> list[Record]:
        """In the order of the requests."""
        answered = answer(self.target, self.tokenizer, requests, _SESSIONS)
        found = dict(progress.track(answered, total=len(requests), description="answers of the target"))
        return [found[index] for index in range(len(requests))]


def _trial(prompt: Prompt, request: GenerationRequest, temperature: float, drafts: Drafts, asker: _Asker) -> Trial:
    alone = drafts.route(asker.tokens(prompt.request))
    other = None if prompt.other is None else drafts.route(asker.tokens(prompt.other))
    return Trial(prompt, temperature, tuple(drafts.pools), drafts.route(request.tokens), alone, other)


def _scores(model: CausalLM, records: Sequence[Record], terms: Terms) -> Iterator[Acceptance]:
    for record in records:
        yield from score(model, [record], terms)


def _draft(directory: Path | None) -> CausalLM:
    adapter = directory if directory and (directory / "adapter_config.json").exists() else None
    path = DRAFT_DIR if directory is None or adapter else directory
    return load_model(path, dtype=torch.float32, num_pages=_PAGES, adapter=adapter)
