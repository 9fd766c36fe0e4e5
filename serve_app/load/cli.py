"""`taskspec bench`: options enter, a table leaves, and JSON and a plot if asked for.

0 is success, 1 an endpoint that answered nothing or answers that differ, 2 something to write differently, 130 Ctrl-C.
"""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlsplit

import typer
from rich.console import Console

from core.errors import ConfigError, TaskSpecError

if TYPE_CHECKING:
    from core.prompts import Prompt
    from serve_app.load.figures import Limits
    from serve_app.load.report import Report
    from serve_app.load.run import LoadRun, Settings
    from serve_app.load.sending import Level

FAILED, INTERRUPTED = 1, 130
KEY = "OPENAI_API_KEY"
HERE = "http://127.0.0.1:8000/v1"  # where `taskspec serve` listens
STDOUT = Path("-")


Url = Annotated[str, typer.Argument(metavar="URL", help="Base URL, as OpenAI clients take it.")]
Model = Annotated[str | None, typer.Option(show_default="the one that /models lists")]
Users = Annotated[
    list[int] | None,
    typer.Option(min=1, metavar="N", help="Users at once; again for another level.", show_default="1"),
]
Rates = Annotated[
    list[float] | None,
    typer.Option(metavar="R", help="Instead of users, Poisson arrivals a second; again for another level."),
]
Requests = Annotated[
    int | None,
    typer.Option(min=1, help="Per level and mode.", show_default="4 per user or 20 s of arrivals; at least 32"),
]
Prompts = Annotated[
    Path | None,
    typer.Option(
        metavar="JSONL",
        help='Lines of {"prompt": ...} or {"messages": [...]}.',
        show_default="held-out ones of the shipped family",
    ),
]
MaxTokens = Annotated[int, typer.Option(min=1, help="Most tokens of an answer.")]
Temperature = Annotated[float, typer.Option(min=0.0, max=2.0)]
Seed = Annotated[int, typer.Option(min=0, help="Of the answers, of the arrivals and of the family's prompts.")]
Modes = Annotated[
    Literal["on", "off", "both"],
    typer.Option(help="`off` and `both` need a TaskSpec service; `both` compares the two on every prompt."),
]
TtftMs = Annotated[
    float | None, typer.Option(min=0.0, help="Goodput counts answers whose first token came within this time.")
]
TokenMs = Annotated[
    float | None, typer.Option(min=0.0, help="And that took no longer than this per token after their first chunk.")
]
Json = Annotated[Path | None, typer.Option(metavar="FILE", help="All figures, as JSON; `-` is stdout.")]
Plot = Annotated[Path | None, typer.Option(metavar="PNG", help="Throughput and latency over the load.")]


def bench(
    url: Url = HERE,
    model: Model = None,
    streams: Users = None,
    rate: Rates = None,
    requests: Requests = None,
    prompts: Prompts = None,
    max_tokens: MaxTokens = 256,
    temperature: Temperature = 0.0,
    seed: Seed = 0,
    speculation: Modes = "on",
    ttft_ms: TtftMs = None,
    token_ms: TokenMs = None,
    json: Json = None,
    plot: Plot = None,
) -> None:
    """Send a load to any OpenAI-compatible server, and say how fast it answers.

    Streams chat completions and prints, for each level of load, the time to the first token, the time between tokens
    and between chunks, tokens/s per user and in all, and the acceptance rate where the server tells it. Each level is
    warmed up first by a request per user that does not count.

    Example: `taskspec bench --streams 1 --streams 8 --plot load.png`

    With `--speculation both` every prompt is asked with speculation and without, in turns; then it says how many times
    faster speculation is, with the 95 % interval, and whether all answers are equal.

    Example: `taskspec bench --speculation both --temperature 1`

    Goodput is the share of requests within limits, and how many those are a second.

    Example, another server: `taskspec bench http://10.0.0.5:8000/v1 --rate 2 --rate 4 --ttft-ms 500 --token-ms 50`

    An API key is taken from the environment variable OPENAI_API_KEY alone. Ctrl-C prints what has been measured so far.

    Exit code 0 if all was measured, 1 if a level had no answer or answers differ with speculation, 2 if something is to
    be written differently, 130 after Ctrl-C.
    """
    from serve_app.load.figures import Limits
    from serve_app.load.run import LoadRun, Settings

    settings = Settings(
        levels=_levels(streams, rate, requests),
        requests=requests,
        temperature=temperature,
        seed=seed,
        max_tokens=max_tokens,
        speculation=speculation,
    )
    _check_writable(json, plot)
    run = LoadRun(_base(url), model, os.environ.get(KEY), _prompts(prompts, settings), settings)
    limits = Limits(*(None if limit is None else limit / 1000 for limit in (ttft_ms, token_ms)))
    _run(run, limits, json, plot)


