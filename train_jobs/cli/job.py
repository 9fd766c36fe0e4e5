"""A retraining as a Ray Job: submitted to a running cluster, its log followed here, stopped with Ctrl-C.

`python -m train_jobs.cli.job` is the entry point that the cluster runs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from rich.console import Console

from core.errors import ConfigError, TaskSpecError
from train_jobs.config import RetrainConfig
from train_jobs.stages import STAGES

if TYPE_CHECKING:
    from ray.job_submission import JobStatus, JobSubmissionClient

CONFIG = "TASKSPEC_RETRAIN"  # the job's environment variable that holds the configuration as JSON
AS_JSON = "--json"  # the job's last line is its outcome as JSON
WATCH = "--watch"  # the job looks for drift, and retrains, until it is stopped
POLL_SECONDS = 1.0  # between two requests to the dashboard
START_SECONDS = 30.0  # for a new cluster to accept jobs
STOP_SECONDS = 30.0  # for a job to stop
HOW = "give the URL of the cluster's dashboard, such as http://127.0.0.1:8265; `ray start` and `ray up` print it"


def submit(
    config: RetrainConfig, stages: Sequence[str], address: str, *, as_json: bool = False, watch: bool = False
) -> Job:
    """Start a job. The cluster needs this package installed, and the configuration's absolute paths on all its nodes.

    Raises `ConfigError` if nothing answers at `address`, or if it refuses the token.
    """
    client = _client(address)
    options = [option for option, chosen in ((AS_JSON, as_json), (WATCH, watch)) if chosen]
    words = ["python", "-m", "train_jobs.cli.job", *stages, *options]
    environment = {CONFIG: config.model_dump_json()}
    return Job(client, _submitted(client, shlex.join(words), environment))


class Job:
    """A submitted job."""

    def __init__(self, client: JobSubmissionClient, name: str) -> None:
        self.name = name
        self._client = client
        self._shown = 0  # characters of its log

    def follow(self, console: Console) -> bool:
        """Print the log as it grows until the job is over; True if the job succeeded."""
        from ray.job_submission import JobStatus

        status = self._status()
        while not status.is_terminal():
            with suppress(Exception):  # a broken log stream is opened again; a failed job shows in its status
                asyncio.run(self._tail(console))
            time.sleep(POLL_SECONDS)
            status = self._status()
        self._show(self._client.get_job_logs(self.name), console)
        return status == JobStatus.SUCCEEDED

    def stop(self) -> bool:
        """Stop the job and wait for it; True if it has stopped."""
        self._client.stop_job(self.name)
        deadline = time.monotonic() + STOP_SECONDS
        while not self._status().is_terminal() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        return self._status().is_terminal()

    def last_line(self) -> str:
        return self._client.get_job_logs(self.name).rstrip("\n").rpartition("\n")[2]

    def _status(self) -> JobStatus:
        try:
            return self._client.get_job_status(self.name)
        except (RuntimeError, OSError) as error:
            raise TaskSpecError(
                f"lost the connection to job {self.name}, which continues if its cluster does: {error}\n"
                f"`ray job status {self.name}` shows its state; after its end the same command resumes ."
            ) from error

    async def _tail(self, console: Console) -> None:
        log = ""
        async for lines in self._client.tail_job_logs(self.name):
            log += lines
            self._show(log, console)

    def _show(self, log: str, console: Console) -> None:
        console.out(log[self._shown :], end="", highlight=False)
        self._shown = max(self._shown, len(log))


def main() -> None:
    """Run the stages named on the command line; exit as `taskspec retrain` does."""
    try:
        _run([name for name in STAGES if name in sys.argv], as_json=AS_JSON in sys.argv, watch=WATCH in sys.argv)
    except TaskSpecError as error:
        sys.stderr.write(f"taskspec: {error}\n")
        sys.exit(error.exit_code)


def _run(stages: Sequence[str], *, as_json: bool, watch: bool) -> None:
    import ray

    from train_jobs.cluster.ray_private import silence_raylets
    from train_jobs.retrain.pipeline import retrain
    from train_jobs.watch.watch import watch as watch_traces

    if CONFIG not in os.environ:
        raise ConfigError(f"{CONFIG} is not set: submit this job with `taskspec retrain --address URL`")
    config = RetrainConfig.model_validate_json(os.environ[CONFIG])
    silence_raylets()
    ray.init(address="auto", log_to_driver=False, logging_level=logging.ERROR)
    console = Console()
    if watch:
        watch_traces(config, console)
        return
    outcome = retrain(config, stages, console)
    if as_json:
        console.out(outcome.as_json(), highlight=False)
    else:
        outcome.print(console)


def _submitted(client: JobSubmissionClient, entrypoint: str, environment: dict[str, str]) -> str:
    """The job's name. Retries for a while: a new cluster has a dashboard before it accepts jobs."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            return client.submit_job(entrypoint=entrypoint, runtime_env={"env_vars": environment})
        except (RuntimeError, OSError) as error:
            if time.monotonic() > deadline:
                raise TaskSpecError(f"the cluster accepts no job: {error}") from error
        time.sleep(POLL_SECONDS)


def _client(address: str) -> JobSubmissionClient:
    from ray.exceptions import AuthenticationError
    from ray.job_submission import JobSubmissionClient

    if not address.startswith(("http://", "https://")):  # Ray would try it as the address of a driver port
        raise ConfigError(f"--address {address}: {HOW}")
    logging.getLogger("ray").setLevel(logging.ERROR)  # it logs every closed connection
    try:
        return JobSubmissionClient(address)
    except AuthenticationError as error:
        raise ConfigError(
            f"{address} requires a token and got {'a wrong one' if 'RAY_AUTH_MODE' in os.environ else 'none'}.\n"
            "Set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH to a file that holds the cluster's token."
        ) from error
    except (RuntimeError, OSError, ValueError) as error:
        raise ConfigError(f"no Ray dashboard answers at {address}: {error}\n{HOW}") from error


if __name__ == "__main__":
    main()
