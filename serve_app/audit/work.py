"""The work of `taskspec audit`: reads what was recorded, and has the target of the configuration answer it again."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from rich.console import Console

from core.audit.audit import AnswerVerdict, audit
from core.errors import ConfigError
from core.text.tokenizer import Tokenizer
from serve_app.audit import lines, traces
from serve_app.audit.offline import offline_service
from serve_app.audit.recorded import NamedAnswer, Recording
from serve_app.audit.traces import Period
from serve_app.config import ServiceConfig
from serve_app.deployments.models.target_loading import load_target
from serve_app.terminal.progress import step


@dataclass
class AuditOutcome:
    """What was recorded, and by the place among its answers the verdicts there are; `stopped` before the others."""

    config: ServiceConfig
    tokenizer: Tokenizer
    recording: Recording
    verdicts: dict[int, AnswerVerdict] = field(default_factory=dict)
    stopped: bool = False

    @property
    def missing(self) -> int:
        """Answers that were asked for and not given."""
        return sum(lack.missing for lack in self.recording.lacks)

    def count(self, kind: str) -> int:
        """The answers of a class."""
        number = sum(verdict.kind == kind for verdict in self.verdicts.values())
        if kind == "skipped":
            return number + len(self.recording.lacks) - self.missing
        return number + self.missing if kind == "different" else number

    @property
    def tokens(self) -> int:
        """Those compared."""
        return sum(len(verdict.tokens) for verdict in self.verdicts.values())

    @property
    def judged(self) -> list[tuple[NamedAnswer, AnswerVerdict]]:
        """Answers with their verdicts, in the order of the recording."""
        return [(self.recording.answers[at], self.verdicts[at]) for at in sorted(self.verdicts)]


def work(config: ServiceConfig, place: Path, period: Period, console: Console) -> AuditOutcome:
    """Audit the answers in a file or in a directory of traces. Ctrl-C ends it with what there is by then.

    Raises `ConfigError` if nothing there can be audited.
    """
    with step(console, f"Reading {place}"):
        service = offline_service(config)
        if place.is_dir():
            recording = traces.read(place, config, service, period)
        else:
            recording = _drawn(lines.read(place, service), period.limit)
    if not recording.answers and not any(lack.missing for lack in recording.lacks):
        reasons = "".join(f"\n{lack.name}: {lack.reason}" for lack in recording.lacks[:3])
        notes = "".join(f"\n{note}" for note in recording.notes)
        raise ConfigError(f"{place}: there is no answer to audit{reasons}{notes}")
    outcome = AuditOutcome(config, service.tokenizer, recording)
    questions = [answer.question for answer in recording.answers]
    try:
        with step(console, f"Loading {config.target.model}"):
            model = load_target(config.target)
        with step(console, "Decoding plainly", "Decoded plainly", len(questions)) as shown:
            for index, verdict in audit(model, service.tokenizer, questions, config.target.max_sessions):
                outcome.verdicts[index] = verdict
                shown.reach(len(outcome.verdicts))
    except KeyboardInterrupt:
        outcome.stopped = True
    return outcome


def _drawn(recording: Recording, limit: int) -> Recording:
    """The same if there are no more answers, or so many of them, the same every time."""
    answers = recording.answers
    if len(answers) <= limit:
        return recording
    some = sorted(Random(0).sample(range(len(answers)), limit))
    note = f"{limit:,} of {len(answers):,} answers, drawn by lot; see --most."
    return Recording([answers[at] for at in some], recording.lacks, [*recording.notes, note])
