"""What a run of `taskspec bench` found: its levels enter; tables and notes for a terminal leave, or JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from serve_app.load.figures import Figures, Limits, Spread
from serve_app.load.pairs import Paired
from serve_app.load.run import Settings

COLUMNS = 3  # of a table, beside the names: what 80 columns of a terminal hold
BUSY_CLIENT = 0.7  # of a core; a client that has more to do measures itself
COUNTED_BY = {
    "token ids": "by the token ids in each chunk",
    "usage": "by the server's `usage`, which does not tell what each chunk held: the first is taken for one token",
    "chunks": "by chunks, each taken for one token: the server sends no `usage`",
}
DEFINITIONS = (
    "Latencies are p50 / p99, a user's rates p50 (p10, p90). A token's time is the arrival of its chunk; n tokens in "
    "a chunk are n tokens at one time. Tokens/s per user are those after the first chunk over the time after it. "
    "Tokens/s and requests/s in all are over the time for which the whole load was on."
)


class LevelReport(msgspec.Struct, frozen=True):
    """A level: figures by mode, and both modes compared where both were asked."""

    modes: list[Figures]
    paired: Paired | None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a run has to say.

    `prompts` is how many there were, `card` what the server tells of its model; a run that was broken off is not
    `complete`.
    """

    endpoint: str
    model: str | None
    card: dict[str, Any]
    began: str
    settings: Settings
    limits: Limits
    prompts: int
    complete: bool
    levels: list[LevelReport]

    @property
    def columns(self) -> list[Figures]:
        return [figures for level in self.levels for figures in level.modes]

    @property
    def answered(self) -> bool:
        """Whether something was, at every level in every mode."""
        return bool(self.columns) and all(figures.answered for figures in self.columns)

    @property
    def all_equal(self) -> bool:
        """Whether no answer changed with speculation."""
        return all(level.paired is None or level.paired.equal == level.paired.pairs for level in self.levels)

    def as_json(self) -> str:
        return msgspec.json.format(msgspec.json.encode(self), indent=2).decode()

    def tell(self, console: Console) -> None:
        """Tables, then what they need to be read right."""
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
                "caches prompts answers repeats sooner. Give a longer --prompts file to avoid that."
            )
        busiest = max((figures.client_cpu or 0.0 for figures in self.columns), default=0.0)
        if busiest > BUSY_CLIENT:
            yield f"This client took up to {busiest:.0%} of a core: it may be the client that was measured."
        if not self.complete:
            yield "Broken off: answers that were under way are not counted."


def _about_pairs(level: LevelReport) -> Iterator[str]:
    pairs = level.paired
    if pairs is None or not pairs.pairs:
        return
    equal = f"{pairs.equal} of {pairs.pairs} answers are equal"
    if pairs.ratio is None:
        yield f"{level.modes[0].level}: {equal}; none has a second chunk to compare."
        return
    sure = "" if pairs.low is None else f" (95 %: {pairs.low:.2f} to {pairs.high:.2f})"
    yield f"{level.modes[0].level}: speculation gave a user {pairs.ratio:.2f} times the tokens/s{sure}; {equal}."


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
    """What stands in a column, by row; nothing where nothing is known."""
    failed = sum(figures.failed.values())
    goodput = figures.goodput
    return {
        "requests": f"{figures.requests}" + (f", {failed} failed" if failed else ""),
        "first token, ms": _latency(figures.ttft_s),
        "inter-token, ms": _latency(figures.inter_token_s),
        "between chunks, ms": _latency(figures.chunk_gap_s),
        "tokens/s per user": _rate(figures.user_tokens_per_s),
        "tokens/s in all": _figure(figures.tokens_per_s),
        "requests/s in all": _figure(figures.requests_per_s),
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
    """Three digits are all that a measurement on a shared machine tells."""
    if value is None:
        return ""
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f}"
