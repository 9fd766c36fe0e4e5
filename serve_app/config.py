"""What a service is made of: one YAML file, every key known, every error saying what to write instead.

Enters: a path or the name of a shipped configuration. Leaves: a `ServiceConfig`, handed to `serve_app.applications`.
"""

from __future__ import annotations

import difflib
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from core import family
from core.errors import ConfigError

GENERAL = "general"


class Section(BaseModel):
    """A part of the file; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


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
    threads: int = Field(1, ge=1, description="torch threads, on a CPU")
    max_sessions: int = Field(32, ge=1, description="generations in one pass")
    prefill_chunk: int = Field(256, ge=16, description="prompt tokens a pass may take in beside running generations")
    max_queued: int = Field(64, ge=1, description="requests that may wait per ingress replica before 503")
    actors: Actors = Actors()


class Draft(Section):
    """The draft model; every pool serves it with an adapter of its own."""

    model: str = Field(description="directory, hub id, or family:draft")
    dtype: Literal["float32", "bfloat16"] = "float32"
    device: str = "cpu"
    num_speculative_tokens: int = Field(4, ge=1, le=15)
    max_sessions: int = Field(32, ge=1, description="draft sessions per replica")


class Pool(Section):
    """The draft replicas of one task."""

    adapter: str | None = Field(None, description="PEFT directory; none serves the un-adapted draft")
    actors: Actors = Actors()


class Router(Section):
    """The classifier that gives a prompt its task."""

    path: str = Field(description="directory, or family:router")
    timeout_s: float = Field(1.0, gt=0, description="a later answer is taken as `general`")
    actors: Actors = Actors()


class Ingress(Section):
    """The HTTP face."""

    max_choices: int = Field(16, ge=1, description="largest `n` a request may ask for")
    max_ongoing_requests: int = Field(256, ge=1)
    actors: Actors = Actors()


class ServiceConfig(Section):
    """One service: a target, a draft, and a pool of drafts per task."""

    name: str = Field(description="the model name clients use")
    target: Target
    draft: Draft
    pools: dict[str, Pool]
    router: Router | None = None
    ingress: Ingress = Ingress()

    @model_validator(mode="after")
    def _has_general(self) -> ServiceConfig:
        if GENERAL not in self.pools:
            raise ValueError(f"pools needs an entry `{GENERAL}:`, the un-adapted draft; write `{GENERAL}: {{}}`")
        return self


def locate(name: str) -> str:
    """Where a model is: `family:target`, `family:draft` and `family:router` are the shipped ones, all else as it is."""
    shipped = {"family:target": family.TARGET_DIR, "family:draft": family.DRAFT_DIR, "family:router": family.ROUTER_DIR}
    if name.startswith("family:") and name not in shipped:
        raise ConfigError(f"the family has no {name!r}; write one of {sorted(shipped)}")
    return str(shipped.get(name, name))


def pool_application(task: str) -> str:
    """Name of the Serve application that serves the task's drafts."""
    return f"draft-{task}"


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
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    return parse_config(content, str(path))


def parse_config(content: Any, origin: str = "configuration") -> ServiceConfig:
    """Check a parsed configuration; see `load_config`."""
    try:
        return ServiceConfig.model_validate(content)
    except ValidationError as error:
        problems = "\n".join(f"  {_explain(problem)}" for problem in error.errors())
        raise ConfigError(f"{origin}:\n{problems}") from error


def _explain(problem: Any) -> str:
    where = ".".join(str(part) for part in problem["loc"]) or "(top)"
    if problem["type"] != "extra_forbidden":
        return f"{where}: {problem['msg']}"
    known = _known_keys(problem["loc"][:-1])
    nearest = difflib.get_close_matches(str(problem["loc"][-1]), known, n=1)
    return f"{where}: unknown key" + (f"; did you mean `{nearest[0]}`?" if nearest else f"; known are {known}")


def _known_keys(location: tuple[int | str, ...]) -> list[str]:
    """Field names of the section at `location`, by walking the models' annotations."""
    section: Any = ServiceConfig
    for part in location:
        if isinstance(section, type) and issubclass(section, Section) and part in section.model_fields:
            annotation = section.model_fields[str(part)].annotation
            members = getattr(annotation, "__args__", (annotation,))
            section = next((m for m in reversed(members) if m is not type(None)), annotation)
    return sorted(section.model_fields) if isinstance(section, type) and issubclass(section, Section) else []
