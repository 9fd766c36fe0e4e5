"""Keeps the answers of an ingress replica for training, off the path of the requests.

Only finished answers are kept, each choice as a trace of its own, and none whose client sent `store: false`. Nothing of
a trace tells whose it is: neither API keys nor their digests are part of it. With `in_memory` a bounded number of
a client's answers is kept, on a memory file system, and of each only what training needs.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import msgspec

from core.errors import ConfigError
from core.generation import GenerationRequest
from core.traces.memory_files import EXAMPLE, disk_at, make_private, mark
from core.traces.reservoir import TraceReservoir
from core.traces.store import Proposals, Trace, TraceStore
from core.traces.writer import PendingTraces, TraceQueue, TraceWriter
from serve_app.config import Traces
from serve_app.deployments.answer.generation import Generation
from serve_app.deployments.models.served_models import ServedModels
from serve_app.deployments.telemetry.metrics import Metrics
from serve_app.http.ledger import AnswerLedger, by_source

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

    def record(
        self, generation: Generation, choice: int, served: ServedModels, prior: Mapping[str, float] | None
    ) -> None:
        """Keep a choice that has finished, unless its client does not want that. `prior` is what the router said."""
        request = generation.resumed(choice)
        if request.store:
            trace = _trace(request, generation.ledger, choice, served, prior)
            self._writer.add(_needed(trace) if self._in_memory else trace, request.owner)

    def counts(self) -> Counter[str]:
        """What was written and dropped. The writer's thread may count meanwhile, so this is a copy."""
        return self._writer.counts.copy()

    def export(self) -> None:
        """Export what was written and dropped."""
        self._metrics.export(self.counts())

    def close(self) -> None:
        """Write what waits; nothing may be recorded afterwards."""
        self._writer.close()


def _trace(
    request: GenerationRequest,
    ledger: AnswerLedger,
    choice: int,
    served: ServedModels,
    prior: Mapping[str, float] | None,
) -> Trace:
    entry = ledger.choices[choice]
    sources = {
        source: Proposals(counts.proposed, counts.accepted) for source, counts in by_source(entry.lines.items()).items()
    }
    directory = served.drafts.get(entry.task) if "draft" in sources else None
    return msgspec.structs.replace(
        Trace.of(request, ()),
        constrained=bool(request.params.grammar),
        task=entry.task,
        prior=None if prior is None else dict(prior),
        bundle=served.version,
        adapter=None if directory is None else Path(directory).name,
        proposed=sum(proposals.proposed for proposals in sources.values()),
        accepted=sum(proposals.accepted for proposals in sources.values()),
        sources=sources,
        target_passes=entry.passes,
        first_token_s=entry.first_at - ledger.began,
        total_s=(entry.ended_at or entry.first_at) - ledger.began,
        ended_at=time.time(),
    )


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
        constrained=trace.constrained,
        task=trace.task,
        prior=trace.prior,
        bundle=trace.bundle,
        sources=trace.sources,
        ended_at=ended_at,
    )
