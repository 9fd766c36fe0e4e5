"""The command line, `taskspec`: `demo`, `serve`, and the commands of other modules and packages.

Other packages add commands by an entry point. The exit codes are those of `core.errors`.
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

from core.draft_key import GENERAL
from core.errors import FAILED, INTERRUPTED, TaskSpecError
from core.model_names import locate, smollm2_is_installed
from serve_app import spans
from serve_app.cli import audit as audit_cli
from serve_app.cli import bundles as bundles_cli
from serve_app.cli import chat as chat_cli
from serve_app.cli import keys as keys_cli
from serve_app.cli import operations as operations_cli
from serve_app.cli.exposure import (
    LOOPBACK,
    PORT,
    check_exposure,
    joined_listener,
    open_to_this_command,
    with_keys,
)
from serve_app.config import LogFormat, ServiceConfig, load_config
from serve_app.connection import jobs_at
from serve_app.load import cli as load_cli
from serve_app.terminal.progress import step

if TYPE_CHECKING:
    from serve_app.demo.table import DemoTable
    from serve_app.deployments.models.served_models import ServedModels
    from serve_app.local_cluster import Jobs

COMMANDS = "taskspec.commands"  # the entry points' group
EXAMPLE = "What is 17 + 25?"
SMALL_RETRAINING = "train_jobs/configs/smoke.yaml"

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="TaskSpec: lossless speculative decoding with a draft model per task, served on Ray.",
)

ConfigOption = typer.Option(
    metavar="NAME_OR_YAML", help="A shipped configuration (family, smollm2, llama2-13b) or a YAML file."
)
HostOption = typer.Option(help="Address to listen on; 0.0.0.0 for every interface.", show_default=LOOPBACK)
LogFormatOption = typer.Option(help="Of replicas' logs, in Ray's directory.", show_default="as configured, or text")
KeysOption = typer.Option(
    metavar="FILE", help="Serve who has an API key of this file: see `taskspec keys`.", dir_okay=False
)
PortOption = typer.Option(min=0, max=65535, help="0 takes any free port.", show_default=str(PORT))


@app.callback()
def common(
    *,
    debug: Annotated[
        bool, typer.Option("--debug", help="Print what Ray and its workers log, which else stays in Ray's directory.")
    ] = False,
) -> None:
    if debug:
        from serve_app.local_cluster import show_ray

        show_ray()


@app.command()
def demo(
    config: Annotated[str | None, ConfigOption] = None,
    prompts_per_task: Annotated[int, typer.Option(min=1, max=50, help="Most prompts of each task.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print only the table, as JSON, on stdout.")] = False,
) -> None:
    """Start the service, answer prompts of every task, print one table, leave nothing running.

    The model is SmolLM2-135M-Instruct where it is installed (`make smollm2`), else the shipped family; --config names
    another. Ray and the service start on loopback, on free ports; a Ray that is already running is left alone. Prompts
    that no draft was trained on are answered over HTTP. The first answer of each task is shown as it is generated, with
    the accepted tokens of the draft marked. Then all prompts are answered again, with the same seeds, by the draft
    fitted to all traffic (base), by one adapter of it for all tasks (mixed), by the task's own, and with speculation
    off; a service without a bundle has one draft (general). For each task the table shows how many prompts were routed
    to which slot of the bundle, the acceptance rate and the tokens per target pass of each draft, and whether all
    answers are equal.

    Example: `taskspec demo --prompts-per-task 2`

    Exit code 0 if every answer is equal, 1 if one differs. Takes one to three minutes.
    """
    real = smollm2_is_installed()
    settings = load_config(config or ("smollm2" if real else "family"))
    console = Console(stderr=as_json)
    console.print(f"Starting {settings.name}, then answering prompts: one to three minutes.", highlight=False)
    if not (config or real):
        console.print("The shipped family stands in for SmolLM2-135M, which `make smollm2` installs.", highlight=False)
    try:
        table = _run_demo(settings, prompts_per_task, console, show_answers=not as_json)
    except KeyboardInterrupt:
        console.print("\nStopped before the end; nothing is left running.")
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        sys.stdout.write(json.dumps({"model": settings.name, **table.as_json()}, indent=2) + "\n")
    raise typer.Exit(0 if table.all_equal else FAILED)


@app.command()
def serve(
    config: Annotated[str, ConfigOption] = "family",
    host: Annotated[str | None, HostOption] = None,
    port: Annotated[int | None, PortOption] = None,
    address: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Deploy on this Ray cluster (or `auto`) and return.")
    ] = None,
    keys: Annotated[Path | None, KeysOption] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Serve everybody who reaches the service, without API keys.")
    ] = False,
    log_format: Annotated[LogFormat | None, LogFormatOption] = None,
) -> None:
    """Keep the service up until Ctrl-C.

    Starts a Ray of its own, deploys target, router, draft pools and ingress, and prints the base URL for OpenAI clients
    and a curl line. Drafts and router are those of the live bundle (`taskspec bundles list`). The same Ray takes jobs:
    the command also prints the line that starts a retraining beside the service from another terminal. Ctrl-C (or
    SIGTERM) lets running answers end; a second one drops them. Nothing is left running, jobs included.

    Example: `taskspec serve --port 8001`

    From another terminal `taskspec status` shows how the parts do, and `taskspec scale` sets their replicas.

    Others than programs on this machine are served with API keys only:

    `taskspec keys add alice --file keys`

    `taskspec serve --host 0.0.0.0 --keys keys`

    With --address it deploys on a running Ray cluster and returns; the service stays up there. The file of keys must
    then be on storage that all nodes share. A Serve that already runs there keeps the host and port on which it
    listens, which are then the defaults; others are refused, and so is a service without keys in place of one with.

    Example, on the head node: `taskspec serve --config llama2-13b --address auto`
    """
    from serve_app.local_cluster import check_port, free_port

    settings = load_config(config)
    if keys is not None:
        settings = with_keys(settings, keys)
    if log_format is not None:
        settings = settings.model_copy(update={"log_format": log_format})
    spans.check()
    here, number = host or LOOPBACK, PORT if port is None else port
    check_exposure(settings, here, insecure=insecure)
    console = Console()
    if address is not None:
        _deploy(settings, host, port, address, console, insecure=insecure)
        return
    check_port(here, number)
    served = _opened(settings, console)
    _print_bundle(served, console)
    try:
        _keep_up(served, here, number or free_port(here), console)
    except KeyboardInterrupt:
        console.print("Stopped before it was up; nothing is left running.")
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def own_ray(gpus: float) -> Iterator[None]:
    """A Ray for one command, for as long as the block lasts: all cores of the machine, and `gpus` of its GPUs."""
    from serve_app.local_cluster import local_cluster

    with local_cluster(0, gpus):
        yield


app.command()(chat_cli.chat)
app.command()(load_cli.bench)
app.command()(audit_cli.audit)
app.command()(operations_cli.status)
app.command()(operations_cli.scale)
app.command()(operations_cli.drain)
app.add_typer(bundles_cli.app, name="bundles")
app.add_typer(keys_cli.app, name="keys")
for _entry in entry_points(group=COMMANDS):
    _entry.load()(app, own_ray, jobs_at)


class _Messages(logging.Handler):
    """Writes to what stderr is at that moment, which keeps a message apart from the spinner of a step."""

    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(f"{self.format(record)}\n")


def main() -> None:
    """Run the command line; an error that the user can correct is one line, without a traceback."""
    logging.basicConfig(format="taskspec: %(message)s", level=logging.WARNING, handlers=[_Messages()])
    try:
        app(prog_name="taskspec")
    except TaskSpecError as error:
        sys.stderr.write(f"taskspec: {error}\n")
        sys.exit(error.exit_code)


def _opened(config: ServiceConfig, console: Console, *, here: bool = True) -> ServedModels:
    """The models and the bundle. If they run `here`, a GGUF file is converted now, and not unseen in a replica."""
    with step(console, "Opening models and bundle"):
        from serve_app.deployments.models.served_models import with_bundle

        if here:
            for model in (config.target.model, config.draft.model):
                locate(model)
        return with_bundle(config)


def _run_demo(config: ServiceConfig, prompts_per_task: int, console: Console, *, show_answers: bool) -> DemoTable:
    served = _opened(open_to_this_command(config), console)
    from serve_app.demo.run import Demo, report
    from serve_app.deployments.models.served_models import with_controls
    from serve_app.hosting import local_service
    from serve_app.local_cluster import free_port

    rivals = [name for name in served.controls if name != GENERAL or len(served.controls) == 1]  # not the un-adapted
    compared, controls = with_controls(served, rivals)
    with local_service(compared, LOOPBACK, free_port(LOOPBACK), console) as service:
        demo = Demo(served, service.url, controls, console, show_answers=show_answers)
        table = demo.run(prompts_per_task)
    if show_answers:
        report(table, served, console)
    return table


def _keep_up(served: ServedModels, host: str, port: int, console: Console) -> None:
    from serve_app.hosting import drain, local_service

    with local_service(served, host, port, console, jobs=True) as service:
        try:
            _print_usage(service.url, served.config, console)
            _print_retraining(service.jobs, console)
            console.print("taskspec status shows how it does, from another terminal. Ctrl-C stops it.", highlight=False)
            while True:
                signal.pause()
        except KeyboardInterrupt:
            with step(console, "Letting running answers end; Ctrl-C again drops them"), suppress(KeyboardInterrupt):
                drain()
    console.print("Stopped; nothing is left running.")


def _deploy(
    config: ServiceConfig, host: str | None, port: int | None, address: str, console: Console, *, insecure: bool
) -> None:
    from serve_app.hosting import cluster_service, join

    takedown = join(address, console)
    listener = joined_listener(config, host, port, takedown, insecure=insecure)
    served = _opened(config, console, here=False)
    _print_bundle(served, console)
    url = cluster_service(served, listener.host, listener.port, console)
    _print_usage(url, served.config, console)
    console.print(f"It stays up on that cluster. To take it down:\n{takedown}", highlight=False, soft_wrap=True)


def _print_bundle(served: ServedModels, console: Console) -> None:
    """The drafts that will be served."""
    if served.version is not None:
        tasks = [task for task in served.drafts if task != GENERAL]
        line = f"Bundle {served.version}: {GENERAL}{' and ' if tasks else ''}{', '.join(tasks)}"
    else:
        where = f" is live in {served.config.bundle}" if served.config.bundle else ""
        line = f"No bundle{where}: the un-adapted draft serves every prompt"
    console.print(line, highlight=False, markup=False, soft_wrap=True)


def _print_usage(url: str, config: ServiceConfig, console: Console) -> None:
    """Addresses, and a curl line to paste: printed raw, as one wrapped at the terminal's width does not work."""
    body = {"model": config.name, "messages": [{"role": "user", "content": EXAMPLE}]}
    key = "" if config.ingress.keys is None else ' -H "Authorization: Bearer $OPENAI_API_KEY"'
    options = f"-H 'Content-Type: application/json'{key} -d {shlex.quote(json.dumps(body))}"
    command = f"curl {url}/v1/chat/completions {options}"
    console.print(f"\nOpenAI base_url: {url}/v1   model: {config.name}\nIn a browser:    {url}/\n", highlight=False)
    console.out(command, highlight=False)
    console.print()


def _print_retraining(jobs: Jobs | None, console: Console) -> None:
    """The line that retrains beside the service."""
    if jobs is None:
        return
    console.print("A retraining on the same Ray, while it serves:\n", highlight=False)
    console.out(f"{_this_command()} retrain --config {SMALL_RETRAINING} --address auto", highlight=False)
    console.print()


def _this_command() -> str:
    """The `taskspec` command as it can be typed in another terminal in this directory."""
    script = Path(sys.executable).with_name("taskspec")
    if shutil.which("taskspec") == str(script):
        return "taskspec"
    return shlex.quote(os.path.relpath(script) if script.is_relative_to(Path.cwd()) else str(script))


if __name__ == "__main__":
    main()
