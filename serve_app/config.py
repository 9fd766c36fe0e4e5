"""The configuration of a service, one YAML file: models, replicas and scaling of every pool, limits."""

from __future__ import annotations

import difflib
import pkgutil
from collections import Counter
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

from pydantic import (
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from core.errors import ConfigError
from core.generation import MAX_SPECULATIVE_TOKENS
from core.settings import AbsolutePath, Section, read_settings
from core.target import TargetModel
from core.tools.formats import FormatName
from core.traces.memory_files import EXAMPLE, disk_at
from core.verify.sources import DEFAULT, SourceOptions, made
from serve_app.access_config import ApiKeys, Cors, Limits

ANY_NAME: Literal["any"] = "any"  # of `aliases`
LONGEST_NAME = 256  # characters of a model name
FEWEST_REQUESTS = 256  # that an ingress replica reads at a time


class Actors(Section):
    """The replicas of a deployment, their autoscaling, and the resources and node of each."""

    replicas: int = Field(1, ge=1)
    autoscaling: dict[str, Any] | None = Field(
        None,
        description="Serve's own `autoscaling_config`, instead of `replicas`; ongoing requests are open sessions. "
        "A draft pool whose drafts do not pay counts as empty, unless a `policy` is named",
    )
    num_cpus: float = Field(0.1, ge=0)
    num_gpus: float = Field(0.0, ge=0)
    label_selector: dict[str, str] = Field(
        default_factory=dict,
        description="labels of the nodes that may run one, as `ray start --labels` gives them, e.g. {role: verifier}; "
        "a value may be `!a`, `in(a, b)` or `!in(a, b)`",
    )

    @field_validator("autoscaling")
    @classmethod
    def _known_to_serve(cls, autoscaling: dict[str, Any] | None) -> dict[str, Any] | None:
        if autoscaling is not None:
            _check_autoscaling(autoscaling)
        return autoscaling

    @field_validator("label_selector")
    @classmethod
    def _known_to_ray(cls, selector: dict[str, str]) -> dict[str, str]:
        from ray.serve.schema import RayActorOptionsSchema

        try:
            RayActorOptionsSchema(label_selector=selector)
        except ValidationError as error:
            raise PydanticCustomError("label_selector", "{message}", {"message": error.errors()[0]["msg"]}) from error
        return {name: value.replace(" ", "") for name, value in selector.items()}  # Ray keeps spaces in `in(a, b)`

    @property
    def fewest(self) -> int:
        """Replicas that run at any time."""
        return self.replicas if self.autoscaling is None else int(self.autoscaling.get("min_replicas", 1))

    @property
    def most(self) -> int:
        """Replicas that may run."""
        return self.replicas if self.autoscaling is None else int(self.autoscaling.get("max_replicas", 1))


class Target(TargetModel):
    """The target: the model whose answers clients get."""

    threads: int | None = Field(
        None,
        ge=1,
        description="on a CPU; null: the fastest number found at start, at most all cores but one; with decoder: vllm "
        "1 if numerics are exact, or else the ranks share these cores",
    )
    numerics: Literal["exact", "fast"] = Field(
        "exact",
        description="exact: no token depends on the other requests in a pass, checked at start; fast: on GPUs it may",
    )
    max_sessions: int = Field(32, ge=1, description="generations in one pass")
    cache_tokens: int | None = Field(
        None,
        ge=1,
        description="tokens in the KV cache, at least one whole context; by default `max_sessions` whole contexts",
    )
    prefill_chunk: int = Field(
        256,
        ge=16,
        description="most prompt tokens of a pass; one that carries running answers reads fewer, so that it takes at "
        "most 50 ms or four times as long as without",
    )
    max_queued: int = Field(
        64, ge=1, description="prompts that wait per ingress replica, beside `max_sessions` that run; more get a 503"
    )
    tool_format: FormatName | None = Field(
        None,
        description="how the model writes calls of tools; null: as its chat template asks for. If it is given, tools "
        "also work with a template that has none: they are told in the system message",
    )
    actors: Actors = Actors()


class Draft(Section):
    """The draft: each pool serves it as the bundle adapted it to one task."""

    model: str = Field(description="directory, hub id, or family:draft")
    dtype: Literal["float32", "bfloat16"] = "float32"
    device: str = "cpu"
    num_speculative_tokens: int = Field(4, ge=1, le=MAX_SPECULATIVE_TOKENS)
    max_sessions: int = Field(32, ge=1, description="draft sessions per replica")
    actors: Actors = Field(Actors(), description="of each pool not in `pools`")


class Pool(Section):
    """The draft pool of one task."""

    actors: Actors


class Router(Section):
    """The classifier that routes a prompt to a task, if the bundle has one."""

    timeout_s: float = Field(1.0, gt=0, description="a prompt that takes longer is routed to `general`")
    actors: Actors = Actors()


class Lookup(Section, extra="allow"):
    """Proposals without a draft: tokens that followed the last ones somewhere before.

    Any source of `core.verify.sources` is switched on by its name: true, false, or the arguments of its class.
    """

    own_text: bool = Field(True, description="in the request and in its answer so far")
    remembered_tokens: int = Field(
        100_000,
        ge=0,
        description="in earlier answers of the same client: most tokens of them that a verifier replica remembers, of "
        "all clients together, 0 for none; one takes about 600 bytes",
    )
    without_key: bool = Field(
        False,
        description="whether clients without an API key share earlier answers: then the speed of an answer tells each "
        "of them whether others were answered alike",
    )

    @model_validator(mode="after")
    def _are_known(self) -> Self:
        try:
            made(self.sources)
        except ConfigError as error:
            message = f"{error}; other keys here are remembered_tokens and without_key"
            raise PydanticCustomError("lookup", "{message}", {"message": message}) from error
        return self

    @property
    def sources(self) -> SourceOptions:
        """The sources that are switched on, with their arguments."""
        answers = {"max_tokens": self.remembered_tokens, "without_owner": self.without_key}
        arguments = {**DEFAULT, "answers": answers}
        switches = {**dict.fromkeys(DEFAULT, True), "own_text": self.own_text, **(self.model_extra or {})}
        return {name: arguments.get(name, {}) if on is True else on for name, on in switches.items() if on is not False}


class Ingress(Section):
    """The HTTP server."""

    max_choices: int = Field(16, ge=1, description="largest `n` of a request")
    max_ongoing_requests: int | None = Field(
        None,
        ge=1,
        description="requests that a replica reads at a time, and more wait unseen; null: twice what verifiers and "
        "queue can hold, at least 256, so that it is always the queue that is full",
    )
    max_body_bytes: int = Field(
        4 << 20,
        ge=1024,
        description="of a request; while one of 4 MiB is read and checked the other answers of the replica wait, at "
        "most 0.15 s",
    )
    verifier_wait_s: float = Field(
        10.0,
        ge=0,
        description="while no verifier runs, a new request waits so long, then gets a 503; an answer that has begun "
        "waits 300 seconds",
    )
    keys: ApiKeys | None = Field(None, description="without this section every client is served")
    limits: Limits | None = None
    cors: Cors | None = Field(None, description="without this section no web page of another origin is")
    actors: Actors = Actors()


class RolloutSettings(Section):
    """How a running service takes up the bundles that training publishes, and when it goes back."""

    follow: bool = Field(True, description="take up the live bundle of the directory; else on `bundles deploy` only")
    every_s: float = Field(5.0, gt=0, description="between looks at the directory")
    canary: float = Field(
        0.0, ge=0, lt=1, description="share of the prompts that a followed bundle gets at first; 0: all at once"
    )
    canary_answers: int = Field(
        200,
        ge=1,
        description="drafted answers of a canary until it gets every prompt; it ends if its drafts propose nothing in "
        "ten times as many answers in a row, or if another service blocks it",
    )
    trial_answers: int = Field(
        2000, ge=1, description="drafted answers of a new bundle that are judged; one that does worse is rolled back"
    )


class Traces(Section):
    """Answers that are kept for training, as token ids with their sampling parameters."""

    directory: AbsolutePath = Field(
        description="all ingress replicas write there; a retraining reads it with `collect: {traces: DIR}`"
    )
    in_memory: bool = Field(
        False,
        description="keep nothing of a prompt on a disk, and of a client `per_key` answers: `directory` must be on a "
        "memory file system, and what learns from it, too; then files are written by `flush_seconds` alone",
    )
    per_key: int = Field(
        2000,
        ge=1,
        description="in_memory: most answers of an API key that an ingress replica keeps of `flush_seconds`, drawn by "
        "lot; clients without a key count as one",
    )
    flush_records: int = Field(1024, ge=1, description="answers that wait until a file of them is written")
    flush_seconds: float = Field(60.0, gt=0, description="most that one waits; if the replica is killed it is lost")
    queue: int = Field(8192, ge=1, description="most answers that wait; what comes on top is dropped and counted")
    max_bytes: int = Field(1 << 30, ge=1 << 24, description="of all files; the oldest are deleted to make room")
    max_days: float | None = Field(30.0, gt=0, description="older files are deleted; null: none for its age")
    redact: str | None = Field(
        None,
        description="`module:function`, importable in every ingress replica: called with each `Trace` before it is "
        "written, it returns the one to keep, or None for none",
    )

    @field_validator("redact")
    @classmethod
    def _importable(cls, redact: str | None) -> str | None:
        if redact is not None:
            _imported(redact)
        return redact

    @model_validator(mode="after")
    def _off_every_disk(self) -> Traces:
        wrong = None
        if not self.in_memory:
            if "per_key" in self.model_fields_set:
                wrong = "per_key is for answers kept in memory: write `in_memory: true` beside it, or leave it out"
        elif "flush_records" in self.model_fields_set:
            wrong = "flush_records: with in_memory files are written by flush_seconds alone; leave it out"
        elif disk := disk_at(self.directory):
            wrong = (
                f"directory: {self.directory} is on a file system of type {disk}, and in_memory needs one that is "
                f"memory: write `directory: {EXAMPLE}/traces`, or another on a tmpfs"
            )
        if wrong is not None:
            raise PydanticCustomError("traces", "{message}", {"message": wrong})
        return self

    @property
    def redaction(self) -> Callable[..., Any] | None:
        """The function that `redact` names."""
        return None if self.redact is None else _imported(self.redact)


LogFormat = Literal["text", "json"]
ModelName = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_NAME)]
Aliases = Annotated[
    Annotated[list[ModelName], Tag("names")] | Annotated[Literal["any"], Tag("any")],
    Discriminator(
        lambda value: "names" if isinstance(value, list) else "any" if value == ANY_NAME else None,
        custom_error_type="aliases",
        custom_error_message="write a list of names, or `any`",
    ),
]


