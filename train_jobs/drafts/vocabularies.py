"""The draft vocabulary of every promoted draft: the ids that its task uses, if a smaller head pays.

Cost and acceptance are measured on the machine that evaluates, so the choice depends on it. Without sizes to choose
from every draft keeps its whole head.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from core.bundle.store import Winner
from core.model.config import ModelConfig
from core.model.draft_vocabulary import DraftVocabulary, most_frequent
from core.replay.replay import NUM_SPECULATIVE_TOKENS, total
from core.replay.vocabulary_size import MeasuredSize, choose_size, score_vocabularies, seconds_per_token
from train_jobs.cluster.progress import ReportProgress
from train_jobs.drafts.loading import load_draft, target_costs
from train_jobs.work.in_memory import learns_in_memory
from train_jobs.work.models import model_directory, replay_terms, target_tokenizer
from train_jobs.work.workspace import Workspace

_MOST_RECORDS = 64  # of a task, replayed with every vocabulary
_SEVERAL = 5  # answers that must have an id, or it is not published when answers are kept in memory only


class PromotedDraft(NamedTuple):
    """The winner of a slot, and the task whose prompts it serves; None stands for all."""

    slot: str
    task: int | None
    winner: Winner


class VocabularyChooser:
    """A worker that measures the target once, then cuts the head of one draft after another."""

    def __init__(self, work: Workspace, report: ReportProgress) -> None:
        self._work = work
        self._report = report
        self._terms = replay_terms(work.config)
        self._pass_seconds = _pass_seconds(work)

    def work(self, promoted: PromotedDraft) -> tuple[str, Winner]:
        """The slot, and its winner with the vocabulary of the best goodput beside a copy of its files."""
        slot, task, winner = promoted
        if winner.directory is None:  # the configured draft is not ours to change
            return slot, winner
        vocabularies = self._vocabularies(task)
        measured = self._measure(winner.directory, vocabularies, task)
        chosen = choose_size(measured[0], measured[1:], self._pass_seconds, NUM_SPECULATIVE_TOKENS)
        self._report(f"vocabulary of {slot}", 1, 1, f"{chosen.size} ids")
        if chosen is measured[0]:
            return slot, winner
        vocabulary = vocabularies[measured.index(chosen) - 1]
        copy = winner.directory.with_name(f"{winner.directory.name}-{len(vocabulary.ids)}-ids")
        shutil.copytree(winner.directory, copy, dirs_exist_ok=True)
        vocabulary.save(copy)
        reason = f"{winner.reason}; its head has {len(vocabulary.ids)} of {vocabulary.target_size} ids"
        return slot, msgspec.structs.replace(winner, directory=copy, reason=reason)

    def _vocabularies(self, task: int | None) -> list[DraftVocabulary]:
        """Of every size, the ids that the training answers use most; those that end an answer are always in."""
        traces, numbers = self._work.traces("train"), self._work.tasks().numbers("train", task)
        counts = Counter(token for number in numbers for token in traces[number].output_ids)
        if learns_in_memory(self._work.config):
            answers = Counter(token for number in numbers for token in set(traces[number].output_ids))
            counts = Counter({token: count for token, count in counts.items() if answers[token] >= _SEVERAL})
        ends = target_tokenizer(self._work.config).eos_ids
        sizes = sorted({min(size, self._terms.num_valid) for size in self._work.config.evaluate.vocabulary_sizes})
        vocab_size = ModelConfig.load(model_directory(self._work.config.draft)).vocab_size
        return [DraftVocabulary.from_ids(most_frequent(counts, size, ends), vocab_size) for size in sizes]

    def _measure(
        self, directory: Path, vocabularies: Sequence[DraftVocabulary], task: int | None
    ) -> list[MeasuredSize]:
        """The whole head first."""
        numbers, stop = self._work.tasks().numbers("stop", task)[:_MOST_RECORDS], self._work.traces("stop")
        scores = score_vocabularies(
            load_draft(self._work.config, directory),
            [None, *vocabularies],
            [stop[number] for number in numbers],
            self._terms,
        )
        measured = []
        for vocabulary, counts in zip([None, *vocabularies], scores, strict=True):
            size = self._terms.num_valid if vocabulary is None else len(vocabulary.ids)
            model = load_draft(self._work.config, directory, vocabulary)
            seconds = seconds_per_token(model, self._terms.num_valid, time.perf_counter, sampled=True)
            measured.append(MeasuredSize(size, seconds, total(counts).tokens_per_pass))
        return measured


def _pass_seconds(work: Workspace) -> float:
    """Of a target pass that checks a whole proposal."""
    return target_costs(work.config).seconds(1 + NUM_SPECULATIVE_TOKENS)
