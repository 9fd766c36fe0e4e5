"""What every draft would have done for an answer: the target answers, the router chooses, all drafts are replayed.

Enters: prompts. Leaves: trials, each with the exact counts of every draft on one answer. No clock is read: a replay is
of serial drafting, with as many tokens proposed for every pass as there may be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from rich.progress import Progress

from core.bundle.store import Bundle
from core.distill.answering import answer
from core.distill.competition import competition, counts
from core.distill.record import Record
from core.distill.replay import AcceptanceCounts, Terms, hits, replay, session_forward
from core.family import DRAFT_DIR, TARGET_DIR
from core.generation import GenerationRequest
from core.model.causal_lm import load_draft_model, load_model
from core.policy.acceptance import AcceptanceEstimate
from core.policy.rerouting import RoutingTable
from core.sampling.params import SamplingParams
from core.tasks.classifier import TaskClassifier
from core.tasks.classifier_training import winner
from core.text.tokenizer import load_tokenizer
from core.verify.sources import DEFAULT
from core.verify.sources.choice import Sources
from serve_app.config import load_config
from serve_app.deployments.served_models import with_bundle
from tests.bench.edits import recorded_costs
from tests.bench.items import BASE, GENERAL, GENERAL_SLOT, MIXED, live_bundle
from tests.bench.rerouting import Rerouted, at_random, play
from tests.bench.stress import Prompt

TEMPERATURES = (0.0, 1.0)
NOT_PLAYED = Rerouted(AcceptanceCounts(), (), ())
_SESSIONS, _PAGES = 32, 16  # answers at a time; pages of 64 tokens in a context


@dataclass(frozen=True)
class Trial:
    """One answer: the pool its prompt was routed to, those of its parts asked alone, and the counts of every draft.

    `pools` are all it could have been routed to; the controls are counted beside them. `rerouted` is what becomes of
    the answer in service, `misrouted` the same with a router that guesses; the slots named there are the bundle's.
    `own_text` is what comes of looking up the session's own text alone, `together` of that beside the rerouted drafts.
    """

    prompt: Prompt
    temperature: float
    pools: tuple[str, ...]
    routed: str
    request: str
    other: str | None
    counts: dict[str, AcceptanceCounts] = field(default_factory=dict)
    rerouted: Rerouted = NOT_PLAYED
    misrouted: Rerouted = NOT_PLAYED
    own_text: AcceptanceCounts = NOT_PLAYED.counts
    together: AcceptanceCounts = NOT_PLAYED.counts


class Drafts:
    """The shipped bundle's drafts: a pool for each task and one for the general slot, and the controls."""

    def __init__(self, bundle: Bundle) -> None:
        slots = bundle.manifest.slots
        self.pools: Mapping[str, Path | None] = {_pool(slot): bundle.directory(slot) for slot in slots}
        self.all = dict(self.pools) | {GENERAL: None} | {name: bundle.control(name) for name in (BASE, MIXED)}
        self.general_slot = slots[GENERAL].decision
        if bundle.router is None:
            raise SystemExit("the shipped bundle has no router, so there is nothing to stress")
        self._router = TaskClassifier.load(bundle.router)

    def chances(self, tokens: Sequence[int]) -> dict[str, float]:
        """The router's, of every task."""
        return self._router.predict(tokens)

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
    hit: list[dict[str, list[bool]]] = [{} for _ in records]
    for name, directory in drafts.all.items():
        model = load_draft_model(directory, DRAFT_DIR, dtype=torch.float32)
        forward = session_forward(model)
        for trial, record, of_drafts in zip(trials, records, hit, strict=True):
            of_drafts[name] = hits(record, forward, model.context, terms)
            trial.counts[name] = replay(of_drafts[name], record, terms)
            progress.advance(shown)
    return list(_rerouted(trials, records, hit, drafts, terms))


def _rerouted(
    trials: Sequence[Trial],
    records: Sequence[Record],
    hit: Sequence[Mapping[str, list[bool]]],
    drafts: Drafts,
    terms: Terms,
) -> Iterator[Trial]:
    """One answer after another, by a service that knows what the bundle tells; and by one whose router guesses."""
    served = with_bundle(load_config("family"))
    tables = [RoutingTable(served.drafts, served.acceptance) for _ in range(2)]
    sources = [Sources(recorded_costs(), DEFAULT) for _ in range(2)]
    estimates = [AcceptanceEstimate() for _ in range(2)]
    for number, (trial, record, of_drafts) in enumerate(zip(trials, records, hit, strict=True)):
        of_slots = {slot: of_drafts[_pool(slot)] for slot in served.drafts}
        routed = drafts.chances(record.prompt_ids)
        guessed = at_random(routed, f"misrouted/{number}")
        rerouted, misrouted = (
            play(of_slots, record, chances, table, terms)
            for chances, table in zip((routed, guessed), tables, strict=True)
        )
        own_text, together = (
            counts(competition(record, terms, source, hit_or_none, estimate))
            for source, hit_or_none, estimate in zip(sources, (None, rerouted.hits), estimates, strict=True)
        )
        yield replace(trial, rerouted=rerouted, misrouted=misrouted, own_text=own_text, together=together)


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
