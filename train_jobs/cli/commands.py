"""The commands `taskspec retrain`, `stage`, `draft make` and `traces import`: options, help texts and exit codes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from core.errors import FAILED, INTERRUPTED, ConfigError
from train_jobs.cluster.own_ray import on
from train_jobs.cluster.progress_view import print_line
from train_jobs.stages import STAGES, SUMMARIES

if TYPE_CHECKING:
    from train_jobs.config import RetrainConfig

Config = Annotated[
    Path, typer.Option(metavar="YAML", help="The configuration; train_jobs/configs/smoke.yaml is a small one.")
]
Work = Annotated[Path | None, typer.Option(metavar="DIR", help="Work directory, instead of the YAML's `work`.")]
Bundles = Annotated[Path | None, typer.Option(metavar="DIR", help="Bundle directory, instead of the YAML's `bundles`.")]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Run as a Ray Job on this Ray cluster, named as for `taskspec serve` (`auto` for the one here), or by the "
        "URL of its dashboard.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print only the outcome, as JSON, on stdout.")]
Watched = Annotated[
    bool, typer.Option("--watch", help="Stay, look at the traces for drift, and retrain when there is a reason.")
]
OwnRay = Callable[[float], AbstractContextManager[None]]
JobsAt = Callable[[str], str]


def add_commands(app: typer.Typer, own_ray: OwnRay, jobs_at: JobsAt) -> None:
    """Add retrain, stage, draft and traces.

    `own_ray(gpus)` starts a Ray for one command and stops it afterwards. `jobs_at(address)` gives the URL at which the
    Ray at an address takes jobs.
    """
    commands = Commands(own_ray, jobs_at)
    app.command("retrain")(commands.retrain)
    app.command("stage", help=_stage_help())(commands.stage)
    draft = typer.Typer(no_args_is_help=True, help="Drafts for targets that have none.")
    draft.callback()(_only_commands)
    draft.command("make")(commands.make_draft)
    app.add_typer(draft, name="draft")
    traces = typer.Typer(no_args_is_help=True, help="Prompts with the target's answers, stored for training.")
    traces.callback()(_only_commands)
    traces.command("import")(commands.import_traces)
    app.add_typer(traces, name="traces")


def _stage_help() -> str:
    stages = "\n\n".join(f"- `{name}`: {summary}" for name, summary in SUMMARIES.items())
    return f"""Run one stage of a retraining. The stages before it must be done.

{stages}

A stage's results lie in the work directory under its name; `publish` writes to --bundles.

