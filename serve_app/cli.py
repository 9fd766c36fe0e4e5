"""The command line, `taskspec`: options enter, exit codes leave. Other packages add commands by an entry point.

0 is success, 1 a service that failed or answers that differ, 2 something to write differently, 130 Ctrl-C.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from core.errors import ConfigError, TaskSpecError
from core.family import locate
from serve_app import bundles_cli
from serve_app.config import GENERAL, ServiceConfig, load_config
from serve_app.load import cli as load_cli
from serve_app.progress import stage

if TYPE_CHECKING:
    from serve_app.bundled import Served
    from serve_app.demo_table import DemoTable
    from serve_app.local_cluster import Jobs

FAILED, USAGE, INTERRUPTED = 1, 2, 130
LOOPBACK = "127.0.0.1"
COMMANDS = "taskspec.commands"  # the entry points' group
EXAMPLE = "What is 17 + 25?"
SMALL_RETRAINING = "train_jobs/smoke.yaml"

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


@app.command()
def demo(
    config: Config = "family",
    prompts_per_task: Annotated[int, typer.Option(min=1, max=50, help="Prompts of each of the six tasks.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Only the table, as JSON, on stdout.")] = False,
) -> None:
    """Start everything, answer prompts of six tasks, print one table, leave nothing running.

    Ray and the service come up on loopback, on free ports of their own; a Ray that runs already is left alone.
    Held-out prompts are answered over HTTP, the first of each task before your eyes with the draft's accepted tokens
    marked; then all of them again, with the same seeds, by the un-adapted draft, by one adapted to all tasks together,
    by the task's own, and with speculation off. The table says per task how many prompts were routed to which slot of
    the bundle, how many proposals of each draft were accepted, how many tokens a target pass gave with it, and whether
    all answers are equal. Every pass streams at once here, whatever `ingress.stream_interval_s` says.

    Example: `taskspec demo --prompts-per-task 2`

    Exit code 0 if every answer is equal, 1 if one differs. Takes about a minute.
    """
    served = _opened(config)
    console = Console(stderr=as_json)
    try:
        table = _run_demo(served, prompts_per_task, console, aloud=not as_json)
    except KeyboardInterrupt:
        console.print("\nStopped before the end; nothing is left running.")
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        sys.stdout.write(json.dumps({"model": served.config.name, **table.as_json()}, indent=2) + "\n")
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
    base URL for OpenAI clients. Drafts and router are those of the live bundle (`taskspec bundles list`). That Ray
    takes jobs too: a line to paste in another terminal retrains on it while it serves. Ctrl-C (or SIGTERM) lets
    running answers end; a second one drops them. Nothing is left, jobs included.

    Example: `taskspec serve --port 8001`

    With --address it deploys on a Ray cluster that runs already and returns; the service stays up there.

    Example, on the head node: `taskspec serve --config llama2-13b --address auto --host 0.0.0.0`
    """
    from serve_app.local_cluster import check_port, free_port

    served = _opened(config)
    console = Console()
    if address is None:
        check_port(host, port)
    _tell_bundle(served, console)
    if address is not None:
        _deploy(served, host, port, address, console)
        return
    try:
        _keep_up(served, host, port or free_port(host), console)
    except KeyboardInterrupt:
        console.print("Stopped before it was up; nothing is left running.")
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def own_ray(gpus: float) -> Iterator[None]:
    """A Ray for one command, for as long as the block lasts: all cores of the machine, and so many of its GPUs."""
    from serve_app.local_cluster import local_cluster

    with local_cluster(0, gpus, set()):
        yield


app.command()(load_cli.bench)
app.add_typer(bundles_cli.app, name="bundles")
for _entry in entry_points(group=COMMANDS):
    _entry.load()(app, own_ray)


