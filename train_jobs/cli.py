"""The training commands of `taskspec`: options enter, exit codes leave.

0 is success, 1 a retraining that failed, 2 something to write differently, 130 Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from core.errors import ConfigError
from train_jobs.progress_view import leave

if TYPE_CHECKING:
    from train_jobs.config import RetrainConfig, Worker

FAILED, INTERRUPTED = 1, 130
StageName = Literal["collect", "partition", "align", "router", "evaluate", "publish", "study", "report"]

Config = Annotated[Path, typer.Option(metavar="YAML", help="What to train; train_jobs/smoke.yaml is a small one.")]
Work = Annotated[Path | None, typer.Option(metavar="DIR", help="Everything between, instead of the YAML's `work`.")]
Bundles = Annotated[Path | None, typer.Option(metavar="DIR", help="What is served, instead of the YAML's `bundles`.")]
Address = Annotated[
    str | None, typer.Option(metavar="URL", help="Run as a Ray Job on this cluster: its dashboard, http://HEAD:8265.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Only the outcome, as JSON, on stdout.")]
OwnRay = Callable[[float], AbstractContextManager[None]]


def add_commands(app: typer.Typer, own_ray: OwnRay) -> None:
    """Add retrain, stage and traces; `own_ray(gpus)` is a Ray for one command, gone after it."""
    commands = Commands(own_ray)
    app.command("retrain")(commands.retrain)
    app.command("stage")(commands.stage)
    traces = typer.Typer(no_args_is_help=True, help="Prompts and the target's answers to them, kept to learn from.")
    traces.callback()(_traces)
    traces.command("import")(commands.import_traces)
    app.add_typer(traces, name="traces")


class Commands:
    """What the commands share: where their Ray comes from."""

    def __init__(self, own_ray: OwnRay) -> None:
        self._own_ray = own_ray

    def retrain(
        self,
        config: Config,
        work: Work = None,
        bundles: Bundles = None,
        address: Address = None,
        as_json: AsJson = False,
    ) -> None:
        """Find the tasks in prompts, fit a draft to each, and publish what is better than what is served.

        Eight stages: collect, partition, align, router, evaluate, publish, study, report; `taskspec stage --help` tells
        what each does. They run on a Ray of its own on this machine, all under one view that says how long it will
        take: minutes with train_jobs/smoke.yaml on two cores, hours with a large target. At the end stand the report's
        path (one HTML page; the same as JSON beside it) and what was published: services that load from the same
        --bundles serve it.

        Example: `taskspec retrain --config train_jobs/smoke.yaml --work /tmp/work --bundles /tmp/bundles`

        Ctrl-C, or a machine that dies, costs little: the same command goes on from what lies in the work directory.
        Done once, it is not done again unless the YAML, the prompts or the models change.

        With --address it runs as a Ray Job on a cluster that has this package installed. Its lines appear here; Ctrl-C
        stops the job. All paths are the cluster's, on a file system its nodes share. If the cluster asks for a token,
        set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH.

        Example: `taskspec retrain --config /shared/mine.yaml --address http://127.0.0.1:8265`

        Exit code 0 if it was published and reported, 1 if it failed, 2 if something is to be written differently.
        """
        self._run(_loaded(config, work, bundles), (), address, as_json=as_json)

    def stage(
        self,
        name: Annotated[StageName, typer.Argument(metavar="NAME", help="One of those above.")],
        config: Config,
        work: Work = None,
        bundles: Bundles = None,
        address: Address = None,
        as_json: AsJson = False,
    ) -> None:
        """Run one stage of a retraining; those before it must be done.

        - `collect`: prompts, answered by the target

        - `partition`: the tasks in them, and a name for each

        - `align`: a draft for each task, one Ray Train run each, and the controls beside them

        - `router`: the classifier that tells a prompt's task

        - `evaluate`: all drafts compared on held-out prompts; which slot gets which, and why

        - `publish`: a bundle of the winners, live at once

        - `study`: curves for the report that cost training of their own, if the YAML asks for any

        - `report`: one HTML page with plots, and the same as JSON

        What a stage leaves lies in the work directory under its name; `publish` writes to --bundles.

        Example: `taskspec stage align --config train_jobs/smoke.yaml`
        """
        self._run(_loaded(config, work, bundles), (name,), address, as_json=as_json)

    def import_traces(
        self,
        file: Annotated[Path, typer.Argument(metavar="JSONL", help='Lines of {"prompt": ...} or {"messages": ...}.')],
        to: Annotated[Path, typer.Option(metavar="DIR", help="Where the traces are kept; made if it is not there.")],
        config: Config,
    ) -> None:
        """Let the target answer the prompts of a file, and keep both as a service keeps its traffic.

        A retraining learns from DIR when its YAML says `collect: {traces: DIR}`. The YAML's `target` answers, with the
        temperatures, length and seed of its `collect`. A line may name its `task`; that is for the report alone.

        Example: `taskspec traces import prompts.jsonl --to traces --config train_jobs/smoke.yaml`

        Ctrl-C keeps the shards (`collect.shard` prompts each) that were answered; importing again answers all again.
        """
        from core.prompts import read_prompts

        settings, prompts = _loaded(config, None, None), read_prompts(file)
        _make(to)
        console = Console()
        with _stoppable(console, f"what was answered is in {to}"), _on(self._own_ray(_gpus(settings))):
            from core.traces import TraceStore
            from train_jobs.collect import answer_file
            from train_jobs.progress import Progress

            shards = -(-len(prompts) // settings.collect.shard)
            with Progress(console) as progress, progress.stage("import", shards) as report:
                kept = answer_file(settings, file, TraceStore(to), report)
        leave(console, f"{kept} traces in {to}")

    def _run(self, config: RetrainConfig, stages: Sequence[str], address: str | None, *, as_json: bool) -> None:
        console = Console(stderr=as_json)
        if address is not None:
            _submit(config, stages, address, console, as_json=as_json)
            return
        _check_cpus(config)
        with _stoppable(console, _again(config)), _on(self._own_ray(_gpus(config))):
            from train_jobs.outcome import perform
            from train_jobs.pipeline import STAGES

            outcome = perform(config, stages or STAGES, console)
        if as_json:
            sys.stdout.write(outcome.as_json() + "\n")
        else:
            outcome.tell(console)


def _traces() -> None:
    """Keeps `import` a subcommand though it is the only one."""


def _submit(config: RetrainConfig, stages: Sequence[str], address: str, console: Console, *, as_json: bool) -> None:
    from train_jobs.job import submit

    # asyncio, which follows the log, ends in good order on SIGINT alone
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    with _stoppable(console, _again(config)):
        job = submit(config, stages, address, as_json=as_json)
    try:
        succeeded = job.follow(console)
    except KeyboardInterrupt:
        stopped = f"Stopped job {job.name}" if job.stop() else f"Job {job.name} was told to stop"
        leave(console, f"{stopped}; {_again(config)}")
        raise typer.Exit(INTERRUPTED) from None
    if not succeeded:
        leave(console, f"Job {job.name} failed; {_again(config)}")
        raise typer.Exit(FAILED)
    if as_json:
        sys.stdout.write(job.last_line() + "\n")


def _loaded(file: Path, work: Path | None, bundles: Path | None) -> RetrainConfig:
    """The configuration for any process: workers have working directories of their own."""
    from train_jobs.config import load_config

    instead = {name: path for name, path in (("work", work), ("bundles", bundles)) if path is not None}
    return load_config(file).model_copy(update=instead).anchored()


@contextmanager
def _on(ray: AbstractContextManager[None]) -> Iterator[None]:
    """A Ray that is the only one: without this, a call that comes late would start another."""
    os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"  # read when ray is imported
    with ray:
        yield


@contextmanager
def _stoppable(console: Console, then: str) -> Iterator[None]:
    """Ctrl-C ends the command with one line."""
    try:
        yield
    except KeyboardInterrupt:
        leave(console, f"Stopped; nothing is left running; {then}")
        raise typer.Exit(INTERRUPTED) from None


def _again(config: RetrainConfig) -> str:
    return f"the same command goes on from what is in {config.work}"


def _workers(config: RetrainConfig) -> dict[str, Worker]:
    sections = ("collect", "partition", "align", "router", "evaluate")
    return {section: getattr(config, section).worker for section in sections}


def _gpus(config: RetrainConfig) -> float:
    return max(worker.num_gpus for worker in _workers(config).values())


def _check_cpus(config: RetrainConfig) -> None:
    """A worker larger than the machine would be waited for without end."""
    here = os.cpu_count() or 1
    for section, worker in _workers(config).items():
        if worker.num_cpus > here:
            raise ConfigError(
                f"{section}.worker.num_cpus: a worker takes {worker.num_cpus} CPUs and this machine has {here}.\n"
                f"Write {here} or less, or run it on a cluster with --address."
            )


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--to {directory}: {error.strerror}; give a directory that can be written") from error
