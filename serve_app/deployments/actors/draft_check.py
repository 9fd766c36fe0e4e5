"""The deployment that replays samples of drafted answers, and tells drafts that do worse in service than they ought to.

It is a process of its own, which loads each draft anew from where the pools load it. So what has broken in a pool is
not broken here. It computes on a CPU, on one thread of the lowest priority. Drafts take turns, and after each it rests,
so that it takes `SHARE` of a core. Nothing waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from core.draft_key import DraftKey
from core.model.base import Model, drawable_ids
from core.model_names import locate
from core.replay.decay import WINDOW, Agreement, DecayWatch, DraftedAnswer, DraftRecord, agreement
from core.text.vocabulary import same_id_map
from serve_app.application_names import draft_key
from serve_app.config import ServiceConfig
from serve_app.deployments.models.draft_loading import load_draft
from serve_app.deployments.telemetry.decay_metrics import DecayMetrics
from serve_app.deployments.telemetry.replica_log import log_into_replica
from serve_app.deployments.telemetry.reports import DraftCheckReport

SHARE = 0.01  # of a core
FAILED_REST = 60.0  # seconds, after a turn that failed
STALE = 3600.0  # seconds without an answer, after which a draft is forgotten: it serves no more, or nobody asks it

logger = logging.getLogger(__name__)


class Turn(NamedTuple):
    """What a replay found: of its answers, and how the draft does by now; and the seconds of a core that it took."""

    total: Agreement
    record: DraftRecord | None
    seconds: float


class DraftCheck:
    """The one replica of the check."""

    share = SHARE

    def __init__(self, config: ServiceConfig) -> None:
        log_into_replica()
        draft = config.draft
        self._draft = draft.model_copy(update={"device": "cpu", "max_sessions": 1})
        self._target = config.target.model
        self._watch = DecayWatch()
        self._records: dict[DraftKey, DraftRecord] = {}
        self._replayed_at: dict[DraftKey, float] = {}
        self._tasks: dict[DraftKey, str] = {}  # by their names, as operators know them
        self._totals: dict[DraftKey, Agreement] = {}
        self._metrics = DecayMetrics()
        self._thread = ThreadPoolExecutor(1, "replay", initializer=_lower_priority)
        self._waiting: dict[DraftKey, deque[DraftedAnswer]] = {}  # the draft whose turn is next stands first
        self._turn: asyncio.Task[None] | None = None
        self._free_at = -float("inf")
        self._model: tuple[str | None, Model[Any]] | None = None
        self._failures: set[DraftKey] = set()

    async def take(self, answers: Sequence[DraftedAnswer]) -> None:
        """Take answers for a later turn of their draft, instead of the oldest that wait for it."""
        for answer in answers:
            key = draft_key(answer.task, answer.directory)
            self._tasks[key] = answer.task
            self._waiting.setdefault(key, deque(maxlen=WINDOW)).append(answer)

    def report(self) -> DraftCheckReport:
        """What `taskspec status` shows."""
        drafts = Counter(self._tasks[key] for key in self._records)  # a canary may serve a task, too
        names = {key: self._tasks[key] if drafts[self._tasks[key]] == 1 else str(key) for key in self._records}
        return DraftCheckReport({names[key]: record for key, record in self._records.items()})

    async def check_health(self) -> None:
        """Serve calls this every second: the time to begin a turn."""
        self._forget_stale(time.monotonic())
        self._metrics.export(self._totals, self._records)
        idle = self._turn is None or self._turn.done()
        if self._waiting and idle and time.monotonic() >= self._free_at:
            self._turn = asyncio.create_task(self._replay(next(iter(self._waiting))))

    async def _replay(self, key: DraftKey) -> None:
        """The turn of one draft: its loading may take longer than the replay of its answers."""
        answers, began = self._waiting.pop(key), time.monotonic()
        loop = asyncio.get_running_loop()
        try:
            turn = await loop.run_in_executor(self._thread, self._replayed, key, answers)
        except Exception as error:  # whatever damaged files raise, the service goes on
            if key not in self._failures:
                logger.warning("the draft of %s is not checked: %s", self._tasks[key], error, exc_info=True)
            self._failures.add(key)
            self._free_at = began + FAILED_REST
            return
        self._totals[key] = self._totals.get(key, Agreement()).plus(turn.total)
        if turn.record is not None:
            self._note(key, turn.record)
        self._free_at = began + turn.seconds / self.share

    def _note(self, key: DraftKey, record: DraftRecord) -> None:
        before = self._records.get(key)
        self._records[key], self._replayed_at[key] = record, time.monotonic()
        was_decayed = before is not None and before.decayed
        if record.decayed and not was_decayed:
            logger.warning("%s", alert(self._tasks[key], record))
        elif was_decayed and not record.decayed:
            logger.warning(
                "the draft of %s does again what it ought to: %.3f accepted", self._tasks[key], record.accepted
            )

    def _forget_stale(self, now: float) -> None:
        for key in [key for key, at in self._replayed_at.items() if now - at > STALE]:
            del self._records[key], self._replayed_at[key], self._totals[key], self._tasks[key]
            self._watch.forget(str(key))
            self._metrics.forget(key)

    def _replayed(self, key: DraftKey, answers: Sequence[DraftedAnswer]) -> Turn:
        began, total = time.thread_time(), Agreement()
        model = self._loaded(answers[0].directory)
        ids = drawable_ids(model.head_ids, same_id_map(locate(self._target), locate(self._draft.model)))
        for answer in answers:
            result = agreement(model, ids, answer)
            self._watch.add(str(key), result)
            total = total.plus(result)
        return Turn(total, self._watch.record(str(key)), time.thread_time() - began)

    def _loaded(self, directory: str | None) -> Model[Any]:
        if self._model is None or self._model[0] != directory:
            self._model = None  # the memory of one draft is enough
            self._model = directory, load_draft(self._draft, directory, self._target)
        return self._model[1]


def alert(task: str, record: DraftRecord) -> str:
    """What is wrong with a draft, and what to do."""
    gap = record.gap
    return (
        f"the draft of {task} has decayed: {record.accepted:.3f} of its tokens are accepted in service, and "
        f"{record.replayed:.3f} in a replay of the same {record.answers} answers, a gap of {gap.low:.3f} to "
        f"{gap.high:.3f}. Answers stay exact and are slower. Traffic is not the cause: restart its replicas, by "
        f"`taskspec scale {task}=0` and then as many as there were. If that does not help, its files have changed."
    )


def _lower_priority() -> None:
    """Of the calling thread alone; those that answer health checks keep theirs."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
