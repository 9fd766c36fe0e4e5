"""What a service has recorded, as questions to plain decoding."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from core.audit.audit import Question
from core.audit.expected import RecordedIds
from core.bundle.store import show
from core.errors import ConfigError
from core.generation import GenerationRequest
from core.model.loader import public_name
from core.replay.shadow import draw
from core.traces.memory_files import marked
from core.traces.store import Trace, TraceStore
from serve_app.audit.recorded import Lack, NamedAnswer, Recording
from serve_app.config import ServiceConfig
from serve_app.deployments.models.served_models import bundle_root
from serve_app.http.service import Service

OLD = "{:,} traces of earlier versions do not tell whether a grammar held their answer, which may be why one differs."
IN_MEMORY = "These traces are without stop strings, which are texts of clients: where an answer ends is not audited."


class Period(NamedTuple):
    """Answers that ended in so many seconds; of more than `limit` so many are drawn."""

    seconds: float
    limit: int


def read(directory: Path, config: ServiceConfig, service: Service, period: Period) -> Recording:
    """The answers, but those of other models."""
    sample = draw(TraceStore(directory), time.time() - period.seconds, period.limit, _foreign(config, service))
    counts = Counter(
        {
            "of another model or an unknown bundle": sample.foreign,
            "without prompt, answer or time": sample.incomplete,
            "in files unreadable or of other dice": sample.unreadable,
        }
    )
    recording = Recording(notes=[f"Left out: {number:,} {what}." for what, number in counts.items() if number])
    if sample.matching > len(sample.traces):
        recording.notes.append(f"{len(sample.traces):,} of {sample.matching:,} answers, drawn by lot; see --most.")
    if old := sum(trace.constrained is None for trace in sample.traces):
        recording.notes.append(OLD.format(old))
    in_memory = marked(directory)
    if in_memory:
        recording.notes.append(IN_MEMORY)
    for number, trace in enumerate(sample.traces, 1):
        name = f"trace {number}, seed {trace.seed}, choice {trace.choice}"
        if trace.constrained:
            recording.lacks.append(Lack(name, "a grammar held it, which traces do not keep"))
        else:
            recording.answers.append(NamedAnswer(name, _question(trace, in_memory)))
    return recording


def _question(trace: Trace, cut: bool) -> Question:
    prompt = trace.prompt_ids
    request = GenerationRequest(tokens=prompt, prompt_length=len(prompt), params=trace.params, choice=trace.choice)
    return Question(request, RecordedIds(trace.output_ids, cut=cut))


def _foreign(config: ServiceConfig, service: Service) -> Callable[[Trace], bool]:
    """Tells traces that the target of the configuration did not or cannot have made."""
    root = None if config.bundle is None else bundle_root(config)

    @cache
    def same_target(version: str) -> bool:
        try:
            return root is None or show(root, version).target == public_name(config.target.model)
        except ConfigError:
            return False

    def foreign(trace: Trace) -> bool:
        if trace.bundle is not None and not same_target(trace.bundle):
            return True
        tokens = trace.tokens
        return len(tokens) > service.context or not 0 <= min(tokens) <= max(tokens) < service.vocab_size

    return foreign