class ServiceConfig(Section):
    """One service: a target, a draft, and the bundle that training published for them."""

    name: str = Field(description="the model name that clients use")
    aliases: Aliases = Field(
        default_factory=list,
        description="further model names that the service answers to, for clients with a fixed one; `any`: all names",
    )
    target: Target
    draft: Draft
    bundle: str | None = Field(
        None, description="directory that training publishes to, or family:bundle; without one only `general` is served"
    )
    pools: dict[str, Pool] = Field(default_factory=dict, description="by task of the bundle, or `general`")
    router: Router = Router()
    lookup: Lookup = Lookup()
    ingress: Ingress = Ingress()
    rollout: RolloutSettings = RolloutSettings()
    traces: Traces | None = Field(None, description="answers kept for training; without it none are kept")
    log_format: LogFormat = Field(
        "text", description="of the logs of replicas and proxies; json: an object a line, with figures of every request"
    )

    @model_validator(mode="after")
    def _names_differ(self) -> ServiceConfig:
        names = [self.name] if self.aliases == ANY_NAME else [self.name, *self.aliases]
        if twice := next((name for name, count in Counter(names).items() if count > 1), None):
            message = f"aliases: `{twice}` is there twice; write further names than `name`, each once"
            raise PydanticCustomError("aliases", "{message}", {"message": message})
        return self

    @property
    def ingress_requests(self) -> int:
        """See `Ingress.max_ongoing_requests`."""
        target = self.target
        capacity = target.actors.most * target.max_sessions + target.max_queued
        return self.ingress.max_ongoing_requests or max(FEWEST_REQUESTS, 2 * capacity)

    def anywhere(self) -> Self:
        """The same service where every node may run every part, as on a machine that stands for all kinds of node."""

        def unbound(part: Any) -> Any:
            return part.model_copy(update={"actors": part.actors.model_copy(update={"label_selector": {}})})

        parts = {name: unbound(getattr(self, name)) for name in ("target", "draft", "router", "ingress")}
        pools = {task: unbound(pool) for task, pool in self.pools.items()}
        return self.model_copy(update={**parts, "pools": pools})

    def pool_actors(self, task: str) -> Actors:
        """The replicas of the task's pool."""
        return self.pools[task].actors if task in self.pools else self.draft.actors


