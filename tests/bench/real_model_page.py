"""What `real_model` has seen, as a page of tables and as JSON."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from core.text.prompts import Prompt
from serve_app.load.figures import Figures
from serve_app.load.pairs import Paired
from tests.bench.engines import Answered
from tests.bench.output import header
from tests.bench.paired import Durations, Ratio
from tests.bench.real_model_rivals import ASSISTED

PLAIN, DRAFT = "plain", "draft and own text"
OURS = (PLAIN, DRAFT)


class Question(NamedTuple):
    """A prompt, as the target's ids too, of the set `of`."""

    number: int
    prompt: Prompt
    tokens: tuple[int, ...]
    of: str


class Reply(NamedTuple):
    """An answer, and the tokens proposed and accepted for it by source, where that is known."""

    answered: Answered
    proposed: Counter[str]
    accepted: Counter[str]


class Turn(NamedTuple):
    """A contender's reply to a question."""

    contender: str
    question: Question
    reply: Reply


@dataclass
class Measured:
    """All turns at one temperature."""

    temperature: float
    turns: list[Turn] = field(default_factory=list)

    @property
    def contenders(self) -> list[str]:
        return list(dict.fromkeys(turn.contender for turn in self.turns))

    def of(self, contender: str) -> list[Turn]:
        return [turn for turn in self.turns if turn.contender == contender]

    def only(self, turns: Iterable[Turn]) -> Measured:
        return Measured(self.temperature, list(turns))

    @property
    def durations(self) -> Durations:
        found = Durations()
        for contender in self.contenders:
            for turn in self.of(contender):
                answered = turn.reply.answered
                found.add(contender, turn.question.number, answered.seconds, len(answered.tokens))
        return found

    def seconds_per_token(self, contender: str) -> float:
        """Over all tokens."""
        answers = [turn.reply.answered for turn in self.of(contender)]
        return sum(answer.seconds for answer in answers) / sum(len(answer.tokens) for answer in answers)

    def first(self, contender: str) -> float:
        """Median seconds to the first token."""
        return statistics.median(turn.reply.answered.first for turn in self.of(contender))

    def tokens_per_pass(self, contender: str) -> float:
        answers = [turn.reply.answered for turn in self.of(contender)]
        return sum(len(answer.tokens) - 1 for answer in answers) / max(1, sum(answer.passes for answer in answers))

    def alike(self, *contenders: str) -> tuple[int, int]:
        """How many prompts these have answered with the same tokens, and of how many."""
        said: dict[int, set[tuple[int, ...]]] = {}
        for turn in self.turns:
            if turn.contender in contenders:
                said.setdefault(turn.question.number, set()).add(turn.reply.answered.tokens)
        return sum(len(answers) == 1 for answers in said.values()), len(said)

    def sources(self, contender: str) -> dict[str, tuple[int, int]]:
        """Tokens accepted and proposed, by who proposed them."""
        turns = self.of(contender)
        proposed = sum((turn.reply.proposed for turn in turns), Counter[str]())
        accepted = sum((turn.reply.accepted for turn in turns), Counter[str]())
        return {source: (accepted[source], number) for source, number in sorted(proposed.items())}

    def by_set(self) -> dict[str, Measured]:
        """By set of prompts, and of all."""
        names = dict.fromkeys(turn.question.of for turn in self.turns)
        parts = {name: self.only(turn for turn in self.turns if turn.question.of == name) for name in names}
        return parts | {"**all**": self}


class Load(NamedTuple):
    """Many streams at once over HTTP, with speculation and without."""

    streams: int
    temperature: float
    plain: Figures
    speculation: Figures
    paired: Paired


def page(measured: Sequence[Measured], loads: Sequence[Load], notes: Sequence[str]) -> str:
    """Markdown."""
    tables = [_contender_table(measured)] if measured else []
    tables += [_set_table(at) for at in measured if at.temperature == 0]
    tables += [_load_table(loads)] if loads else []
    told = [f"- {note}" for note in [*_answers_noted(measured), *notes]]
    return "\n\n".join("\n".join(lines) for lines in [*tables, told])


def _contender_table(measured: Sequence[Measured]) -> list[str]:
    columns = (
        "temperature",
        "contender",
        "ms per token",
        "tokens/s",
        "times our plain (95 %)",
        "tokens per pass",
        "first token, ms",
    )
    lines = header(columns)
    for at in measured:
        durations = at.durations
        for name in at.contenders:
            seconds = at.seconds_per_token(name)
            lines.append(
                f"| {at.temperature:g} | {name} | {1e3 * seconds:.1f} | {1 / seconds:.0f} "
                f"| {durations.overall(name, PLAIN)} | {at.tokens_per_pass(name):.2f} | {1e3 * at.first(name):.0f} |"
            )
    return lines


