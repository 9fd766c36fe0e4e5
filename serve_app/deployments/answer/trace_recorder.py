"""Keeps the answers of an ingress replica for training, off the path of the requests.

Only finished answers are kept, each choice as a trace of its own, and none whose client sent `store: false`. Nothing of
a trace tells whose it is: neither API keys nor their digests are part of it. With `in_memory` a client has a bounded
number of answers kept, on a memory file system, and of each only what training needs.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import msgspec

from core.errors import ConfigError
from core.generation import Run, Source
from core.traces.memory_files import EXAMPLE, disk_at, make_private, mark
from core.traces.reservoir import TraceReservoir
from core.traces.store import Proposals, Trace, TraceStore
from core.traces.writer import PendingTraces, TraceQueue, TraceWriter
from serve_app.config import Traces
from serve_app.deployments.answer.draft_sessions import DraftSessions
from serve_app.deployments.answer.generation_state import GenerationState
from serve_app.deployments.models.served_models import ServedModels
from serve_app.deployments.telemetry.metrics import Metrics
from serve_app.http.service import ChoiceRun

Keep = Callable[[Trace, str | None], None]  # a trace, and who stands for its client
_MINUTE = 60.0


class TraceRecorder:
    """The traces of all generations of a replica. Its thread writes them until it is closed.

    Raises `ConfigError` if they are to be kept in memory, and this machine or user cannot.
    """

    def __init__(self, traces: Traces) -> None:
        self._in_memory = traces.in_memory
        if self._in_memory:
            _prepare(traces.directory)
        store = TraceStore(traces.directory, traces.max_bytes, traces.max_days)
        self._writer = TraceWriter(store, _waiting(traces), traces.redaction)
        self._metrics = Metrics("traces", gauges=frozenset())

    def recording(
        self, received: GenerationState, wiring: DraftSessions | None, served: ServedModels
    ) -> Recording | None:
        """The recording of a generation that begins now; None if the client does not want it kept."""
        if not received.request(0).store:
            return None
        return Recording(received, wiring, served, self._keep)

    def _keep(self, trace: Trace, owner: str | None) -> None:
        self._writer.add(_needed(trace) if self._in_memory else trace, owner)

    def counts(self) -> Counter[str]:
        """What was written and dropped. The writer's thread may count meanwhile, so this is a copy."""
        return self._writer.counts.copy()

    def export(self) -> None:
        """Export what was written and dropped."""
        self._metrics.export(self.counts())

    def close(self) -> None:
        """Write what waits; nothing may be recorded afterwards."""
        self._writer.close()


class Recording:
    """The choices of one generation, each of which becomes a trace when it ends."""

    def __init__(
        self,
        received: GenerationState,
        wiring: DraftSessions | None,
        served: ServedModels,
        keep: Keep,
    ) -> None:
        self._received = received
        self._wiring = wiring
        self._served = served
        self._keep = keep
        self._began = time.monotonic()
        self._tallies: defaultdict[int, Tally] = defaultdict(lambda: Tally(self._elapsed()))

    def take(self, choice_run: ChoiceRun) -> None:
        """A run has been received."""
        tally = self._tallies[choice_run.choice]
        tally.add(choice_run.run)
        if choice_run.run.finish_reason is not None:
            self._keep(self._trace(choice_run, tally), self._received.request(choice_run.choice).owner)

    def _trace(self, last: ChoiceRun, tally: Tally) -> Trace:
        prior = None if self._wiring is None else self._wiring.prior
        directory = self._served.drafts.get(last.task) if "draft" in tally.sources else None
        return msgspec.structs.replace(
            Trace.of(self._received.request(last.choice), ()),
            task=last.task,
            prior=None if prior is None else dict(prior),
            bundle=self._served.version,
            adapter=None if directory is None else Path(directory).name,
            proposed=tally.proposed.total(),
            accepted=tally.accepted.total(),
            sources=tally.sources,
            target_passes=tally.passes,
            first_token_s=tally.first_token_s,
            total_s=self._elapsed(),
            ended_at=time.time(),
        )

    def _elapsed(self) -> float:
        return time.monotonic() - self._began


class Tally:
    """The counts of one choice; `passes` is without the first run, which the prefill gives."""

    def __init__(self, first_token_s: float) -> None:
        self.first_token_s = first_token_s
        self.passes = -1
        self.proposed: Counter[Source] = Counter()
        self.accepted: Counter[Source] = Counter()

    def add(self, run: Run) -> None:
        self.passes += 1
        if run.proposed:
            self.proposed[run.source] += run.proposed
            self.accepted[run.source] += run.accepted

    @property
    def sources(self) -> dict[str, Proposals]:
        return {source: Proposals(number, self.accepted[source]) for source, number in self.proposed.items()}


def _waiting(traces: Traces) -> PendingTraces:
    if traces.in_memory:
        return TraceReservoir(traces.per_key, traces.flush_seconds, traces.queue)
    return TraceQueue(traces.flush_records, traces.flush_seconds, traces.queue)


def _prepare(directory: Path) -> None:
    """Make the directory, for this user alone, and mark it. Nodes differ, so this one is asked for its disks again."""
    if disk := disk_at(directory):
        raise ConfigError(f"traces.directory: {directory} is on a file system of type {disk} here, not in memory")
    try:
        make_private(directory)
        mark(directory)
    except OSError as error:
        raise ConfigError(f"traces.directory: {error}; write a new directory, such as {EXAMPLE}/traces") from error


def _needed(trace: Trace) -> Trace:
    """What is learned from, watched for drift or replayed: no times but the minute, and no texts of the client."""
    ended_at = None if trace.ended_at is None else trace.ended_at // _MINUTE * _MINUTE
    params = msgspec.structs.replace(trace.params, stop=(), logprobs=None, prompt_logprobs=None)
    return Trace(
        prompt_ids=trace.prompt_ids,
        output_ids=trace.output_ids,
        params=params,
        choice=trace.choice,
        task=trace.task,
        prior=trace.prior,
        bundle=trace.bundle,
        sources=trace.sources,
        ended_at=ended_at,
    )
