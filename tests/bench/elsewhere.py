"""Rows of the paper's table that were measured before: by the last retraining and by the other benchmarks.

Enters: the folder of results. Leaves: a row each, which names the command that makes its file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from tests.family.corpora import TASKS
from train_jobs.work.findings import Findings, SlotFindings

FINDINGS = Path("retrain-family/findings.json")
STUDIES = Path("retrain-studies/findings.json")
_RETRAINING = "taskspec retrain --config train_jobs/configs/family.yaml"
_DECODE, _STREAMS = "python -m tests.bench.decode", "python -m tests.bench.streams"
_LARGER = ("300m", "1b")
_NOT_YET = "not measured yet"


class Row(NamedTuple):
    """An experiment or open point, what was done about it here, what was found, and the command that finds it."""

    point: str
    done: str
    found: str
    command: str


class Times(msgspec.Struct, frozen=True):
    """So many times as fast, with the 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


class Contender(msgspec.Struct, frozen=True):
    """A way of decoding, in `tests.bench.decode`."""

    times_plain: Times


class Place(msgspec.Struct, frozen=True):
    """Where and how it was measured there."""

    where: str
    temperature: float
    contenders: dict[str, Contender]


class Decoded(msgspec.Struct, frozen=True):
    """What `tests.bench.decode` found, as far as it is told here."""

    places: list[Place]


class Level(msgspec.Struct, frozen=True):
    """A number of streams in `tests.bench.streams`."""

    streams: int
    times_plain: dict[str, Times]


class Streamed(msgspec.Struct, frozen=True):
    """What `tests.bench.streams` found, as far as it is told here."""

    levels: list[Level]


def findings(results: Path) -> Findings | None:
    """Of the retraining that made the shipped bundle, where they are kept."""
    return Findings.load(results / FINDINGS) if (results / FINDINGS).exists() else None


def studies(results: Path) -> Findings | None:
    """Of the retraining whose studies are kept."""
    return Findings.load(results / STUDIES) if (results / STUDIES).exists() else None


def speed(results: Path) -> Row:
    """Experiment 1 by the clock."""
    file = results / "decode" / "decode.json"
    found = _speeds(file) if file.exists() else _NOT_YET
    return Row("experiment 1, speed", "general and routed draft against plain decoding, by the clock", found, _DECODE)


def number_of_tasks(found: Findings | None) -> Row:
    """Experiment 2."""
    point, done = "experiment 2", "number of tasks k against acceptance; one total of training steps for every k"
    return Row(point, done, _NOT_YET if found is None else _by_k(found), _RETRAINING)


def mixed_batches(results: Path) -> Row:
    """Open point 1."""
    file = results / "streams" / "streams.json"
    found = _by_streams(file) if file.exists() else _NOT_YET
    done = "batches above 1 with a different draft for every prompt, times plain decoding of as many streams"
    return Row("open 1", done, found, _STREAMS)


def k_without_a_human(found: Findings | None) -> Row:
    """Open point 2."""
    done = f"k from the data alone; {len(TASKS)} tasks were generated"
    return Row("open 2", done, _NOT_YET if found is None else _k_found(found), _RETRAINING)


def larger_targets(results: Path) -> Row:
    """Open point 3."""
    there = [size for size in _LARGER if _of_size(results, size).exists()]
    missing = [size for size in _LARGER if size not in there]
    told = [f"{size}: {_speeds(_of_size(results, size))}" for size in there]
    commands = "; ".join(
        f"{_DECODE} --size {size} --out {_of_size(Path('tests/bench/results'), size).parent}" for size in _LARGER
    )
    told += [f"{size}: {_NOT_YET}" for size in missing]
    return Row(
        "open 3",
        "larger targets, by the clock: expansions with the shipped target's answers and the cost of their size",
        "; ".join([*told, "13B and more: needs a GPU, not measured"]),
        commands,
    )


def overfit(found: Findings | None) -> Row:
    """The limit of 8,192 pairs."""
    done = "acceptance against the number of answers learnt from, with and without an early stop"
    return Row("limit: 8,192 pairs", done, _NOT_YET if found is None else _by_pairs(found), _RETRAINING)


def _of_size(results: Path, size: str) -> Path:
    return results / f"decode-{size}" / "decode.json"


def _speeds(file: Path) -> str:
    places = msgspec.json.decode(file.read_bytes(), type=Decoded).places
    return "; ".join(
        f"{place.where}, temperature {place.temperature:g}: general {place.contenders['general'].times_plain}, "
        f"routed {place.contenders['task'].times_plain} times plain"
        for place in places
    )


def _by_streams(file: Path) -> str:
    levels = msgspec.json.decode(file.read_bytes(), type=Streamed).levels
    useful, useless = (
        ", ".join(f"{level.times_plain[name]} at {level.streams}" for level in levels) for name in ("task", "useless")
    )
    return f"routed drafts: {useful}; useless drafts: {useless}"


def _by_k(found: Findings) -> str:
    tried = "; ".join(f"k = {point.k}: {point.acceptance:.3f}" for point in found.ks if point.acceptance is not None)
    own = {pooled.name: pooled.acceptance_rate for pooled in _all(found).pooled}
    return (
        f"{tried}. With steps for every task, and as many in all for the one adapter of all tasks: "
        f"k = {found.k}: {own['task']:.3f}, one adapter: {own['mixed']:.3f}, un-adapted: {own['general']:.3f}"
    )


def _all(found: Findings) -> SlotFindings:
    """The row of all prompts."""
    [slot] = [slot for slot in found.slots if slot.task == "all"]
    return slot


def _k_found(found: Findings) -> str:
    return "; ".join(_told_of_k(found))


def _told_of_k(found: Findings) -> Iterator[str]:
    yield f"k = {found.k} found"
    if found.purity is not None:
        yield f"purity {found.purity:.3f} on held-out prompts"
    for classifier in found.routing.classifiers[:1] if found.routing else ():
        yield f"the router agrees on {classifier.agreement:.3f} of them, {classifier.reworded:.3f} reworded"


def _by_pairs(found: Findings) -> str:
    points = "; ".join(f"{point.pairs:,}: {point.stopped:.3f} / {point.unstopped:.3f}" for point in found.pairs)
    return f"stopped at its best / at its end: {points}"


def k_table(found: Findings) -> Sequence[str]:
    """Markdown: how well every number of tasks fits, and its acceptance."""
    lines = ["| k | silhouette | of permuted embeddings | reappearance | acceptance rate |", "|---|---|---|---|---|"]
    for point in found.ks:
        figures = (point.silhouette, point.permuted_silhouette, point.reappearance, point.acceptance)
        cells = " | ".join("" if figure is None else f"{figure:.3f}" for figure in figures)
        lines.append(f"| {point.k} | {cells} |")
    return lines
