"""`taskspec bench`: its options, and its output as a table, JSON and a plot."""

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

from core.errors import FAILED, INTERRUPTED, ConfigError, TaskSpecError

if TYPE_CHECKING:
    from core.text.prompts import Prompt
    from serve_app.load.figures import GoodputLimits
    from serve_app.load.report import Report
    from serve_app.load.run import LoadRun
    from serve_app.load.sending import Level

KEY_VARIABLE = "OPENAI_API_KEY"
DEFAULT_URL = "http://127.0.0.1:8000/v1"  # of `taskspec serve`
STDOUT = Path("-")


Url = Annotated[str, typer.Argument(metavar="URL", help="Base URL, as for OpenAI clients.")]
Model = Annotated[str | None, typer.Option(show_default="the only one that /models lists")]
Users = Annotated[
    list[int] | None,
    typer.Option(min=1, metavar="N", help="Concurrent users; repeat it for another level.", show_default="1"),
]
Rates = Annotated[
    list[float] | None,
    typer.Option(metavar="R", help="Poisson arrivals per second, instead of users; repeat it for another level."),
]
Requests = Annotated[
    int | None,
    typer.Option(min=1, help="Per level and mode.", show_default="4 per user or 20 s of arrivals; at least 32"),
]
Prompts = Annotated[
    Path | None,
    typer.Option(
        metavar="JSONL",
        help='Lines of {"prompt": ...} or {"messages": [...]}, or as ShareGPT or Alpaca has them. They repeat if there '
        "are more requests.",
        show_default="held-out prompts of the shipped family",
    ),
]
MaxTokens = Annotated[int, typer.Option(min=1, help="Maximum tokens of an answer.")]
Temperature = Annotated[float, typer.Option(min=0.0, max=2.0)]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the answers and the arrivals.")]
Modes = Annotated[
    Literal["on", "off", "both"],
    typer.Option(help="`off` and `both` need a TaskSpec service; `both` compares them on every prompt."),
]
TtftMs = Annotated[float | None, typer.Option(min=0.0, help="Goodput: limit on the time to the first token.")]
TokenMs = Annotated[
    float | None, typer.Option(min=0.0, help="Goodput: limit on the time per token after the first chunk.")
]
Json = Annotated[Path | None, typer.Option(metavar="FILE", help="Write all figures as JSON; `-` is stdout.")]
Plot = Annotated[Path | None, typer.Option(metavar="PNG", help="Plot throughput and latency over the load.")]


def bench(
    url: Url = DEFAULT_URL,
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
    """Measure any OpenAI-compatible server under load.

    Streams chat completions and prints, for each level of load, the time to the first token, the time between tokens
    and between chunks, tokens/s per user and in total, and the acceptance rate if the server reports it. Each level
    begins with a request per user as a warm-up, which does not count.

    Example: `taskspec bench --streams 1 --streams 8 --plot load.png`

    With `--speculation both` every prompt is sent with speculation and without, alternately; the result is the speed-up
    with its 95 % interval, and whether all answers are equal.

    Example: `taskspec bench --speculation both --temperature 1`

    Goodput is the share of requests within the limits, and their number per second.

    Example, another server: `taskspec bench http://10.0.0.5:8000/v1 --rate 2 --rate 4 --ttft-ms 500 --token-ms 50`

    The API key is read from the environment variable OPENAI_API_KEY only. Ctrl-C prints the results so far.

    Exit code 0 if everything was measured, 1 if a level had no answer or answers differ with speculation, 2 for invalid
    options, 130 after Ctrl-C.
    """
    from serve_app.load.figures import GoodputLimits
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
    run = LoadRun(base_url(url), model, os.environ.get(KEY_VARIABLE), _prompts(prompts), settings)
    limits = GoodputLimits(*(None if limit is None else limit / 1000 for limit in (ttft_ms, token_ms)))
    _run(run, limits, json, plot)


def _run(run: LoadRun, limits: GoodputLimits, json: Path | None, plot: Path | None) -> None:
    from serve_app.terminal.progress import bar

    console = Console(stderr=json == STDOUT)
    began, broken = datetime.now(UTC), None
    try:
        with bar(console, run.settings.requests_sent) as progress:
            asyncio.run(run.go(progress))
    except (KeyboardInterrupt, TaskSpecError) as error:  # earlier results are printed all the same
        broken = error
    report = _report(run, limits, began, complete=broken is None)
    if report.columns:
        _write(report, console, json, plot)
    if isinstance(broken, TaskSpecError):
        raise broken
    if broken is not None:
        console.print("Stopped.")
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(0 if report.answered and report.all_equal else FAILED)


def _write(report: Report, console: Console, json: Path | None, plot: Path | None) -> None:
    report.print(console)
    if json == STDOUT:
        sys.stdout.write(report.as_json() + "\n")
    elif json is not None:
        json.write_text(report.as_json() + "\n")
    if plot is not None:
        from serve_app.load.plot import draw

        draw(report, plot)


def _report(run: LoadRun, limits: GoodputLimits, began: datetime, *, complete: bool) -> Report:
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
        raise ConfigError("--rate and --streams exclude each other: give one of them")
    if rate:
        if min(rate) <= 0:
            raise ConfigError(f"--rate {min(rate):g}: give requests per second, more than 0")
        return tuple(map(Arrivals, rate))
    if requests is not None and requests < max(streams or [1]):
        raise ConfigError(f"--requests {requests} leaves some of {max(streams or [1])} streams without one; give more")
    return tuple(map(Streams, streams or [1]))


def base_url(url: str) -> str:
    """The base URL; /v1 is added to a bare host."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{url!r} is not a base URL; give one like {DEFAULT_URL}")
    return url.rstrip("/") if parts.path.strip("/") else f"{parts.scheme}://{parts.netloc}/v1"


def _prompts(file: Path | None) -> list[Prompt]:
    from core.family import held_out_prompts
    from core.text.prompt_files import read_prompts

    return held_out_prompts() if file is None else read_prompts(file)


def _check_writable(*files: Path | None) -> None:
    """Checked before anything is measured, so that no result is lost."""
    for file in files:
        if file in (None, STDOUT):
            continue
        if file.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK):
            raise ConfigError(f"{file} cannot be written; give a file in an existing directory")
