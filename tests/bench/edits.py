"""Tokens per pass of what is looked up, beside the tasks' drafts and alone: replays, no clock.

    python -m tests.bench.edits [--prompts 40] [--out tests/bench/results/edits]

The shipped target is tiny and does not follow a request to rewrite a text. So the edits are of its own making: it
answers a question, and is asked the same again in the same conversation. What it says then is mostly, but not quite,
what stands in its prompt. The other workloads are the same questions asked once, in which little is repeated.

Predictions are made of the answers: `nearly right` replaces, removes or puts in a few tokens about every fiftieth
token, `nonsense` are 200 random tokens. For `earlier answers` the client has asked every question before, with another
seed at temperature 1, where two answers to a question are as different as the target makes them.

The replay is of `core.distill.competition`: sources, their choice and what they learn are the engine's own. A draft
proposes six tokens for a pass, other sources at most sixteen, as far as they are worth their rows at the costs that
`tests.bench.policy` has recorded. `times plain` is the rate of the target's passes at these costs; drafting is taken to
be free.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from random import Random
from typing import NamedTuple

import torch

from core.distill.answering import answer
from core.distill.competition import competition, counts
from core.distill.record import Record
from core.distill.replay import NUM_SPECULATIVE_TOKENS, Terms, hits, session_forward
from core.family import DRAFT_DIR, TARGET_DIR
from core.generation import GenerationRequest, Run
from core.model.causal_lm import CausalLM, load_draft_model, load_model
from core.policy.acceptance import AcceptanceEstimate
from core.policy.draft_policy import DraftPolicy
from core.sampling.params import SamplingParams
from core.text.tokenizer import Tokenizer, load_tokenizer
from core.verify.sources import DEFAULT, SourceOptions
from core.verify.sources.choice import Sources
from tests.bench.items import Item, draft_directories, first_held_out
from tests.bench.output import save
from tests.bench.policy import Machine, load

MAX_TOKENS = 200
EDITED_EVERY = 50  # tokens
NONSENSE, IDS = 200, 2000  # tokens, drawn from so many of the vocabulary
_SESSIONS, _PAGES = 16, 16  # answers at a time; pages of 64 tokens in a context
_OWNER = "client"
_DRAFTS_ALONE: SourceOptions = {"answers": {}, "prediction": {}}
_OWN_TEXT = DEFAULT

Predict = Callable[[Record, Random], Sequence[int]]


class Trial(NamedTuple):
    """An answer, where the task's draft hits it, and the draft's name."""

    record: Record
    hit: Sequence[bool]
    draft: str


class Contender(NamedTuple):
    """A row of the table: what may propose."""

    name: str
    lookup: SourceOptions
    drafted: bool
    predict: Predict | None = None
    before: Sequence[Record] = ()  # that the client had answered earlier


class Figures(NamedTuple):
    """Of one contender on one workload: tokens per pass, times plain, and accepted of proposed tokens by source."""

    tokens_per_pass: float
    times_plain: float
    sources: dict[str, str]


def nearly_right(record: Record, random: Random) -> Sequence[int]:
    """The answer with a few edits."""
    tokens = list(record.output_ids)
    for _ in range(max(1, len(tokens) // EDITED_EVERY)):
        at = random.randrange(len(tokens))
        tokens[at : at + random.randrange(3)] = random.choices(record.prompt_ids, k=random.randrange(4))
    return tokens


def nonsense(_record: Record, random: Random) -> Sequence[int]:
    """Random tokens of the vocabulary."""
    return random.choices(range(IDS), k=NONSENSE)


class _Asker:
    def __init__(self) -> None:
        self.tokenizer: Tokenizer = load_tokenizer(TARGET_DIR)
        self.target: CausalLM = load_model(TARGET_DIR, dtype=torch.bfloat16, num_pages=_SESSIONS * _PAGES)
        self.terms = Terms(NUM_SPECULATIVE_TOKENS, self.tokenizer.num_valid, self.target.context)

    def answers(self, conversations: Iterable[list[dict[str, str]]], temperature: float, seed: int) -> list[Record]:
        """In the order of the conversations."""
        asked = []
        for number, messages in enumerate(conversations):
            tokens = tuple(self.tokenizer.encode_chat(messages))
            room = min(MAX_TOKENS, self.target.context - len(tokens))
            params = SamplingParams(seed=1000 * seed + number, max_tokens=room, temperature=temperature)
            asked.append(GenerationRequest(tokens=tokens, prompt_length=len(tokens), params=params))
        found = dict(answer(self.target, self.tokenizer, asked, _SESSIONS))
        return [found[index] for index in range(len(asked))]

    def text(self, record: Record) -> str:
        return self.tokenizer.raw.decode(list(record.output_ids))


def _question(item: Item) -> dict[str, str]:
    return {"role": "user", "content": item.prompt}


def _trials(records: Sequence[Record], items: Sequence[Item], terms: Terms) -> list[Trial]:
    directories, drafts = draft_directories(), dict[str, CausalLM]()
    for slot in {item.slot for item in items}:
        drafts[slot] = load_draft_model(directories[slot], DRAFT_DIR, dtype=torch.float32)
    return [
        Trial(record, hits(record, session_forward(drafts[item.slot]), drafts[item.slot].context, terms), item.slot)
        for record, item in zip(records, items, strict=True)
    ]


def recorded_costs() -> DraftPolicy:
    """A policy that knows the recorded costs of passes."""
    policy = DraftPolicy()
    for rows, seconds in load().pass_seconds.items():
        policy.costs.observe(rows, seconds)
    return policy


def played(trials: Sequence[Trial], contender: Contender, terms: Terms) -> Iterator[list[Run]]:
    """The runs of each answer, as one client would have them one after another."""
    policy, random = recorded_costs(), Random(1)
    sources, estimates = Sources(policy, contender.lookup), dict[str, AcceptanceEstimate]()
    owner = _OWNER if contender.before else None
    for record in contender.before:
        list(competition(record, terms, sources, None, AcceptanceEstimate(), owner=owner))
    for record, hit, draft in trials:
        estimate = estimates.setdefault(draft, AcceptanceEstimate())
        prediction = contender.predict(record, random) if contender.predict else ()
        drafted = hit if contender.drafted else None
        yield list(competition(record, terms, sources, drafted, estimate, prediction=prediction, owner=owner))


def measure(trials: Sequence[Trial], contender: Contender, terms: Terms) -> Figures:
    """Over all answers."""
    machine, runs = Machine(load()), list(chain.from_iterable(played(trials, contender, terms)))
    seconds = sum(machine.pass_seconds(1 + run.proposed, 0) for run in runs)
    plain = machine.pass_seconds(1, 0) * sum(len(run.tokens) for run in runs)
    return Figures(counts(runs).tokens_per_pass, plain / seconds, _by_source(runs))


def _by_source(runs: Sequence[Run]) -> dict[str, str]:
    sources = sorted({run.source for run in runs if run.proposed})
    of = {source: counts(run for run in runs if run.source == source) for source in sources}
    return {source: f"{count.accepted} of {count.proposed}" for source, count in of.items()}


def contenders(before: Sequence[Record]) -> list[Contender]:
    return [
        Contender("draft", _DRAFTS_ALONE, drafted=True),
        Contender("own text", _OWN_TEXT, drafted=False),
        Contender("draft and own text", _OWN_TEXT, drafted=True),
        Contender("own text and earlier answers", _OWN_TEXT, drafted=False, before=before),
        Contender("all these", _OWN_TEXT, drafted=True, before=before),
        Contender("prediction nearly right", _DRAFTS_ALONE, drafted=False, predict=nearly_right),
        Contender("prediction nearly right, draft and own text", _OWN_TEXT, drafted=True, predict=nearly_right),
        Contender("prediction is nonsense", _DRAFTS_ALONE, drafted=False, predict=nonsense),
        Contender("prediction is nonsense, draft and own text", _OWN_TEXT, drafted=True, predict=nonsense),
    ]


def workloads(asker: _Asker, items: Sequence[Item]) -> dict[str, tuple[list[Record], list[Record]]]:
    """By name the answers, and earlier ones to the same questions."""
    once = asker.answers(([_question(item)] for item in items), 0.0, 1)
    said = [{"role": "assistant", "content": asker.text(record)} for record in once]
    again = [[_question(item), reply, _question(item)] for item, reply in zip(items, said, strict=True)]
    sampled = [asker.answers(([_question(item)] for item in items), 1.0, seed) for seed in (2, 3)]
    return {
        "asked again in a conversation, temperature 0": (asker.answers(again, 0.0, 1), sampled[0]),
        "asked again in a conversation, temperature 1": (asker.answers(again, 1.0, 1), sampled[0]),
        "asked once, temperature 0": (once, sampled[0]),
        "asked once, temperature 1": (sampled[1], sampled[0]),
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.edits", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--prompts", type=int, default=40)
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/edits"))
    chosen = parser.parse_args(argv)
    asker, items = _Asker(), first_held_out(chosen.prompts)
    found: dict[str, dict[str, Figures]] = {}
    lines = ["| workload | proposes | tokens per pass | times plain | accepted |", "|---|---|---|---|---|"]
    for workload, (records, before) in workloads(asker, items).items():
        trials = _trials(records, items, asker.terms)
        for contender in contenders(before):
            figures = measure(trials, contender, asker.terms)
            found.setdefault(workload, {})[contender.name] = figures
            accepted = ", ".join(f"{source} {share}" for source, share in figures.sources.items())
            cells = f"{figures.tokens_per_pass:.2f} | {figures.times_plain:.2f} | {accepted}"
            lines.append(f"| {workload} | {contender.name} | {cells} |")
    save(chosen, "edits", "\n".join(lines) + "\n", {"found": found})


if __name__ == "__main__":
    main()
