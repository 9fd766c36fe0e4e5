"""The deployment that replays samples of drafted answers, and tells drafts that do worse in service than they ought to.

It is a process of its own, which loads each draft anew from where the pools load it. So what has broken in a pool is
not broken here. It computes on a CPU, on one thread of the lowest priority, and rests after each batch, so that it
takes `SHARE` of a core. Samples that come meanwhile are refused. Nothing waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from core.draft_key import DraftKey
from core.errors import TaskSpecError
from core.model.base import Model, drawable_ids
from core.model_names import locate
from core.replay.decay import Agreement, DecayWatch, DraftedAnswer, DraftRecord, agreement
from core.text.vocabulary import same_id_map
from serve_app.application_names import draft_key
from serve_app.config import ServiceConfig
from serve_app.deployments.models.draft_loading import load_draft
from serve_app.deployments.telemetry.decay_metrics import DecayMetrics
from serve_app.deployments.telemetry.replica_log import log_into_replica
from serve_app.deployments.telemetry.reports import DraftCheckReport

SHARE = 0.01  # of a core
BUSY = 5.0  # seconds until a batch is taken, while another is replayed
FAILED_REST = 600.0  # seconds, after a batch that could not be replayed

logger = logging.getLogger(__name__)


class DraftCheck:
    """The one replica of the check."""

    share = SHARE

    def __init__(self, config: ServiceConfig) -> None:
        log_into_replica()
        draft = config.draft
        self._draft = draft.model_copy(update={"device": "cpu", "max_sessions": 1})
        self._target = config.target.model
        self._num_valid = same_id_map(locate(config.target.model), locate(draft.model))
        self._watch = DecayWatch()
        self._records: dict[DraftKey, DraftRecord] = {}
        self._tasks: dict[DraftKey, str] = {}  # by their names, as operators know them
        self._totals: dict[DraftKey, Agreement] = {}
        self._metrics = DecayMetrics()
        self._thread = ThreadPoolExecutor(1, "replay", initializer=_lower_priority)
        self._work: asyncio.Task[None] | None = None
        self._free_at = -float("inf")
        self._model: tuple[str | None, Model[Any]] | None = None
        self._failures: Counter[str] = Counter()

    async def check(self, answers: Sequence[DraftedAnswer]) -> float:
        """Take these answers, and return 0; or the seconds until some will be taken."""
        if self._work is not None and not self._work.done():
            return BUSY
        if (rest := self._free_at - time.monotonic()) > 0.0:
            return rest
        self._work = asyncio.create_task(self._replay(answers))
        return 0.0

    def report(self) -> DraftCheckReport:
        """What `taskspec status` shows."""
        return DraftCheckReport({self._tasks[key]: record for key, record in self._records.items()})

    async def check_health(self) -> None:
        self._metrics.export(dict(self._totals), self._records)

    async def _replay(self, answers: Sequence[DraftedAnswer]) -> None:
        loop, began = asyncio.get_running_loop(), time.monotonic()
        try:
            records, seconds = await loop.run_in_executor(self._thread, self._replayed, answers)
        except Exception:  # whatever a damaged file raises, the service goes on
            logger.exception("the check of drafts")
            self._free_at = began + FAILED_REST
            return
        self._tasks |= {draft_key(answer.task, answer.directory): answer.task for answer in answers}
        for key, record in records.items():
            self._note(key, record)
        self._free_at = began + seconds / self.share

    def _note(self, key: DraftKey, record: DraftRecord) -> None:
        before = self._records.get(key)
        # an earlier draft of the task serves no more
        self._records = {other: it for other, it in self._records.items() if other.task != key.task} | {key: record}
        was_decayed = before is not None and before.decayed
        if record.decayed and not was_decayed:
            logger.warning("%s", alert(self._tasks[key], record))
        elif was_decayed and not record.decayed:
            logger.warning("the draft of %s does again what it ought to: %.3f accepted", key.task, record.accepted)

    def _replayed(self, answers: Sequence[DraftedAnswer]) -> tuple[dict[DraftKey, DraftRecord], float]:
        """Replay answers, draft by draft: how each draft does by now, and the seconds of a core that it took."""
        began, keys = time.thread_time(), set[DraftKey]()
        for answer in sorted(answers, key=lambda answer: answer.directory or ""):
            try:
                model = self._loaded(answer.directory)
            except (TaskSpecError, OSError) as error:
                self._note_failure(answer.task, error)
                continue
            ids = drawable_ids(model.head_ids, self._num_valid)
            key, result = draft_key(answer.task, answer.directory), agreement(model, ids, answer)
            self._totals[key] = self._totals.get(key, Agreement()).plus(result)
            self._watch.add(str(key), result)
            keys.add(key)
        records = {key: record for key in keys if (record := self._watch.record(str(key))) is not None}
        return records, time.thread_time() - began

    def _loaded(self, directory: str | None) -> Model[Any]:
        if self._model is None or self._model[0] != directory:
            self._model = None  # the memory of one draft is enough
            self._model = directory, load_draft(self._draft, directory, self._target)
        return self._model[1]

    def _note_failure(self, task: str, error: Exception) -> None:
        self._failures[task] += 1
        if self._failures[task] == 1:
            logger.warning("the draft of %s is not checked: %s", task, error)


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
