"""The rules of the house: what lies at the top, which room may import which, and how long a function may be."""

from __future__ import annotations

import ast
import statistics
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tree import PACKAGES, ROOT, module_name, sources, tracked

PROTOCOLS = ("openai", "responses", "anthropic")
DEPLOYMENTS = {f"serve_app.deployments.{room}" for room in ("actors", "deploy", "models", "telemetry")}
TOP_LEVEL = {
    *PACKAGES,
    "tests",
    "pyproject.toml",
    "cluster.yaml",
    "README.md",
    "Makefile",
    "LICENSE",
    "constraints.txt",
}
# What a draft process loads; it must start in a second and stay small.
DRAFT_SIDE = (
    "core.draft.engine",
    "core.draft.drafter",
    "core.model.causal_lm",
    "serve_app.deployments.models.draft_loading",
    "core.replay.decay",  # what checks drafts is as small
)
IN_VLLM = ("core.model.vllm.passes", "core.model.vllm.ranks")  # what is imported where a target is loaded into vLLM
IN_TRITON = ("core.model.torch.paged_kernel",)  # what is imported where a GPU attends
STRANGERS = {
    "core": {"serve_app", "train_jobs", "ray", "fastapi"},
    "serve_app": {"train_jobs"},
    "train_jobs": {"serve_app"},
}
# The shared nouns of a package: every room of it may import them.
NOUNS = {
    "core": {
        "core.arrays",
        "core.atomic_files",
        "core.draft_key",
        "core.errors",
        "core.settings",
        "core.generation",
        "core.confidence_intervals",
    },
    "serve_app": {"serve_app.config", "serve_app.access_config", "serve_app.application_names", "serve_app.spans"},
    "train_jobs": {"train_jobs.config"},
}
# Room: the other rooms of its package that it may import. A room is a folder, or a module beside the folders.
MAY_IMPORT: dict[str, set[str]] = {
    "core.arrays": set(),
    "core.atomic_files": set(),
    "core.draft_key": set(),
    "core.errors": set(),
    "core.settings": set(),
    "core.generation": {"core.sampling", "core.tools"},
    "core.confidence_intervals": set(),
    "core.sampling": set(),
    # What is generic knows no single format.
    "core.tools": set(),
    "core.tools.formats": {"core.tools"},
    "core.grammar": {"core.tools"},
    "core.text": {"core.tools", "core.tools.formats"},
    "core.family": {"core.text"},
    "core.smollm2": {"core.text"},
    "core.gguf": {"core.model", "core.model.architectures"},
    "core.model_names": {"core.family", "core.smollm2", "core.gguf"},
    "core.bundle": set(),
    "core.rollout": set(),
    "core.tasks": set(),
    "core.model": {"core.model.architectures", "core.model.cpu", "core.model.torch"},
    "core.model.architectures": {"core.model"},
    "core.model.cpu": {"core.model"},
    "core.model.torch": {"core.model"},
    "core.model.vllm": {"core.model"},
    "core.target": {"core.model", "core.model.vllm", "core.model_names"},
    "core.wire": {"core.sampling"},
    "core.policy": {"core.model"},
    "core.draft": {"core.sampling", "core.model", "core.wire", "core.policy"},
    "core.verify": {"core.grammar", "core.sampling", "core.text", "core.model", "core.wire", "core.policy"},
    "core.traces": {"core.sampling", "core.policy"},
    "core.replay": {"core.traces", "core.sampling", "core.model", "core.bundle", "core.tasks", "core.policy"},
    "core.audit": {"core.sampling", "core.model", "core.verify", "core.text"},
    "core.distill": {"core.replay", "core.traces", "core.sampling", "core.model", "core.policy", "core.verify"},
    "serve_app.access_config": set(),
    "serve_app.application_names": set(),
    "serve_app.config": set(),
    "serve_app.configs": set(),
    "serve_app.spans": set(),
    "serve_app.http": set(),
    "serve_app.client": set(),
    "serve_app.protocols": {"serve_app.http"},
    "serve_app.protocols.openai": {"serve_app.http"},
    "serve_app.protocols.responses": {"serve_app.http", "serve_app.protocols"},
    "serve_app.protocols.anthropic": {"serve_app.http", "serve_app.protocols"},
    "serve_app.protocols.registry": {"serve_app.http", *(f"serve_app.protocols.{name}" for name in PROTOCOLS)},
    "serve_app.api": {"serve_app.console", "serve_app.http", "serve_app.protocols.registry"},
    "serve_app.access": {"serve_app.api", "serve_app.console", "serve_app.http"},
    "serve_app.console": {
        "serve_app.operations",
        "serve_app.deployments.models",
        "serve_app.deployments.telemetry",
        "serve_app.http",
    },
    "serve_app.examples": set(),
    "serve_app.terminal": set(),
    "serve_app.ray_private": set(),
    "serve_app.local_cluster": {"serve_app.ray_private"},
    "serve_app.deployments": set(),
    "serve_app.deployments.models": set(),
    "serve_app.deployments.telemetry": {"serve_app.http", "serve_app.deployments.models"},
    "serve_app.deployments.answer": {
        "serve_app.http",
        "serve_app.deployments.models",
        "serve_app.deployments.telemetry",
    },
    "serve_app.deployments.actors": {
        "serve_app.access",
        "serve_app.console",
        "serve_app.http",
        "serve_app.deployments.answer",
        "serve_app.deployments.models",
        "serve_app.deployments.telemetry",
    },
    "serve_app.deployments.deploy": {
        "serve_app.access",
        "serve_app.deployments.actors",
        "serve_app.deployments.models",
        "serve_app.deployments.telemetry",
        "serve_app.ray_private",
    },
    "serve_app.applications": {"serve_app.deployments.deploy", "serve_app.deployments.models"},
    "serve_app.connection": {"serve_app.local_cluster", "serve_app.ray_private"},
    "serve_app.draining": {"serve_app.ray_private"},
    "serve_app.operations": {"serve_app.ray_private", *DEPLOYMENTS},
    "serve_app.hosting": {
        "serve_app.connection",
        *DEPLOYMENTS,
        "serve_app.local_cluster",
        "serve_app.terminal",
    },
    "serve_app.audit": {"serve_app.deployments.models", "serve_app.http", "serve_app.terminal"},
    "serve_app.monitoring": set(),  # no process of a service imports it
    "serve_app.load": {"serve_app.client", "serve_app.terminal"},
    "serve_app.demo": {"serve_app.client", "serve_app.deployments.models", "serve_app.terminal"},
    "serve_app.cli": {
        "serve_app.access",
        "serve_app.audit",
        "serve_app.demo",
        "serve_app.load",
        "serve_app.connection",
        "serve_app.hosting",
        *DEPLOYMENTS,
        "serve_app.local_cluster",
        "serve_app.client",
        "serve_app.draining",
        "serve_app.operations",
        "serve_app.terminal",
    },
    "train_jobs.config": set(),
    "train_jobs.configs": set(),
    "train_jobs.cluster": set(),
    "train_jobs.work": set(),
    "train_jobs.report": {"train_jobs.work"},
    "train_jobs.prompts": {"train_jobs.work"},
    "train_jobs.drafts": {"train_jobs.cluster", "train_jobs.work"},
    "train_jobs.stages": {
        "train_jobs.cluster",
        "train_jobs.work",
        "train_jobs.report",
        "train_jobs.prompts",
        "train_jobs.drafts",
    },
    "train_jobs.retrain": {
        "train_jobs.cluster",
        "train_jobs.work",
        "train_jobs.report",
        "train_jobs.drafts",
        "train_jobs.stages",
    },
    "train_jobs.watch": {"train_jobs.cluster", "train_jobs.work", "train_jobs.stages", "train_jobs.retrain"},
    "train_jobs.cli": {
        "train_jobs.cluster",
        "train_jobs.work",
        "train_jobs.stages",
        "train_jobs.retrain",
        "train_jobs.watch",
    },
}


