"""Names: a class name stands once, variables are nouns, and what docstrings and pages name exists."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tree import PACKAGES, ROOT, sources, tracked

# What is no variable's name: a bare participle or numeral, where a noun says what the thing is.
NO_NOUNS = re.compile(
    "found|one|most|known|given|drawn|wanted|kept|asked|held|seen|taken|left|made|due|read|told|begun|said|refused|sent|"
    "heard|got|lost"
)
# A path of this repository in a text, and a dotted name.
PATH = re.compile(r"(?<![\w./-])(?:core|serve_app|train_jobs|tests|\.ci|\.github)/[\w./-]*\w")
DOTTED = re.compile(r"(?<![\w./-])(?:core|serve_app|train_jobs|tests)(?:\.[A-Za-z_]\w*)+(?![\w/])")


def variables(path: Path) -> Iterator[tuple[str, int]]:
    """Names of arguments and of what is assigned, with their lines; attributes and fields are not among them."""
    tree = ast.parse(path.read_text())
    fields = {id(target) for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for target in field_names(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in fields:
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.MatchAs | ast.MatchStar) and node.name is not None:
            yield node.name, node.lineno


def field_names(of: ast.ClassDef) -> Iterator[ast.expr]:
    for node in of.body:
        if isinstance(node, ast.AnnAssign):
            yield node.target
        elif isinstance(node, ast.Assign):
            yield from node.targets


def defined(path: Path) -> set[str]:
    """What a module defines or imports at its top."""
    names = set[str]()
    for node in ast.parse(path.read_text()).body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Import() | ast.ImportFrom():
                names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
            case _:
                names |= {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
    return names


def exists(name: str) -> bool:
    """Whether a dotted name is a package, a module, or what is defined in one; attributes of that are not looked at."""
    path = ROOT
    for part in name.split("."):
        if (path / part).is_dir():
            path /= part
        elif (path / f"{part}.py").is_file():
            path /= f"{part}.py"
        else:
            module = path / "__init__.py" if path.is_dir() else path
            return module.is_file() and part in defined(module)
    return True


@pytest.mark.parametrize("package", PACKAGES)
def test_a_class_name_stands_once_in_a_package(package: str) -> None:
    places = defaultdict[str, list[str]](list)
    for path in sources(package):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(ROOT)))
    twice = [f"{name}: {', '.join(paths)}" for name, paths in places.items() if len(paths) > 1]
    assert not twice, "\n".join(twice)


@pytest.mark.parametrize("package", PACKAGES)
def test_variables_are_nouns(package: str) -> None:
    others = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sources(package)
        for name, line in variables(path)
        if NO_NOUNS.fullmatch(name)
    ]
    assert not others, "\n".join(others)


def test_every_module_that_a_docstring_names_exists() -> None:
    broken = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources(*PACKAGES, "tests")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for name in DOTTED.findall(ast.get_docstring(node) or "")
        if not exists(name)
    }
    assert not broken, "\n".join(sorted(broken))


def test_every_path_that_a_page_names_exists() -> None:
    broken = {
        f"{page.relative_to(ROOT)}: {name}"
        for page in tracked()
        if page.suffix == ".md" and "results" not in page.parts
        for name in PATH.findall(page.read_text())
        if not (ROOT / name).exists()
    }
    assert not broken, "\n".join(sorted(broken))
