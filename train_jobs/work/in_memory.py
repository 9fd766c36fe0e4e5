"""Retrainings that leave nothing of a prompt on a disk: those of traces that a service keeps in memory.

Their work directory is on a memory file system too. What stages pass to each other, prompts and answers among it, goes
through that directory and not through Ray, which may move what it holds to a disk. At the end of a retraining, however
it ends, all but its report is removed.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.errors import ConfigError
from core.traces.memory_files import EXAMPLE, disk_at, make_private, marked
from train_jobs.config import RetrainConfig

_TRIES, _PAUSE = 50, 0.1  # seconds; workers that are being stopped may write meanwhile
_log = logging.getLogger(__name__)


def learns_in_memory(config: RetrainConfig) -> bool:
    """Whether the service that recorded the traces keeps them in memory."""
    return config.collect.traces is not None and marked(config.collect.traces)


def prepare(config: RetrainConfig, *, every_stage: bool = True) -> None:
    """Before anything is written: see that prompts reach no disk, and make the work directory private.

    Raises `ConfigError` if they would, or if only some of the stages are to run: their results would stay.
    """
    if not learns_in_memory(config):
        return
    why = f"the answers in {config.collect.traces} are kept in memory (`traces: {{in_memory: true}}`)"
    if not every_stage:
        raise ConfigError(f"{why}, and a stage alone would leave some behind: use `taskspec retrain`, which does not")
    if disk := disk_at(config.work):
        raise ConfigError(
            f"work: {config.work} is on a file system of type {disk}, and {why}: write work: {EXAMPLE}/work, or "
            "another directory on a tmpfs"
        )
    try:
        make_private(config.work)
    except OSError as error:
        raise ConfigError(f"work: {error}; write a new directory, such as {EXAMPLE}/work") from error


@contextmanager
def forgetting(config: RetrainConfig, *directories: Path) -> Iterator[None]:
    """Remove these directories at the end of the block, however it ends, if the prompts are kept in memory."""
    forget = learns_in_memory(config)
    try:
        yield
    finally:
        if forget:
            for directory in directories:
                _remove(directory)


def _remove(directory: Path) -> None:
    for _ in range(_TRIES):
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            return
        time.sleep(_PAUSE)
    _log.warning("%s could not be removed; it is in memory, and has prompts or answers", directory)