Example: `taskspec stage align --config train_jobs/configs/smoke.yaml`
"""


def _known_stage(name: str) -> str:
    if name not in STAGES:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(map(repr, STAGES))}")
    return name


class Commands:
    """The commands, with the Ray they run on."""

    def __init__(self, own_ray: OwnRay, jobs_at: JobsAt) -> None:
        self._own_ray = own_ray
        self._jobs_at = jobs_at

    def retrain(
        self,
        config: Config,
        work: Work = None,
        bundles: Bundles = None,
        address: Address = None,
        watch: Watched = False,
        as_json: AsJson = False,
    ) -> None:
        """Find the tasks in prompts, train a draft for each, and publish the drafts that beat those in service.

        `taskspec stage --help` describes its stages. They run on a Ray of their own on this machine, and a progress
        view estimates the time left: minutes with train_jobs/configs/smoke.yaml on two cores, hours with a large
        target. The last lines give the report's path (one HTML page, with the same figures as JSON beside it) and what
        was published. Services that load from the same --bundles serve it.

        Example: `taskspec retrain --config train_jobs/configs/smoke.yaml --work /tmp/work --bundles /tmp/bundles`

        After Ctrl-C or a crash, the same command resumes from the work directory. A stage that is done is run again
        only if the YAML, the prompts or the models change.

        With --address it runs as a Ray Job on a cluster that has this package installed. Its output appears here;
        Ctrl-C stops the job. All paths are the cluster's, on a file system that its nodes share. If the cluster
        requires a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH.

        Example: `taskspec retrain --config /shared/mine.yaml --address http://127.0.0.1:8265`

        With --watch it stays. Every `watch.every_s` seconds it compares the last answers in `collect.traces` with the
        first ones under the live bundle, prints a line, and retrains if the mix of tasks, the prompts' distance from
        them or the drafts' acceptance drifted, or if `watch.at_least_every_h` hours have passed. Each retraining has a
        directory of its own in the work directory, where `watch.json` has the last figures.

        Example: `taskspec retrain --watch --config /shared/mine.yaml --address http://127.0.0.1:8265`

        Exit codes: 0 for success, 1 for a failure, 2 for invalid options or configuration, 130 after Ctrl-C.
        """
        settings = _loaded(config, work, bundles)
        if watch:
            self._watch(settings, address, as_json=as_json)
        else:
            self._run(settings, STAGES, address, as_json=as_json)

    def stage(
        self,
        name: Annotated[str, typer.Argument(metavar="NAME", help="One of those above.", callback=_known_stage)],
        config: Config,
        work: Work = None,
        bundles: Bundles = None,
        address: Address = None,
        as_json: AsJson = False,
    ) -> None:
        """See `_stage_help`."""
        self._run(_loaded(config, work, bundles), (name,), address, as_json=as_json)

    def make_draft(
        self,
        config: Config,
        layers: Annotated[int | None, typer.Option(min=1, help="Layers of the draft, instead of the YAML's.")] = None,
        vocabulary: Annotated[
            int | None, typer.Option(min=2, help="Token ids in its head, instead of the YAML's.")
        ] = None,
        work: Work = None,
    ) -> None:
        """Make a draft for a target that has none, from the target itself, and align it on the target's answers.

        The YAML is that of a retraining: its `target` answers the prompts of its `collect`, and its `draft` is the
        directory to write. The draft keeps a few of the target's layers, the first and the last among them, and the
        head's rows of the tokens that the answers use; with `make: {width: 256}` it is a narrow copy instead. What
        neither the options nor `make` give is chosen by short trials: the shape with the most tokens a second, from
        costs measured here. The last table shows what a token costs beside a pass of the target, and how much is
        accepted. A draft that is in the directory already stays, unless the new one is better.

        Example: `taskspec draft make --config train_jobs/configs/smollm2.yaml --layers 2 --vocabulary 4096`

        After Ctrl-C the same command resumes. Then `taskspec retrain` with the same YAML finds tasks, and trains
        adapters of the draft.
        """
        settings, console = _loaded(config, work, None), Console()
        changes = {name: value for name, value in (("layers", layers), ("vocabulary", vocabulary)) if value is not None}
        settings = settings.model_copy(update={"make": settings.make.model_copy(update=changes)})
        _check_cpus(settings)
        with _stoppable(console, _again(settings)), on(self._own_ray(_gpus(settings))):
            from train_jobs.retrain.make_draft import make_draft

            draft = make_draft(settings, console)
        counts = draft.promise.counts
        speed = f"{counts.speedup:.2f} times plain decoding with {counts.length} drafted at once"
        accepted = f"{counts.acceptance_rate:.3f} accepted, {counts.tokens_per_pass:.2f} tokens per target pass"
        print_line(console, f"The {'draft' if draft.in_place else 'new draft'} is in {draft.directory}")
        print_line(console, f"On held-out answers {speed}; {accepted}")
        if draft.gain is not None:
            gain = "{:+.1%} ({:+.1%} to {:+.1%}) tokens a second".format(*draft.gain)
            print_line(console, f"Over the draft that was in {draft.place} it brings {gain}")
        if not draft.in_place:
            print_line(console, f"So that one stays; to have the new one, delete {draft.place} and run this again")

    def import_traces(
        self,
        file: Annotated[
            Path,
            typer.Argument(
                metavar="JSONL",
                help='Lines of {"prompt": ...}, {"messages": ...}, or as ShareGPT or Alpaca has them.',
            ),
        ],
        to: Annotated[Path, typer.Option(metavar="DIR", help="Trace directory; created if missing.")],
        config: Config,
    ) -> None:
        """Let the target answer the prompts of a file, and store prompts and answers as traces.

        A retraining learns from DIR if its YAML has `collect: {traces: DIR}`. The YAML's `target` answers, with the
        temperatures, length and seed of its `collect`. A line may name its `task`; only the report uses it.

        Example: `taskspec traces import prompts.jsonl --to traces --config train_jobs/configs/smoke.yaml`

        Ctrl-C keeps the complete shards (`collect.shard` prompts each); a new import answers all prompts again.
        """
        from core.text.prompt_files import read_prompts

        settings, prompts = _loaded(config, None, None), read_prompts(file)
        _make(to)
        console = Console()
        with _stoppable(console, f"complete shards are in {to}"), on(self._own_ray(_gpus(settings))):
            from core.traces.store import TraceStore
            from train_jobs.cluster.progress import Progress
            from train_jobs.stages.collect import answer_file

            shards = -(-len(prompts) // settings.collect.shard)
            with Progress(console) as progress, progress.stage("import", shards) as report:
                count = answer_file(settings, file, TraceStore(to), report)
        print_line(console, f"{count} traces in {to}")

    def _watch(self, config: RetrainConfig, address: str | None, *, as_json: bool) -> None:
        if as_json:
            raise ConfigError(
                f"--json prints an outcome, and --watch has none: leave it out, and read {config.work}/watch.json"
            )
        config.watched()
        console = Console()
        if address is not None:
            _submit(config, (), self._jobs_at(address), console, watch=True)
            return
        _check_cpus(config)
        with _stoppable(console, _again(config)), on(self._own_ray(_gpus(config))):
            from train_jobs.watch.watch import watch

            watch(config, console)

    def _run(self, config: RetrainConfig, stages: Sequence[str], address: str | None, *, as_json: bool) -> None:
        console = Console(stderr=as_json)
        if address is not None:
            _submit(config, stages, self._jobs_at(address), console, as_json=as_json)
            return
        _check_cpus(config)
        with _stoppable(console, _again(config)), on(self._own_ray(_gpus(config))):
            from train_jobs.retrain.pipeline import retrain

            outcome = retrain(config, stages, console)
        if as_json:
            sys.stdout.write(outcome.as_json() + "\n")
        else:
            outcome.print(console)


def _only_commands() -> None:
    """A callback, without which typer would make the only subcommand the command itself."""


def _submit(
    config: RetrainConfig,
    stages: Sequence[str],
    address: str,
    console: Console,
    *,
    as_json: bool = False,
    watch: bool = False,
) -> None:
    from train_jobs.cli.job import submit

    signal.signal(signal.SIGTERM, _as_ctrl_c)
    with _stoppable(console, _again(config)):
        job = submit(config, stages, address, as_json=as_json, watch=watch)
    try:
        succeeded = job.follow(console)
    except KeyboardInterrupt:
        stopped = f"Stopped job {job.name}" if job.stop() else f"Job {job.name} is stopping"
        print_line(console, f"{stopped}; {_again(config)}")
        raise typer.Exit(INTERRUPTED) from None
    if not succeeded:
        print_line(console, f"Job {job.name} failed; {_again(config)}")
        raise typer.Exit(FAILED)
    if as_json:
        sys.stdout.write(job.last_line() + "\n")


def _as_ctrl_c(*_: object) -> None:
    """asyncio, which follows the log, shuts down properly only on SIGINT; a shell's background jobs ignore that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.raise_signal(signal.SIGINT)


def _loaded(file: Path, work: Path | None, bundles: Path | None) -> RetrainConfig:
    """The configuration with the options applied and its paths absolute."""
    from train_jobs.config import load_config

    instead = {name: path for name, path in (("work", work), ("bundles", bundles)) if path is not None}
    return load_config(file).model_copy(update=instead).anchored()


@contextmanager
def _stoppable(console: Console, then: str) -> Iterator[None]:
    """End the command with one line on Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        print_line(console, f"Stopped; nothing is left running; {then}")
        raise typer.Exit(INTERRUPTED) from None


def _again(config: RetrainConfig) -> str:
    from train_jobs.work.in_memory import learns_in_memory

    if learns_in_memory(config):
        return "nothing of the answers is left of it; the same command begins anew"
    return f"the same command resumes from {config.work}"


def _gpus(config: RetrainConfig) -> float:
    return max(worker.num_gpus for worker in config.workers().values())


def _check_cpus(config: RetrainConfig) -> None:
    """Refuse a worker larger than the machine: Ray would wait for it forever."""
    here = os.cpu_count() or 1
    for section, worker in config.workers().items():
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
