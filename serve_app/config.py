"""What a service is made of: one YAML file, every key known, every error saying what to write instead.

Enters: a path or the name of a shipped configuration. Leaves: a `ServiceConfig`, handed to `serve_app.applications`.
"""

from __future__ import annotations

import hashlib
import re
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from core.errors import ConfigError
from core.settings import Section, parse_settings, read_settings

GENERAL = "general"
_SLUG_LENGTH = 40  # of a task's name in the name of its application


class Autoscaling(Section):
    """Replicas follow the sessions open on them."""

    min_replicas: int = Field(1, ge=0)
    max_replicas: int = Field(4, ge=1)
    target_ongoing_requests: float = Field(8.0, gt=0, description="sessions per replica to aim at")


class Actors(Section):
    """How many replicas a deployment has and what each takes of its machine."""

    replicas: int = Field(1, ge=1)
    autoscaling: Autoscaling | None = Field(None, description="instead of `replicas`")
    num_cpus: float = Field(0.1, ge=0)
    num_gpus: float = Field(0.0, ge=0)
    resources: dict[str, float] = Field(default_factory=dict, description="Ray custom resources, e.g. {verifier: 1}")


class Target(Section):
    """The model whose answers the client gets."""

    model: str = Field(description="directory, hub id, or family:target")
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    device: str = "cpu"
    threads: int | None = Field(
        None,
        ge=1,
        description="on a CPU; null: of all cores but one, as many as are found worth while at start",
    )
    compiled: bool | None = Field(None, description="compute in compiled loops, not torch; null: on a CPU")
    numerics: Literal["exact", "fast"] = Field(
        "exact", description="exact: no token hangs on who shares its pass, looked into at start; fast: on GPUs it may"
    )
    max_sessions: int = Field(32, ge=1, description="generations in one pass")
    cache_tokens: int | None = Field(
        None,
        ge=1,
        description="tokens the KV cache holds, at least one whole context; by default `max_sessions` whole contexts",
    )
    prefill_chunk: int = Field(256, ge=16, description="prompt tokens a pass may take in beside running generations")
    max_queued: int = Field(64, ge=1, description="requests that may wait per ingress replica before 503")
    actors: Actors = Actors()


class Draft(Section):
    """The draft model; every pool serves what the bundle made of it for one task."""

    model: str = Field(description="directory, hub id, or family:draft")
    dtype: Literal["float32", "bfloat16"] = "float32"
    device: str = "cpu"
    num_speculative_tokens: int = Field(4, ge=1, le=15)
    max_sessions: int = Field(32, ge=1, description="draft sessions per replica")
    actors: Actors = Field(Actors(), description="of each pool that `pools` does not name")


class Pool(Section):
    """The draft replicas of one task."""

    actors: Actors


class Router(Section):
    """The classifier that gives a prompt its task; it runs where the bundle holds one."""

    timeout_s: float = Field(1.0, gt=0, description="a later answer is taken as `general`")
    actors: Actors = Actors()


class Ingress(Section):
    """The HTTP face."""

    max_choices: int = Field(16, ge=1, description="largest `n` a request may ask for")
    max_ongoing_requests: int = Field(256, ge=1)
    stream_interval_s: float = Field(
        0.0, ge=0, le=60, description="streams send at this interval, so that chunks do not tell of runs; 0: every run"
    )
    actors: Actors = Actors()


class ServiceConfig(Section):
    """One service: a target, a draft, and what training published for them."""

    name: str = Field(description="the model name clients use")
    target: Target
    draft: Draft
    bundle: str | None = Field(
        None, description="directory that training publishes to, or family:bundle; none serves `general` alone"
    )
    pools: dict[str, Pool] = Field(default_factory=dict, description="actors of tasks of the bundle, and of `general`")
    router: Router = Router()
    ingress: Ingress = Ingress()

    def pool_actors(self, task: str) -> Actors:
        """How the task's pool is scaled."""
        return self.pools[task].actors if task in self.pools else self.draft.actors


def pool_application(task: str) -> str:
    """Name of the Serve application that serves the task's drafts: `draft-<task>`.

    Ray's metrics take nothing but ASCII, and tasks are named in any script: of such a name only the plain letters are
    kept, and `_` with a digest, which no plain name has, tells it apart.
    """
    plain = re.sub(r"[^A-Za-z0-9]+", "-", task).strip("-")[:_SLUG_LENGTH]
    if plain == task:
        return f"draft-{task}"
    return f"draft-{plain}_{hashlib.sha256(task.encode()).hexdigest()[:12]}"


def draft_label(task: str, directory: str | None) -> str:
    """Names a draft for the verifier's estimates, in ASCII; another draft of the same task has another."""
    return pool_application(task) + ("" if directory is None else f"@{Path(directory).name[:12]}")


def pool_of(label: str) -> str:
    """The pool application whose draft bears the label."""
    return label.partition("@")[0]


def shipped_configs() -> list[str]:
    """Names of the configurations in serve_app/configs."""
    files = resources.files("serve_app.configs").iterdir()
    return sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))


def load_config(source: str | Path) -> ServiceConfig:
    """Read a YAML file, or a shipped configuration by its name; `ConfigError` names the key and the nearest known."""
    path = Path(source)
    if path.suffix not in (".yaml", ".yml"):
        if str(source) not in shipped_configs():
            raise ConfigError(f"no configuration {str(source)!r}; write a .yaml path or one of {shipped_configs()}")
        path = Path(str(resources.files("serve_app.configs") / f"{source}.yaml"))
    return read_settings(path, ServiceConfig)


def parse_config(content: Any, origin: str = "configuration") -> ServiceConfig:
    """Check a parsed configuration; see `load_config`."""
    return parse_settings(content, ServiceConfig, origin)