def imported(path: Path) -> Iterator[str]:
    """Full names of what a file imports, wherever in it: modules, and the names taken from them."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room_of(name: str) -> str | None:
    """The innermost room of the table that a module, or a name in one, belongs to."""
    parts = name.split(".")
    prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((prefix for prefix in prefixes if prefix in MAY_IMPORT), None)


def broken_rules(path: Path) -> Iterator[str]:
    """Imports of a file that its room may not make, each with the rule."""
    own = room_of(module_name(path))
    if own is None:
        return
    package = own.split(".")[0]
    allowed = MAY_IMPORT[own] | NOUNS[package]
    for name in imported(path):
        room = room_of(name)
        if room is not None and room != own and room.startswith(f"{package}.") and room not in allowed:
            rooms = ", ".join(sorted(allowed)) or "no other room"
            yield f"{path.relative_to(ROOT)} imports {name}, but {own} may import {rooms}"


def functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, int(node.end_lineno or 0) - node.lineno + 1


def run_python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_top_level_is_the_users() -> None:
    names = {path.relative_to(ROOT).parts[0] for path in tracked()}
    assert {name for name in names if not name.startswith(".")} == TOP_LEVEL


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_downwards_only(package: str) -> None:
    upward = {
        f"{path.relative_to(ROOT)} imports {name}, but {package} may import none of {sorted(STRANGERS[package])}"
        for path in sources(package)
        for name in imported(path)
        if name.split(".")[0] in STRANGERS[package]
    }
    assert not upward, "\n".join(sorted(upward))


def test_rooms_import_only_the_rooms_below_them() -> None:
    broken = sorted({line for path in sources(*PACKAGES) for line in broken_rules(path)})
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_room_has_a_rule(package: str) -> None:
    rooms = {module_name(path).split(".")[1] for path in sources(package) if len(module_name(path).split(".")) > 1}
    assert {f"{package}.{room}" for room in rooms} == {
        room for room in MAY_IMPORT if room.count(".") == 1 and room.startswith(f"{package}.")
    }


def test_every_room_says_what_belongs_there() -> None:
    rooms = [path for path in sources(*PACKAGES) if path.name == "__init__.py"]
    silent = [path for path in rooms if not ast.get_docstring(ast.parse(path.read_text()))]
    assert not silent


def test_every_package_says_that_it_is_typed() -> None:
    shipped = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    for package in PACKAGES:
        assert (ROOT / package / "py.typed").is_file()
        assert "py.typed" in shipped[package]


def binds_an_application(node: ast.AST) -> bool:
    """True for a `.bind(...)` call other than a socket's, whose one argument is an address (host, port)."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "bind"):
        return False
    return not any(isinstance(argument, ast.Tuple) for argument in node.args)


