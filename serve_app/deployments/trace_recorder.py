"""Keeps the answers of an ingress replica for training, off the path of the requests.

Only finished answers are kept, each choice as a trace of its own, and none whose client sent `store: false`. Nothing of
a trace tells whose it is: neither API keys nor their digests are part of it.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import msgspec

from core.distill.trace_writer import TraceQueue, TraceWriter
from core.distill.traces import Proposals, Trace, TraceStore
from core.generation import Run, Source
from serve_app.config import Traces
from serve_app.deployments.draft_sessions import DraftSessions
from serve_app.deployments.generation_state import GenerationState
from serve_app.deployments.metrics import Metrics
from serve_app.deployments.served_models import ServedModels
from serve_app.openai.service import ChoiceRun


class TraceRecorder:
    """The traces of all generations of a replica. Its thread writes them until it is closed."""

    def __init__(self, traces: Traces) -> None:
        store = TraceStore(traces.directory, traces.max_bytes, traces.max_days)
        queue = TraceQueue(traces.flush_records, traces.flush_seconds, traces.queue)
        self._writer = TraceWriter(store, queue, traces.redaction)
        self._metrics = Metrics("traces", gauges=frozenset())

    def recording(
        self, received: GenerationState, wiring: DraftSessions | None, served: ServedModels
    ) -> Recording | None:
        """The recording of a generation that begins now; None if the client does not want it kept."""
        if not received.request(0).store:
            return None
        return Recording(received, wiring, served, self._writer.add)

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
        keep: Callable[[Trace], None],
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
            self._keep(self._trace(choice_run, tally))

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
