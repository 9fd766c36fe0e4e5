"""Answers held to a schema or to calls of tools: the same with speculation or not, valid or not, and what is saved.

    python -m tests.bench.structured [--model smollm2:target] [--requests 1000] [--out tests/bench/results/structured]

The same requests, 200 schemas and 40 tools at temperatures 0 and 0.8, are answered plainly and then by each contender:
what is looked up with and without the tokens that a grammar forces, drafts, a hostile draft, a draft that is killed
half way. Counted are the answers that differ from plain decoding, those that `jsonschema` or the parser of calls
refuses (answers cut by max_tokens apart), and the passes of the target. It fails if an answer differs or is invalid.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import Progress

from core.confidence_intervals import Array, estimate
from core.errors import ConfigError
from core.family import DRAFT_DIR, TARGET_DIR
from core.model.base import Model
from core.model.causal_lm import load_draft_model, load_model
from core.model_names import locate
from core.smollm2 import DRAFT_DIR as SMOLLM2_DRAFT_DIR
from core.text.tokenizer import Tokenizer, load_tokenizer
from tests.bench import machine
from tests.bench.items import GENERAL_SLOT, draft_directories, live_bundle
from tests.bench.output import header, save
from tests.bench.paired import Ratio
from tests.bench.structured_requests import NUM_REQUESTS, Question, questions
from tests.bench.structured_run import CONTENDERS, OTHER, OWN, PLAIN, WITHOUT_GRAMMAR, Answer, Answering, Contender

FAMILY, SMOLLM2 = "family:target", "smollm2:target"
BAR = 0.8  # of the passes without forced tokens
_PAGES = 16  # of 64 tokens: longer than any prompt and answer here


@dataclass
class Tally:
    """What came of one contender's answers; `wrong` are those that differ or are invalid, told for a reader."""

    answers: int = 0
    differ: int = 0
    invalid: int = 0
    cut: int = 0
    passes: int = 0
    passes_of: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))  # by kind, then by schema
    proposed: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, question: Question, answer: Answer, plain: Answer, fault: str) -> None:
        self.answers += 1
        self.passes += answer.passes
        self.passes_of[question.kind][question.of] += answer.passes
        self.proposed += answer.proposed
        self.accepted += answer.accepted
        self.cut += answer.reason == "length"
        differs = (answer.tokens, answer.reason) != (plain.tokens, plain.reason)
        self.differ += differs
        self.invalid += bool(fault)
        if differs or fault:
            self.wrong.append(f"{question.kind} {question.of}: {fault or 'differs'}")


def models(name: str, streams: int) -> tuple[Model, Tokenizer, dict[str, Model[Any]]]:
    """The target, its tokenizer and its drafts. SmolLM2 has one draft, so there is no other task's."""
    path = locate(name)
    target = load_model(path, dtype=torch.bfloat16, num_pages=_PAGES * streams)

    def draft(directory: str | Path | None, base: Path) -> Model[Any]:
        return load_draft_model(directory, base, dtype=torch.float32, sessions=streams, exact=False, target=path)

    if name == SMOLLM2:
        return target, load_tokenizer(path), {OWN: draft(None, SMOLLM2_DRAFT_DIR)}
    if Path(path) != TARGET_DIR:
        raise ConfigError(f"--model {name}: there is no draft for it here; write {FAMILY} or {SMOLLM2}")
    directories = draft_directories()
    own = directories[GENERAL_SLOT]
    other = next(directories[slot] for slot in live_bundle().manifest.slots if directories.get(slot, own) != own)
    return target, load_tokenizer(path), {OWN: draft(own, DRAFT_DIR), OTHER: draft(other, DRAFT_DIR)}


def fault_of(question: Question, answer: Answer, tokenizer: Tokenizer) -> str:
    """What is wrong with an answer; an answer cut by max_tokens cannot be judged."""
    if answer.reason != "stop":
        return "" if answer.reason == "length" else answer.reason
    said = b"".join(tokenizer.token_bytes(token) for token in answer.tokens if token not in tokenizer.eos_ids)
    try:
        return question.fault(said.decode())
    except UnicodeDecodeError as error:
        return str(error)