def test_two_modules_bind_the_serve_applications() -> None:
    binders = {
        str(path.relative_to(ROOT))
        for path in sources("serve_app", "train_jobs")
        for node in ast.walk(ast.parse(path.read_text()))
        if binds_an_application(node)
    }
    assert binders == {f"serve_app/deployments/deploy/{name}.py" for name in ("applications", "bundle_applications")}


def test_functions_are_short() -> None:
    lengths = {f"{path.relative_to(ROOT)}: {name}": n for path in sources(*PACKAGES) for name, n in functions(path)}
    assert not {name: length for name, length in lengths.items() if length > 60}
    assert statistics.median(lengths.values()) <= 10


def test_core_imports_where_neither_ray_nor_vllm_is_installed() -> None:
    modules = [module_name(path) for path in sources("core") if path.name != "__main__.py"]
    modules = [module for module in modules if module not in (*IN_VLLM, *IN_TRITON)]
    assert "core.verify.engine" in modules
    # A name bound to None in sys.modules is a package that cannot be found.
    program = f"""
import importlib, sys
sys.modules.update(dict.fromkeys(("ray", "fastapi", "serve_app", "train_jobs", "triton", "vllm")))
for module in {modules}:
    importlib.import_module(module)
"""
    outcome = run_python(program)
    assert outcome.returncode == 0, outcome.stderr


def test_the_draft_side_loads_neither_torch_nor_transformers() -> None:
    program = f"""
import importlib, sys
for module in {DRAFT_SIDE}:
    importlib.import_module(module)
sys.exit(" ".join(sorted({{"torch", "transformers", "peft", "sklearn", "ray"}} & set(sys.modules))) or None)
"""
    outcome = run_python(program)
    assert outcome.returncode == 0, outcome.stderr


def test_no_tracked_file_names_a_path_of_some_machine() -> None:
    # Written in halves, or this file would be its own offender.
    homes = [("/" + top + "/").encode() for top in ("work", "root", "tmp/w", "opt/wheels")]
    found = {
        (str(path.relative_to(ROOT)), home)
        for path in tracked()
        if path.suffix != ".safetensors"
        for home in homes
        if home in path.read_bytes()
    }
    assert not found