def main() -> None:
    """Run the command line; what a person can put right is told in a line, without a traceback."""
    logging.basicConfig(format="taskspec: %(message)s", level=logging.WARNING)
    try:
        app(prog_name="taskspec")
    except TaskSpecError as error:
        sys.stderr.write(f"taskspec: {error}\n")
        sys.exit(USAGE if isinstance(error, ConfigError) else FAILED)


def _opened(config: str) -> Served:
    from serve_app.bundled import with_bundle

    return with_bundle(load_config(config))


def _run_demo(served: Served, prompts_per_task: int, console: Console, *, aloud: bool) -> DemoTable:
    from tokenizers import Tokenizer

    from core.model.loader import resolve
    from serve_app.bundled import with_controls
    from serve_app.demo import Demo, report, run_by_run
    from serve_app.hosting import hosted
    from serve_app.local_cluster import free_port

    with_them, controls = with_controls(served)
    tokenizer = Tokenizer.from_file(str(resolve(locate(served.config.target.model)) / "tokenizer.json"))
    with hosted(run_by_run(with_them), LOOPBACK, free_port(LOOPBACK), console) as service:
        table = Demo(served.config.name, service.url, controls, tokenizer, console, aloud=aloud).run(prompts_per_task)
    if aloud:
        report(table, served, console)
    return table


def _keep_up(served: Served, host: str, port: int, console: Console) -> None:
    from serve_app.hosting import drain, hosted

    with hosted(served, host, port, console, jobs=True) as service:
        try:
            _invite(service.url, served.config, console)
            _invite_jobs(service.jobs, console)
            console.print("Ctrl-C stops it.")
            while True:
                signal.pause()
        except KeyboardInterrupt:
            with stage(console, "Letting running answers end; Ctrl-C again drops them"), suppress(KeyboardInterrupt):
                drain()
    console.print("Stopped; nothing is left running.")


def _deploy(served: Served, host: str, port: int, address: str, console: Console) -> None:
    from serve_app.hosting import deployed

    service = deployed(served, host, port, address, console)
    _invite(service.url, served.config, console)
    console.print(f"It stays up on that cluster. To take it down:\n{service.takedown}", highlight=False, soft_wrap=True)


def _tell_bundle(served: Served, console: Console) -> None:
    """Which drafts will be served."""
    if served.version is not None:
        tasks = [task for task in served.drafts if task != GENERAL]
        told = f"Bundle {served.version}: {GENERAL}{' and ' if tasks else ''}{', '.join(tasks)}"
    else:
        where = f" is live in {served.config.bundle}" if served.config.bundle else ""
        told = f"No bundle{where}: the un-adapted draft serves every prompt"
    console.print(told, highlight=False, markup=False, soft_wrap=True)


def _invite(url: str, config: ServiceConfig, console: Console) -> None:
    """A curl line to paste; printed raw, because a line broken by the terminal's width does not work."""
    body = {"model": config.name, "messages": [{"role": "user", "content": EXAMPLE}]}
    command = f"curl {url}/v1/chat/completions -H 'Content-Type: application/json' -d {shlex.quote(json.dumps(body))}"
    console.print(f"\nOpenAI base_url: {url}/v1   model: {config.name}\n", highlight=False)
    console.out(command, highlight=False)
    console.print()


def _invite_jobs(jobs: Jobs | None, console: Console) -> None:
    """The line that retrains beside the service; it names the token's file and never the token."""
    if jobs is None:
        return
    environment = f"RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH={shlex.quote(str(jobs.token_file))}"
    console.print("A retraining on the same Ray, while it serves:\n", highlight=False)
    console.out(
        f"{environment} {_this_command()} retrain --config {SMALL_RETRAINING} --address {jobs.address}", highlight=False
    )
    console.print()


def _this_command() -> str:
    """`taskspec` as another terminal finds it in this directory."""
    script = Path(sys.executable).with_name("taskspec")
    if shutil.which("taskspec") == str(script):
        return "taskspec"
    return shlex.quote(os.path.relpath(script) if script.is_relative_to(Path.cwd()) else str(script))


if __name__ == "__main__":
    main()
