"""The command line, `taskspec`: options enter, exit codes leave.

0 is success, 1 a service that failed or answers that differ, 2 something to write differently, 130 Ctrl-C.
"""

from __future__ import annotations

import json
import shlex
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from core.errors import ConfigError, TaskSpecError
from serve_app.config import ServiceConfig, load_config, locate
from serve_app.progress import stage

if TYPE_CHECKING:
    from serve_app.demo_table import DemoTable

FAILED, USAGE, INTERRUPTED = 1, 2, 130
LOOPBACK = "127.0.0.1"
EXAMPLE = "What is 17 + 25?"

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="TaskSpec: a large model's own answers in fewer passes, by small drafts that know the task.",
)

Config = Annotated[
    str, typer.Option(metavar="NAME_OR_YAML", help="A shipped configuration (family, llama2-13b) or a YAML file.")
]


@app.callback()
def _root() -> None:
    """Keeps `taskspec demo` a subcommand however few there are."""


@app.command()
def demo(
    config: Config = "family",
    prompts_per_task: Annotated[int, typer.Option(min=1, max=50, help="Prompts of each of the six tasks.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Only the table, as JSON, on stdout.")] = False,
) -> None:
    """Start everything, answer prompts of six tasks, print one table, leave nothing running.

    Ray and the service come up on loopback, on free ports of their own; a Ray that runs already is left alone.
    Held-out prompts are answered over HTTP, the first of each task before your eyes with the draft's accepted tokens
    marked; then all of them again with speculation off and the same seeds. The table says per task where prompts were
    routed, how many proposals were accepted, how many tokens a target pass gave, and whether the answers are equal.

    Example: `taskspec demo --prompts-per-task 2`

    Exit code 0 if every answer is equal, 1 if one differs. Takes about a minute.
    """
    loaded = load_config(config)
    console = Console(stderr=as_json)
    try:
        table = _run_demo(loaded, prompts_per_task, console, aloud=not as_json)
    except KeyboardInterrupt:
        console.print("\nStopped before the end; nothing is left running.")
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        sys.stdout.write(json.dumps({"model": loaded.name, **table.as_json()}, indent=2) + "\n")
    raise typer.Exit(0 if table.all_equal else FAILED)


@app.command()
def serve(
    config: Config = "family",
    host: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0 for every interface.")] = LOOPBACK,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free port.")] = 8000,
    address: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Deploy on this Ray cluster (or `auto`) and leave it there.")
    ] = None,
) -> None:
    """Keep the service up until Ctrl-C.

    Starts a Ray of its own, deploys target, router, draft pools and ingress, and prints a curl line that works and the
    base URL for OpenAI clients. Ctrl-C (or SIGTERM) lets running answers end; a second one drops them. Nothing is left.

    Example: `taskspec serve --port 8001`

    With --address it deploys on a Ray cluster that runs already and returns; the service stays up there.

    Example, on the head node: `taskspec serve --config llama2-13b --address auto --host 0.0.0.0`
    """
    from serve_app.local_cluster import check_port, free_port

    loaded = load_config(config)
    console = Console()
    if address is not None:
        _deploy(loaded, host, port, address, console)
        return
    check_port(host, port)
    try:
        _keep_up(loaded, host, port or free_port(host), console)
    except KeyboardInterrupt:
        console.print("Stopped before it was up; nothing is left running.")
        raise typer.Exit(INTERRUPTED) from None


def main() -> None:
    """Run the command line; what a person can put right is told in a line, without a traceback."""
    try:
        app(prog_name="taskspec")
    except TaskSpecError as error:
        sys.stderr.write(f"taskspec: {error}\n")
        sys.exit(USAGE if isinstance(error, ConfigError) else FAILED)


def _run_demo(config: ServiceConfig, prompts_per_task: int, console: Console, *, aloud: bool) -> DemoTable:
    from tokenizers import Tokenizer

    from core.model.loader import resolve
    from serve_app.demo import Demo, report
    from serve_app.hosting import hosted
    from serve_app.local_cluster import free_port

    tokenizer = Tokenizer.from_file(str(resolve(locate(config.target.model)) / "tokenizer.json"))
    with hosted(config, LOOPBACK, free_port(LOOPBACK), console) as url:
        table = Demo(config, url, tokenizer, console, aloud=aloud).run(prompts_per_task)
    if aloud:
        report(table, config, console)
    return table


def _keep_up(config: ServiceConfig, host: str, port: int, console: Console) -> None:
    from serve_app.hosting import drain, hosted

    with hosted(config, host, port, console) as url:
        _invite(url, config, console)
        console.print("Ctrl-C stops it.")
        try:
            while True:
                signal.pause()
        except KeyboardInterrupt:
            with stage(console, "Letting running answers end; Ctrl-C again drops them"), suppress(KeyboardInterrupt):
                drain()
    console.print("Stopped; nothing is left running.")


def _deploy(config: ServiceConfig, host: str, port: int, address: str, console: Console) -> None:
    from serve_app.hosting import deployed

    service = deployed(config, host, port, address, console)
    _invite(service.url, config, console)
    console.print(f"It stays up on that cluster. To take it down:\n{service.takedown}", highlight=False, soft_wrap=True)


def _invite(url: str, config: ServiceConfig, console: Console) -> None:
    """A curl line to paste; printed raw, because a line broken by the terminal's width does not work."""
    body = {"model": config.name, "messages": [{"role": "user", "content": EXAMPLE}]}
    command = f"curl {url}/v1/chat/completions -H 'Content-Type: application/json' -d {shlex.quote(json.dumps(body))}"
    console.print(f"\nOpenAI base_url: {url}/v1   model: {config.name}\n", highlight=False)
    console.out(command, highlight=False)
    console.print()


if __name__ == "__main__":
    main()
