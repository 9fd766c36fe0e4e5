"""The rules of the house: what lies at the top, who may import whom, and how long a file may be."""

from __future__ import annotations

import ast
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("core", "serve_app", "train_jobs")
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
DRAFT_SIDE = ("core.draft_engine", "core.drafter", "core.model.causal_lm")


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    return [ROOT / name for name in listed.decode().split("\0") if name]


def sources(*packages: str) -> list[Path]:
    return [path for package in packages for path in sorted((ROOT / package).rglob("*.py"))]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path) -> Iterator[str]:
    """Full names of the modules a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield str(node.module)


def functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, int(node.end_lineno or 0) - node.lineno + 1


def run_python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_top_level_is_the_users() -> None:
    names = {path.relative_to(ROOT).parts[0] for path in tracked()}
    assert {name for name in names if not name.startswith(".")} == TOP_LEVEL


@pytest.mark.parametrize(
    ("package", "strangers"),
    [
        ("core", {"serve_app", "train_jobs", "ray", "fastapi"}),
        ("serve_app", {"train_jobs"}),
        ("train_jobs", {"serve_app"}),
    ],
)
def test_packages_import_downwards_only(package: str, strangers: set[str]) -> None:
    upward = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources(package)
        for name in imported(path)
        if name.split(".")[0] in strangers
    }
    assert not upward


def binds_an_application(node: ast.AST) -> bool:
    """Whether a node is a `.bind(...)` call other than a socket's, whose one argument is an address (host, port)."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "bind"):
        return False
    return not any(isinstance(argument, ast.Tuple) for argument in node.args)


def test_one_module_binds_the_serve_applications() -> None:
    binders = {
        str(path.relative_to(ROOT))
        for path in sources("serve_app", "train_jobs")
        for node in ast.walk(ast.parse(path.read_text()))
        if binds_an_application(node)
    }
    assert binders == {"serve_app/applications.py"}


def test_files_and_functions_are_short() -> None:
    lines = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in sources(*PACKAGES)}
    assert not {name: length for name, length in lines.items() if length > 300}
    lengths = {f"{path.relative_to(ROOT)}: {name}": n for path in sources(*PACKAGES) for name, n in functions(path)}
    assert not {name: length for name, length in lengths.items() if length > 60}
    assert statistics.median(lengths.values()) <= 10


def test_core_imports_where_ray_is_not_installed() -> None:
    modules = [module_name(path) for path in sources("core") if path.name != "__main__.py"]
    assert "core.family.build" in modules
    # A name bound to None in sys.modules is a package that cannot be found.
    program = f"""
import importlib, sys
sys.modules.update(dict.fromkeys(("ray", "fastapi", "serve_app", "train_jobs")))
for module in {modules}:
    importlib.import_module(module)
"""
    outcome = run_python(program)
    assert outcome.returncode == 0, outcome.stderr


def test_the_draft_side_loads_neither_transformers_nor_peft() -> None:
    program = f"""
import importlib, sys
for module in {DRAFT_SIDE}:
    importlib.import_module(module)
sys.exit(" ".join(sorted({{"transformers", "peft", "sklearn", "ray"}} & set(sys.modules))) or None)
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