def tallied(
    target: Model,
    tokenizer: Tokenizer,
    drafts: Mapping[str, Model[Any]],
    asked: Sequence[Question],
    streams: int,
    step: Callable[[], object],
    contenders: Sequence[Contender] = CONTENDERS,
) -> dict[str, Tally]:
    """What came of each contender, by name; plain decoding is the first of them."""
    tallies: dict[str, Tally] = {}
    plain: dict[int, Answer] = {}
    faults: dict[int, str] = {}  # of plain answers
    for contender in contenders:
        tally = tallies[contender.name] = Tally()
        truths = {seed: answer.tokens for seed, answer in plain.items()}
        for question, answer in Answering(target, tokenizer, drafts, contender, truths, streams).answer(asked):
            seed = question.request.params.seed
            if contender.name == PLAIN:
                plain[seed], faults[seed] = answer, fault_of(question, answer, tokenizer)
            same = answer.tokens == plain[seed].tokens and answer.reason == plain[seed].reason
            tally.add(question, answer, plain[seed], faults[seed] if same else fault_of(question, answer, tokenizer))
            step()
    return tallies


def share(with_it: Counter[str], without: Counter[str]) -> Ratio:
    """Of passes without the tokens that the grammar forces, by schema or tool, those that are left with them."""
    pairs = np.array([(with_it[of], without[of]) for of in without], np.float64)

    def overall(drawn: Array) -> Array:
        ours, theirs = (drawn @ pairs).T
        return ours / theirs

    return Ratio(*estimate(len(pairs), overall), len(pairs))


def page(tallies: Mapping[str, Tally], shares: Mapping[tuple[str, str], Ratio]) -> str:
    """Markdown."""
    plain = tallies[PLAIN]
    lines = header(["proposes", "answers", "differ", "invalid", "cut", "times plain's passes", "accepted of proposed"])
    for name, tally in tallies.items():
        sources = ", ".join(f"{of} {tally.accepted[of]}/{tally.proposed[of]}" for of in tally.proposed)
        counts = f"{tally.answers} | {tally.differ} | {tally.invalid} | {tally.cut}"
        lines.append(f"| {name} | {counts} | {tally.passes / plain.passes:.2f} | {sources} |")
    lines += ["", *header(["forced tokens, times the passes without", "of", "all together (95 %)"])]
    lines += [f"| {name} | {kind} | {ratio} |" for (name, kind), ratio in shares.items()]
    return "\n".join(lines)


def _told(tally: Tally) -> dict[str, object]:
    """JSON values, without what was counted by schema."""
    return {key: value for key, value in vars(tally).items() if key != "passes_of"}


def main(argv: Sequence[str] | None = None) -> None:
    about = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m tests.bench.structured", description=about)
    parser.add_argument("--model", default=FAMILY, help=f"{FAMILY} or {SMOLLM2}")
    parser.add_argument("--requests", type=int, default=NUM_REQUESTS, help=f"the first so many of {NUM_REQUESTS}")
    parser.add_argument("--streams", type=int, default=16, help="answers at a time while they are compared")
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/structured"))
    chosen = parser.parse_args(argv)
    torch.set_num_threads(1)
    with Progress() as progress:
        reading = progress.add_task("reading the models and the schemas", total=None)
        target, tokenizer, drafts = models(chosen.model, chosen.streams)
        asked = questions(tokenizer, chosen.requests)
        progress.remove_task(reading)
        done = progress.add_task(f"answers of {len(CONTENDERS)} contenders", total=len(CONTENDERS) * len(asked))
        tallies = tallied(target, tokenizer, drafts, asked, chosen.streams, lambda: progress.advance(done))
    shares = {
        (name, kind): share(tallies[name].passes_of[kind], passes)
        for name, other in WITHOUT_GRAMMAR.items()
        for kind, passes in tallies[other].passes_of.items()
    }
    text = f"{page(tallies, shares)}\n\n{chosen.model} in bf16, {machine.line()}\n"
    found = {
        "contenders": {name: _told(tally) for name, tally in tallies.items()},
        "shares": {f"{name}, {kind}": one._asdict() for (name, kind), one in shares.items()},
    }
    save(chosen, "structured", text, found)
    wrong = [f"{name}: {told}" for name, tally in tallies.items() for told in tally.wrong]
    if wrong:
        raise SystemExit("\n".join([f"{len(wrong)} answers differ or are invalid:", *wrong[:3]]))


if __name__ == "__main__":
    main()
