"""Asks the nodes of a cluster, before anything is deployed, whether they can read what the parts of a service load.

A part is asked about on every node that may run a replica of it. Directories are on storage that all these nodes share,
or are copied to each; only the traces must be shared, as a retraining reads those of all replicas at one place.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from core.errors import ConfigError
from core.model.loader import adapted_model
from core.model_names import locate
from serve_app.config import Actors, ServiceConfig
from serve_app.deployments.deploy.nodes import Node, alive
from serve_app.deployments.models.served_models import ServedModels, bundle_root

PACKAGE = "taskspec"
PATIENCE = 60.0  # seconds for the nodes to answer; a worker may have to start first
MARK = ".shared-"  # begins the name of a file by which nodes find out whether they see one directory


class Need(NamedTuple):
    """A file or directory that a part reads, and what asks for it: a key of the configuration, or a pool."""

    path: str
    asked_by: str


class ReadingPart(NamedTuple):
    """A part of a service, where it may run, and what it reads."""

    name: str
    actors: Actors
    needs: tuple[Need, ...]


class Look(NamedTuple):
    """What a node has: the version of this package, and by path why it cannot be read, or a digest of its content."""

    version: str
    faults: Mapping[str, str]
    digests: Mapping[str, str]


def check(served: ServedModels) -> None:
    """Raise `ConfigError` if a node of the cluster of this process lacks what a part that it may run needs."""
    parts, nodes = parts_of(served), alive()
    if homeless := list(unlabelled(parts, nodes)):
        raise ConfigError("\n".join(["no node of the cluster has the labels for:", *homeless]))
    paths = {node: {need.path for part in parts if node.may_run(part.actors) for need in part.needs} for node in nodes}
    keys = served.config.ingress.keys
    digested = () if keys is None else (str(keys.file),)
    looks = _looks({node: (sorted(files), digested) for node, files in paths.items() if files})
    complaints = [*missing(parts, looks), *_differing(digested, looks)]
    if not complaints:
        complaints = list(_unshared_traces(served.config, nodes))
    if complaints:
        raise ConfigError("\n".join(["the nodes of the cluster lack what they would load:", *complaints]))


def parts_of(served: ServedModels) -> list[ReadingPart]:
    """The parts of the service that read files, each with what it reads; models of the hub are no files."""
    config = served.config
    target = _model("target.model", config.target.model)
    keys = () if config.ingress.keys is None else (Need(str(config.ingress.keys.file), "ingress.keys.file"),)
    parts = [
        ReadingPart("the target", config.target.actors, target),
        ReadingPart("the ingress", config.ingress.actors, (*target, *keys)),
        *(_pool(served, task, target) for task in served.drafts),
    ]
    if served.router is not None:
        parts.append(ReadingPart("the router", config.router.actors, (Need(served.router, "bundle"),)))
    if config.bundle is not None:
        parts.append(ReadingPart("the rollout", Actors(num_cpus=0), (Need(str(bundle_root(config)), "bundle"),)))
    return parts


def unlabelled(parts: Sequence[ReadingPart], nodes: Sequence[Node]) -> Iterator[str]:
    """A line per part that no node is labelled for, though it has replicas at any time."""
    for part in parts:
        if part.actors.fewest and not any(node.has_labels(part.actors) for node in nodes):
            labels = ",".join(f"{name}={value}" for name, value in part.actors.label_selector.items())
            yield (
                f"- {part.name}: {labels}; start a node with `ray start --labels {labels}`, wait for one that the "
                "launcher starts, or change the `label_selector` of the part's `actors`"
            )


def missing(parts: Sequence[ReadingPart], looks: Mapping[Node, Look]) -> Iterator[str]:
    """A line per node and path that the node cannot read, with who needs it there."""
    own = version(PACKAGE)
    for node, look in looks.items():
        if look.version != own:
            yield f"- node {node.address} has {PACKAGE} {look.version}, and this machine {own}: install the same there"
        for path, fault in look.faults.items():
            readers = [part for part in parts if node.may_run(part.actors) for need in part.needs if need.path == path]
            asked_by = next(need.asked_by for part in readers for need in part.needs if need.path == path)
            names = " and ".join(dict.fromkeys(part.name for part in readers))
            yield (
                f"- node {node.address}: {path} ({asked_by}, for {names}): {fault}; put it on storage that all "
                "nodes share, or copy it there"
            )


def look(paths: Sequence[str], digested: Sequence[str]) -> Look:
    """Try to read `paths` here; runs on each node. Of a directory every file directly in it is opened."""
    faults = {path: fault for path in paths if (fault := _fault(Path(path)))}
    readable = (path for path in digested if path in paths and path not in faults)
    return Look(
        version(PACKAGE), faults, {path: hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in readable}
    )


def _fault(path: Path) -> str:
    if not path.is_absolute():
        return "a path must be absolute, as replicas run in directories of their own"
    try:
        for file in sorted(path.iterdir()) if path.is_dir() else [path]:
            if not file.is_dir():
                with file.open("rb"):
                    pass
    except OSError as error:
        return _text_of(error)
    return ""


def _pool(served: ServedModels, task: str, target: tuple[Need, ...]) -> ReadingPart:
    draft, directory = served.config.draft.model, served.drafts[task]
    needs = _model("draft.model", draft) if directory is None else (Need(directory, "bundle"),)
    if directory is not None:
        base = adapted_model(directory, locate(draft))
        needs += _model("draft.model", draft) if base == locate(draft) else (Need(base, "bundle"),)
    return ReadingPart(f"the draft pool {task}", served.config.pool_actors(task), needs + target)


def _model(key: str, name: str) -> tuple[Need, ...]:
    """What must be readable for a model: nothing of one of the hub, or of one in a package that all nodes have."""
    return (Need(name, key),) if Path(name).is_absolute() or Path(name).exists() else ()


def _differing(paths: Iterable[str], looks: Mapping[Node, Look]) -> Iterator[str]:
    for path in paths:
        contents = {look.digests[path] for look in looks.values() if path in look.digests}
        if len(contents) > 1:
            addresses = ", ".join(node.address for node, look in looks.items() if path in look.digests)
            yield f"- {path} is not the same file on the nodes {addresses}: put it on storage that all nodes share"


def _unshared_traces(config: ServiceConfig, nodes: Sequence[Node]) -> Iterator[str]:
    """Where an ingress replica could not write, and whether the others would see what it writes."""
    if config.traces is None or config.traces.in_memory:  # a memory file system is the node's own
        return
    directory = config.traces.directory
    writers = [node for node in nodes if node.may_run(config.ingress.actors)]
    marks = {node: str(directory / f"{MARK}{secrets.token_hex(8)}") for node in writers}
    try:
        faults = _ask({node: (_write, mark) for node, mark in marks.items()})
        for node, fault in faults.items():
            if fault:
                yield f"- node {node.address}: {directory} (traces.directory): {fault}; every ingress writes there"
        if not any(faults.values()):
            visible = _ask(dict.fromkeys(writers, (_visible, list(marks.values()))))
            yield from unshared(directory, visible)
    finally:
        _ask({node: (_remove, mark) for node, mark in marks.items()})


def unshared(directory: Path, visible: Mapping[Node, set[str]]) -> Iterator[str]:
    """A line if not every node sees the marks of all."""
    if any(len(marks) < len(visible) for marks in visible.values()):
        addresses = ", ".join(node.address for node in visible)
        yield (
            f"- {directory} (traces.directory) is not one directory on the nodes {addresses}: put it on storage that "
            "they share, or a retraining learns from a part of the answers"
        )


def _write(file: str) -> str:
    try:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).touch()
    except OSError as error:
        return _text_of(error)
    return ""


def _visible(files: Sequence[str]) -> set[str]:
    return {file for file in files if Path(file).exists()}


def _remove(file: str) -> None:
    with suppress(OSError):
        Path(file).unlink()


def _text_of(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _looks(paths: Mapping[Node, tuple[list[str], tuple[str, ...]]]) -> dict[Node, Look]:
    return _ask({node: (look, *arguments) for node, arguments in paths.items()})


def _ask(calls: Mapping[Node, tuple[Any, ...]]) -> dict[Node, Any]:
    """The result of a function with its arguments on each node. Raises `ConfigError` for a node that gives none."""
    refs = {}
    for node, (function, *arguments) in calls.items():
        there = NodeAffinitySchedulingStrategy(node.id, soft=False)
        task = ray.remote(function).options(num_cpus=0, max_retries=0, scheduling_strategy=there)
        refs[node] = task.remote(*arguments)
    ray.wait(list(refs.values()), num_returns=len(refs), timeout=PATIENCE)
    return {node: _result(node, ref) for node, ref in refs.items()}


def _result(node: Node, ref: Any) -> Any:
    try:
        return ray.get(ref, timeout=0)
    except (RayError, ImportError) as error:
        cause = getattr(error, "cause", None) or error
        hint = f": install {PACKAGE} there" if isinstance(cause, ImportError) else ""
        raise ConfigError(f"node {node.address} could not be asked what it has ({cause}){hint}") from error
