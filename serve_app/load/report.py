"""The report of `taskspec bench`, as tables and notes for a terminal or as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from serve_app.load.figures import Figures, GoodputLimits, Spread
from serve_app.load.pairs import Paired
from serve_app.load.run import Settings

COLUMNS = 3  # of a table in a terminal of 80 characters, beside the names of the rows
BUSY_CLIENT = 0.7  # of a core; a busier client measures itself
COUNTED_BY = {
    "token ids": "by the token ids in each chunk",
    "usage": "by the server's `usage`, not by chunk: the first chunk counts as one token",
    "chunks": "by chunks, one token each, because the server sends no `usage`",
}
DEFINITIONS = (
    "Latencies are p50 / p99, rates per user p50 (p10, p90). All tokens of a chunk have the time of its arrival. "
    "Tokens/s per user are the tokens after the first chunk over the time after it. Totals of tokens/s and requests/s "
    "are over the time under full load."
)


class LevelReport(msgspec.Struct, frozen=True):
    """A level: the figures of each mode and, if there are two, their comparison."""

    modes: list[Figures]
    paired: Paired | None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a run.

    `prompts` is the number of prompts, `card` the server's description of its model. An interrupted run is not
    `complete`.
    """

    endpoint: str
    model: str | None
    card: dict[str, Any]
    began: str
    settings: Settings
    limits: GoodputLimits
    prompts: int
    complete: bool
    levels: list[LevelReport]

    @property
    def columns(self) -> list[Figures]:
        return [figures for level in self.levels for figures in level.modes]

    @property
    def answered(self) -> bool:
        """True if there was an answer at every level in every mode."""
        return bool(self.columns) and all(figures.answered for figures in self.columns)

    @property
    def all_equal(self) -> bool:
        """True if no answer changed with speculation."""
        return all(level.paired is None or level.paired.equal == level.paired.pairs for level in self.levels)

    def as_json(self) -> str:
        return msgspec.json.format(msgspec.json.encode(self), indent=2).decode()

    def print(self, console: Console) -> None:
        """Print the tables, then notes on how to read them."""
        modes = len(self.settings.modes)
        several = COLUMNS // modes * modes
        for start in range(0, len(self.columns), several):
            console.print(_table(self.columns[start : start + several]))
        for note in self.notes():
            console.print(note, highlight=False, markup=False, soft_wrap=True)

    def notes(self) -> Iterator[str]:
        for level in self.levels:
            yield from _about_pairs(level)
            yield from _about_failures(level.modes)
        for kind in sorted({kind for figures in self.columns for kind in figures.counted_by}):
            yield f"Tokens were counted {COUNTED_BY[kind]}."
        yield DEFINITIONS
        if self.settings.questions > self.prompts:
            yield (
                f"{self.settings.questions} questions from {self.prompts} prompts: they repeat, and a server that "
                "caches prompts answers repeated ones sooner. A longer --prompts file avoids that."
            )
        busiest = max((figures.client_cpu or 0.0 for figures in self.columns), default=0.0)
        if busiest > BUSY_CLIENT:
            yield f"This client used up to {busiest:.0%} of a core and may have limited the results."
        if not self.complete:
            yield "Interrupted: unfinished answers are not counted."


def _about_pairs(level: LevelReport) -> Iterator[str]:
    pairs = level.paired
    if pairs is None or not pairs.pairs:
        return
    equal = f"{pairs.equal} of {pairs.pairs} answers are equal"
    if pairs.ratio is None:
        yield f"{level.modes[0].level}: {equal}; none has a second chunk to compare."
        return
    interval = "" if pairs.low is None else f" (95 %: {pairs.low:.2f} to {pairs.high:.2f})"
    yield f"{level.modes[0].level}: speculation gave a user {pairs.ratio:.2f} times the tokens/s{interval}; {equal}."


def _about_failures(modes: Sequence[Figures]) -> Iterator[str]:
    for figures in (figures for figures in modes if figures.failed):
        often = max(figures.failed, key=lambda error: figures.failed[error])
        others = "" if len(figures.failed) == 1 else f" ({figures.failed[often]} of them; --json has the others)"
        mode = f", speculation {figures.speculation}" if len(modes) > 1 else ""
        yield f"{figures.level}{mode}: {sum(figures.failed.values())} failed: {often}{others}"


def _table(columns: Sequence[Figures]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(no_wrap=True)
    both = len({figures.speculation for figures in columns}) > 1 or columns[0].speculation == "off"
    for figures in columns:
        mode = f"\nspeculation {figures.speculation}" if both else ""
        table.add_column(f"{figures.level}{mode}", justify="right", no_wrap=True)
    rows = [_cells(figures) for figures in columns]
    for name in rows[0]:
        cells = [row[name] for row in rows]
        if any(cells):
            table.add_row(name, *[cell or "-" for cell in cells])
    return table


def _cells(figures: Figures) -> dict[str, str]:
    """The cells of a column by the name of their row; empty if unknown."""
    failed = sum(figures.failed.values())
    cut = f", {figures.continued} cut and continued" if figures.continued else ""
    goodput = figures.goodput
    return {
        "requests": f"{figures.requests}" + (f", {failed} failed" if failed else "") + cut,
        "first token, ms": _latency(figures.ttft_s),
        "inter-token, ms": _latency(figures.inter_token_s),
        "between chunks, ms": _latency(figures.chunk_gap_s),
        "tokens/s per user": _rate(figures.user_tokens_per_s),
        "tokens/s in total": _figure(figures.tokens_per_s),
        "requests/s in total": _figure(figures.requests_per_s),
        "within the limits": "" if goodput is None else f"{goodput.share:.0%}, {_figure(goodput.per_s) or '-'}/s",
        "acceptance rate": "" if figures.acceptance_rate is None else f"{figures.acceptance_rate:.2f}",
        "tokens per target pass": _figure(figures.tokens_per_target_pass),
    }


def _latency(spread: Spread | None) -> str:
    return "" if spread is None else f"{_figure(1000 * spread.p50)} / {_figure(1000 * spread.p99)}"


def _rate(spread: Spread | None) -> str:
    if spread is None:
        return ""
    return f"{_figure(spread.p50)} ({_figure(spread.p10)}, {_figure(spread.p90)})"


def _figure(value: float | None) -> str:
    """Three digits: a measurement on a shared machine has no more."""
    if value is None:
        return ""
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f}"