def _run(run: LoadRun, limits: Limits, json: Path | None, plot: Path | None) -> None:
    from serve_app.progress import bar

    console = Console(stderr=json == STDOUT)
    began, broken = datetime.now(UTC), None
    try:
        with bar(console, run.settings.requests_sent) as progress:
            asyncio.run(run.go(progress))
    except (KeyboardInterrupt, TaskSpecError) as error:  # what was measured before is told all the same
        broken = error
    report = _report(run, limits, began, complete=broken is None)
    if report.columns:
        _leave(report, console, json, plot)
    if isinstance(broken, TaskSpecError):
        raise broken
    if broken is not None:
        console.print("Stopped.")
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(0 if report.answered and report.all_equal else FAILED)


def _leave(report: Report, console: Console, json: Path | None, plot: Path | None) -> None:
    report.tell(console)
    if json == STDOUT:
        sys.stdout.write(report.as_json() + "\n")
    elif json is not None:
        json.write_text(report.as_json() + "\n")
    if plot is not None:
        from serve_app.load.plot import draw

        draw(report, plot)


def _report(run: LoadRun, limits: Limits, began: datetime, *, complete: bool) -> Report:
    from serve_app.load.figures import figures
    from serve_app.load.pairs import paired
    from serve_app.load.report import LevelReport, Report

    modes = run.settings.modes
    return Report(
        endpoint=run.url,
        model=run.model,
        card=run.card,
        began=began.isoformat(timespec="seconds"),
        settings=run.settings,
        limits=limits,
        prompts=len(run.prompts),
        complete=complete,
        levels=[
            LevelReport(
                [
                    figures(measured, mode, limits)
                    for mode in modes
                    if any(each.mode == mode for each in measured.rounds)
                ],
                paired(measured) if len(modes) > 1 else None,
            )
            for measured in run.measured
        ],
    )


def _levels(streams: list[int] | None, rate: list[float] | None, requests: int | None) -> tuple[Level, ...]:
    from serve_app.load.sending import Arrivals, Streams

    if rate and streams:
        raise ConfigError("--rate sends requests whoever waits, --streams sends as answers come: give one of them")
    if rate:
        if min(rate) <= 0:
            raise ConfigError(f"--rate {min(rate):g}: give requests a second, more than 0")
        return tuple(map(Arrivals, rate))
    if requests is not None and requests < max(streams or [1]):
        raise ConfigError(f"--requests {requests} leaves some of {max(streams or [1])} streams without one; give more")
    return tuple(map(Streams, streams or [1]))


def _base(url: str) -> str:
    """The base URL; a bare host is taken for one that serves at /v1, as all do."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{url!r} is no base URL; give one like {HERE}")
    return url.rstrip("/") if parts.path.strip("/") else f"{parts.scheme}://{parts.netloc}/v1"


def _prompts(file: Path | None, settings: Settings) -> list[Prompt]:
    from core.prompts import read_prompts
    from serve_app.load.run import family_prompts

    if file is None:
        return family_prompts(settings.questions, settings.seed)
    prompts = read_prompts(file)
    if not prompts:
        raise ConfigError(f'{file} has no prompts; give it lines of {{"prompt": "..."}}')
    return prompts


def _check_writable(*files: Path | None) -> None:
    """Before anything is measured: it would be lost."""
    for file in files:
        if file in (None, STDOUT):
            continue
        if file.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK):
            raise ConfigError(f"{file} cannot be written; give a file in a directory that is there")