def _check_autoscaling(autoscaling: dict[str, Any]) -> None:
    """Serve ignores keys that it does not know; here they are errors, like wrong values."""
    from ray.serve.config import AutoscalingConfig

    fields = list(AutoscalingConfig.model_fields)
    for key in autoscaling.keys() - set(fields):
        nearest = difflib.get_close_matches(key, fields, n=1, cutoff=0.0)[0]
        raise PydanticCustomError("autoscaling", f"unknown key `{key}`; the nearest known one is `{nearest}`")
    try:
        AutoscalingConfig(**autoscaling)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        message = error.errors()[0]["msg"]
        raise PydanticCustomError("autoscaling", f"{where}: {message}" if where else message) from error


def _imported(name: str) -> Callable[..., Any]:
    try:
        function = pkgutil.resolve_name(name)
    except Exception as error:  # a module may raise anything as it is imported
        message = f"cannot import `{name}` ({type(error).__name__}: {error}); write `module:function`"
        raise PydanticCustomError("redact", "{message}", {"message": message}) from error
    if not callable(function):
        raise PydanticCustomError("redact", "{message}", {"message": f"`{name}` is not a function"})
    return cast("Callable[..., Any]", function)


def shipped_configs() -> list[str]:
    """Names of the configurations in serve_app/configs."""
    files = resources.files("serve_app.configs").iterdir()
    return sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))


def load_config(source: str | Path) -> ServiceConfig:
    """Read a YAML file, or a shipped configuration by its name. Raises `ConfigError`."""
    path = Path(source)
    if path.suffix not in (".yaml", ".yml"):
        if str(source) not in shipped_configs():
            raise ConfigError(f"no configuration {str(source)!r}; write a .yaml path or one of {shipped_configs()}")
        path = Path(str(resources.files("serve_app.configs") / f"{source}.yaml"))
    return read_settings(path, ServiceConfig)