def _set_table(at: Measured) -> list[str]:
    """By set of prompts, at temperature 0."""
    columns = (
        "prompts of",
        "number",
        "ours, times our plain",
        "times transformers assisted",
        "tokens per pass",
        "accepted of proposed, by source",
    )
    lines = header(columns)
    for name, part in at.by_set().items():
        durations = part.durations
        assisted = durations.overall(DRAFT, ASSISTED) if ASSISTED in durations.contenders else ""
        sources = ", ".join(f"{source} {kept} of {number}" for source, (kept, number) in part.sources(DRAFT).items())
        lines.append(
            f"| {name} | {len(part.of(DRAFT))} | {durations.overall(DRAFT, PLAIN)} | {assisted} "
            f"| {part.tokens_per_pass(DRAFT):.2f} | {sources or 'none proposed'} |"
        )
    return lines


def _load_table(loads: Sequence[Load]) -> list[str]:
    columns = (
        "streams",
        "temperature",
        "plain, tokens/s of all",
        "with speculation",
        "times plain, of a user (95 %)",
        "equal answers",
    )
    lines = header(columns)
    for load in loads:
        rates = (f"{figures.tokens_per_s or 0:.0f}" for figures in (load.plain, load.speculation))
        lines.append(
            f"| {load.streams} | {load.temperature:g} | {' | '.join(rates)} | {_told(load.paired)} "
            f"| {load.paired.equal} of {load.paired.pairs} |"
        )
    return lines


def _told(paired: Paired) -> str:
    if paired.ratio is None or paired.low is None or paired.high is None:
        return ""
    return str(Ratio(paired.ratio, paired.low, paired.high, paired.pairs))


def _answers_noted(measured: Sequence[Measured]) -> list[str]:
    notes = []
    for at in measured:
        alike, asked = at.alike(*OURS)
        notes.append(f"Temperature {at.temperature:g}: ours answered {alike} of {asked} prompts alike.")
        if at.temperature == 0:
            others = {name: at.alike(PLAIN, name)[0] for name in at.contenders if name not in OURS}
            told = ", ".join(f"{name} {equal}" for name, equal in others.items())
            if told:
                notes.append(f"So many of these {asked} answers were those of our plain decoding, too: {told}.")
    return notes


def differing(measured: Sequence[Measured], loads: Sequence[Load]) -> list[str]:
    """Where one of ours answered otherwise than another."""
    found = []
    for at in measured:
        alike, asked = at.alike(*OURS)
        if alike < asked:
            found.append(f"{asked - alike} of {asked} prompts at temperature {at.temperature:g}")
    for load in loads:
        if load.paired.equal < load.paired.pairs:
            missed = load.paired.pairs - load.paired.equal
            found.append(f"{missed} of {load.paired.pairs} answers of {load.streams} streams")
    return found


def as_json(measured: Sequence[Measured], loads: Sequence[Load]) -> dict[str, object]:
    return {
        "temperatures": [
            {
                "temperature": at.temperature,
                "contenders": {name: _contender_as_json(at, name) for name in at.contenders},
                "by_set": {
                    name.strip("*"): {
                        "times_plain": part.durations.overall(DRAFT, PLAIN)._asdict(),
                        "tokens_per_pass": part.tokens_per_pass(DRAFT),
                        "accepted_and_proposed": part.sources(DRAFT),
                    }
                    for name, part in at.by_set().items()
                },
                "ours_alike": at.alike(*OURS),
            }
            for at in measured
        ],
        "streams": [_load_as_json(load) for load in loads],
    }


def _contender_as_json(at: Measured, name: str) -> Mapping[str, object]:
    return {
        "seconds_per_token": at.seconds_per_token(name),
        "quartiles": at.durations.quartiles(name),
        "seconds_to_first_token": at.first(name),
        "tokens_per_pass": at.tokens_per_pass(name),
        "times_plain": at.durations.overall(name, PLAIN)._asdict(),
        "times_plain_by_prompt": at.durations.ratio(name, PLAIN)._asdict(),
        "answers_as_plain": at.alike(PLAIN, name),
    }


def _load_as_json(load: Load) -> Mapping[str, object]:
    paired = load.paired
    return {
        "streams": load.streams,
        "temperature": load.temperature,
        "tokens_per_s": {PLAIN: load.plain.tokens_per_s, DRAFT: load.speculation.tokens_per_s},
        "times_plain": {"value": paired.ratio, "low": paired.low, "high": paired.high},
        "equal": [paired.equal, paired.pairs],
    }
