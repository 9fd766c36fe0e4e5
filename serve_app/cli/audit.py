"""`taskspec audit`: answers recorded answers again by plain decoding, and tells which are the target's own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from core.errors import FAILED, INTERRUPTED, ConfigError

if TYPE_CHECKING:
    from serve_app.audit.work import AuditOutcome

Recorded = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE_OR_DIR",
        help="Requests and answers as JSON lines, or a directory of traces.",
        show_default="the service's traces.directory",
    ),
]


def audit(
    recorded: Recorded = None,
    config: Annotated[
        str,
        typer.Option(
            metavar="NAME_OR_YAML",
            help="The target: a shipped configuration or a YAML file; only `target`, `bundle` and `traces` are read.",
        ),
    ] = "family",
    since: Annotated[str, typer.Option(metavar="PERIOD", help="Of traces, those that ended in it: 90m, 24h, 7d.")] = (
        "24h"
    ),
    limit: Annotated[
        int, typer.Option("--most", min=1, help="Most answers to audit; of more, so many are drawn.")
    ] = 1000,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout, for scripts.")] = False,
) -> None:
    """Answer recorded answers again by plain decoding, and tell which are the target's own, token for token.

    No service is asked: the target is loaded here, and draws token by token without any draft, with the same seeds. An
    answer is `equal`, `different`, or a `near-tie`: wherever its tokens differ, they lie one logit at most
    below those of plain decoding, which is what another machine or other kernels round otherwise. Behind a near-tie it
    is held to the target's answer to its own tokens. Several answers are decoded at a time (`target.max_sessions`).

    Traces are what a service with a `traces` section records. A FILE has a JSON object on each line, of any
    OpenAI-compatible server with the same weights: `{"request": {...}, "answer": {...}}`, the bodies of a chat or a
    completion; a stream is a list of its chunks. They are compared by `token_ids` where the answer has them, and else
    by text. An answer without `finish_reason` was cut, and is audited as the beginning that it is. Above temperature 0
    an answer needs a seed, and a server that draws as we do: other engines' answers are comparable at temperature 0
    alone. Answers of traces that were held to a grammar are skipped, as traces do not keep it; in a FILE the request
    has it.

    Example: `taskspec audit --config mine.yaml --since 7d`

    Example: `taskspec audit answers.jsonl --config smollm2 --json`

    Exit code 0 if none is different, near-ties included; 1 if one is, or is missing, or none could be audited; 2 if a
    line cannot be read, which the message names with its field; 130 after Ctrl-C, with what was audited by then.

    With --json an object: `model`, `dtype`, `numerics`, `near_tie` (the widest gap of one), `stopped`, `tokens`
    (compared), `counts` by class, `notes`, and `answers`, a list of `name`, `class`, `tokens`, `complaint` (null, or
    what is wrong with its end) and `differences`: `position` in the answer and `absolute_position`, `token` and
    `plain` with their texts, `gap` (null: no such token is allowed there) and the text `before`.
    """
    outcome = _audited(recorded, config, since, limit)
    _print(outcome, as_json=as_json)
    if outcome.stopped:
        raise typer.Exit(INTERRUPTED)
    nothing = not (outcome.count("equal") or outcome.count("near-tie"))
    raise typer.Exit(FAILED if nothing or outcome.count("different") else 0)


def _audited(recorded: Path | None, config: str, since: str, limit: int) -> AuditOutcome:
    console = Console(stderr=True)
    from serve_app.cli.shadow import seconds
    from serve_app.config import load_config

    settings = load_config(config)
    place = recorded or (settings.traces.directory if settings.traces else None)
    if place is None:
        raise ConfigError(f"{config} has no `traces` section; write a file of answers, or a directory of traces")
    if not place.exists():
        raise ConfigError(f"{place} does not exist; write a file of answers, or a directory of traces")
    from serve_app.audit.traces import Period
    from serve_app.audit.work import work

    return work(settings, place, Period(seconds(since), limit), console)


def _print(outcome: AuditOutcome, *, as_json: bool) -> None:
    from serve_app.audit.page import as_object, lines

    if as_json:
        sys.stdout.write(json.dumps(as_object(outcome), indent=2, ensure_ascii=False) + "\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in lines(outcome))
