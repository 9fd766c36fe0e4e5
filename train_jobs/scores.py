"""What drafts would have done on held-out traces, and where that is kept.

Enters: drafts by name and numbers of traces. Leaves: exact counts per trace, a file per draft.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import msgspec
import torch

from core.acceptance import Acceptance, score
from core.durable import replace
from core.family import locate
from core.model.base import Model
from core.model.causal_lm import load_model
from core.model.config import ModelConfig
from core.model.loader import resolve
from core.model.pages import PAGE_SIZE
from train_jobs import align, collect
from train_jobs.collected import Collected, Part
from train_jobs.config import RetrainConfig
from train_jobs.progress import Progress, Report
from train_jobs.workers import spread

Numbers = dict[Part, list[int]]


class Scoring(msgspec.Struct, frozen=True):
    """A draft to score (an adapter, a whole draft, or None for the draft as it is), and on which traces."""

    name: str
    draft: Path | None
    numbers: Numbers


class Scores:
    """Counts of drafts by name."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read = cache(self._load)

    def has(self, name: str) -> bool:
        return self._file(name).exists()

    def of(self, name: str, part: Part, numbers: Sequence[int]) -> list[Acceptance]:
        """Of these traces, in order."""
        found = self._read(name)[part]
        return [found[number] for number in numbers]

    def keep(self, name: str, found: dict[Part, dict[int, Acceptance]]) -> None:
        replace(self._file(name), msgspec.json.encode(found))

    def _load(self, name: str) -> dict[Part, dict[int, Acceptance]]:
        return msgspec.json.decode(self._file(name).read_bytes(), type=dict[Part, dict[int, Acceptance]])

    def _file(self, name: str) -> Path:
        return self._directory / f"{name}.json"


def score_all(
    config: RetrainConfig, directory: Path, wanted: Sequence[Scoring], stage: str, progress: Progress
) -> Scores:
    """Score all drafts that have not been; the same draft under one name is scored once."""
    scores = Scores(directory)
    missing = [scoring for scoring in wanted if not scores.has(scoring.name)]
    work = sum(len(numbers) for scoring in missing for numbers in scoring.numbers.values())
    with progress.stage(stage, len(missing), work) as report:
        for _ in spread(Scorer, config.evaluate.worker, missing, config, directory, report):
            pass
    return scores


class Scorer:
    """A worker with the held-out traces at hand."""

    def __init__(self, config: RetrainConfig, directory: Path, report: Report) -> None:
        self._config = config
        self._scores = Scores(directory)
        self._report = report
        self._terms = align.terms(config)
        self._traces = cache(Collected(collect.unit(config).directory).traces)
        torch.set_num_threads(config.evaluate.worker.num_cpus)

    def work(self, scoring: Scoring) -> None:
        model, found = self._load(scoring.draft), dict[Part, dict[int, Acceptance]]()
        done, total = 0, sum(map(len, scoring.numbers.values()))
        for part, numbers in scoring.numbers.items():
            traces, found[part] = self._traces(part), {}
            for number in numbers:
                [found[part][number]] = score(model, [traces[number]], self._terms)
                done += 1
                self._report(scoring.name, done, total, "")
        self._scores.keep(scoring.name, found)

    def _load(self, draft: Path | None) -> Model:
        adapter = draft if draft is not None and (draft / "adapter_config.json").exists() else None
        path = resolve(locate(self._config.draft)) if draft is None or adapter else draft
        pages = -(-ModelConfig.load(path).context // PAGE_SIZE)
        return load_model(path, dtype=torch.float32, device=self._config.align.device, num_pages=pages, adapter=adapter)
