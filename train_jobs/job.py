"""A retraining as a Ray Job: submitted to a cluster that runs already, followed from here, stopped with Ctrl-C.

Enters: a configuration and the address of the cluster's dashboard. Leaves: the job's lines as they come, and how it
ended. `python -m train_jobs.job` is what the cluster runs.
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

if TYPE_CHECKING:
    from ray.job_submission import JobStatus, JobSubmissionClient

CONFIG = "TASKSPEC_RETRAIN"  # the job's environment variable that holds the configuration as JSON
AS_JSON = "--json"  # the job's last line is its outcome as JSON
FAILED, USAGE = 1, 2
AGAIN_SECONDS = 1.0  # until a job that has not started, or a dashboard that went away, is asked again
START_SECONDS = 30.0  # for a cluster to be ready for jobs in
STOP_SECONDS = 30.0  # for a job to stop in
HOW = "give the URL of the cluster's dashboard, such as http://127.0.0.1:8265; `ray start` and `ray up` print it"


def submit(config: RetrainConfig, stages: Sequence[str], address: str, *, as_json: bool) -> Job:
    """Start a job; the cluster needs this package installed and the configuration's absolute paths on all its nodes.

    Raises `ConfigError` where nothing answers at `address`, or it does not let us in.
    """
    client = _client(address)
    words = ["python", "-m", "train_jobs.job", *stages, *([AS_JSON] if as_json else [])]
    environment = {CONFIG: config.model_dump_json()}
    return Job(client, _submitted(client, shlex.join(words), environment))


class Job:
    """A job that was submitted."""

    def __init__(self, client: JobSubmissionClient, name: str) -> None:
        self.name = name
        self._client = client
        self._shown = 0  # characters of its log

    def follow(self, console: Console) -> bool:
        """Print the log as it grows until the job is over; whether it succeeded."""
        from ray.job_submission import JobStatus

        status = self._status()
        while not status.is_terminal():
            with suppress(Exception):  # what cut the log off shows in the status, or it can be taken up again
                asyncio.run(self._tail(console))
            time.sleep(AGAIN_SECONDS)
            status = self._status()
        self._show(self._client.get_job_logs(self.name), console)
        return status == JobStatus.SUCCEEDED

    def stop(self) -> bool:
        """Stop it and wait until it has; whether it has."""
        self._client.stop_job(self.name)
        deadline = time.monotonic() + STOP_SECONDS
        while not self._status().is_terminal() and time.monotonic() < deadline:
            time.sleep(AGAIN_SECONDS)
        return self._status().is_terminal()

    def last_line(self) -> str:
        return self._client.get_job_logs(self.name).rstrip("\n").rpartition("\n")[2]

    def _status(self) -> JobStatus:
        try:
            return self._client.get_job_status(self.name)
        except (RuntimeError, OSError) as error:
            raise TaskSpecError(
                f"lost sight of job {self.name}, which goes on if its cluster does: {error}\n"
                f"Ask for it with `ray job status {self.name}`; the same command again goes on from what it left."
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
    """What the cluster runs: the stages named on the command line, or all; ends as `taskspec retrain` does."""
    stages = [word for word in sys.argv[1:] if word != AS_JSON]
    try:
        _perform(stages, as_json=AS_JSON in sys.argv)
    except TaskSpecError as error:
        sys.stderr.write(f"taskspec: {error}\n")
        sys.exit(USAGE if isinstance(error, ConfigError) else FAILED)


def _perform(stages: Sequence[str], *, as_json: bool) -> None:
    import ray

    from train_jobs.outcome import perform
    from train_jobs.pipeline import STAGES

    if CONFIG not in os.environ:
        raise ConfigError(f"{CONFIG} holds no configuration: submit this with `taskspec retrain --address URL`")
    config = RetrainConfig.model_validate_json(os.environ[CONFIG])
    ray.init(address="auto", log_to_driver=False, logging_level=logging.ERROR)
    console = Console()
    outcome = perform(config, stages or STAGES, console)
    if as_json:
        console.out(outcome.as_json(), highlight=False)
    else:
        outcome.tell(console)


def _submitted(client: JobSubmissionClient, entrypoint: str, environment: dict[str, str]) -> str:
    """The job's name. A cluster that has just started has a dashboard before it takes jobs."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            return client.submit_job(entrypoint=entrypoint, runtime_env={"env_vars": environment})
        except (RuntimeError, OSError) as error:
            if time.monotonic() > deadline:
                raise TaskSpecError(f"the cluster takes no job: {error}") from error
        time.sleep(AGAIN_SECONDS)


def _client(address: str) -> JobSubmissionClient:
    from ray.exceptions import AuthenticationError
    from ray.job_submission import JobSubmissionClient

    if not address.startswith(("http://", "https://")):  # Ray would take it for another of the cluster's ports
        raise ConfigError(f"--address {address}: {HOW}")
    logging.getLogger("ray").setLevel(logging.ERROR)  # how each connection ended is no news
    try:
        return JobSubmissionClient(address)
    except AuthenticationError as error:
        raise ConfigError(
            f"{address} wants a token and was given {'a wrong one' if 'RAY_AUTH_MODE' in os.environ else 'none'}.\n"
            "Set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH to a file that holds the cluster's token."
        ) from error
    except (RuntimeError, OSError, ValueError) as error:
        raise ConfigError(f"no Ray dashboard answers at {address}: {error}\n{HOW}") from error


if __name__ == "__main__":
    main()
