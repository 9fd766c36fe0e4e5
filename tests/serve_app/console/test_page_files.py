"""The console's files as they lie there: small, complete, of our own, and without a way for text to become code."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from core.verify.sources import SOURCES
from serve_app.http.schema.requests import ChatRequest
from tests.tree import ROOT

STATIC = ROOT / "serve_app" / "console" / "static"
FILES = sorted(STATIC.iterdir())
MODULES = sorted(STATIC.glob("*.js"))
NODE = shutil.which("node")
FIRST_PAINT = 100_000  # bytes
FIRST_VIEW = "playground.js"  # loaded as soon as the page is, though by its name
SVG = "http://www.w3.org/2000/svg"

IMPORT = re.compile(r'(?:from|import\(|import) ?"\./([\w.]+)"')
NAMED = re.compile(r'import (?:\{([^}]*)\}|\* as (\w+)) from "\./([\w.]+)"')
EXPORT = re.compile(r"^export (?:async )?(?:function\*? ?|class |const |let )(\w+)", re.MULTILINE)
PARSES = re.compile(
    r"innerHTML|outerHTML|insertAdjacent|document\.write|DOMParser|srcdoc|createContextualFragment|setHTML|"
    r"\beval\b|new Function|import\((?!\"\./)|setTimeout\([\"'`]|javascript:"
)


class Head(HTMLParser):
    """What the page loads, and what stands in it that its policy would refuse."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.refused: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        self.loaded += [values[name] or "" for name in ("src", "href") if name in values and tag != "a"]
        if tag == "style" or (tag == "script" and "src" not in values):
            self.refused.append(tag)
        self.refused += [name for name in values if name == "style" or name.startswith("on")]


@pytest.fixture(scope="module")
def head() -> Head:
    parser = Head()
    parser.feed((STATIC / "index.html").read_text())
    return parser


def reached(names: set[str], *, without: set[str] = frozenset()) -> set[str]:
    """The files, and the modules that they import, however far."""
    ahead, seen = set(names), set[str]()
    while ahead:
        name = ahead.pop()
        seen.add(name)
        found = set(IMPORT.findall((STATIC / name).read_text())) if name.endswith(".js") else set()
        ahead |= found - seen - without
    return seen


def strings(text: str) -> Iterator[str]:
    yield from re.findall(r'"((?:[^"\\\n]|\\.)*)"', text)


def test_the_page_has_no_inline_script_or_style(head: Head) -> None:
    assert not head.refused


def test_the_page_loads_its_own_files_only_and_leaves_none_out(head: Head) -> None:
    names = {link.removeprefix("console/static/") for link in head.loaded}
    assert all(link.startswith("console/static/") for link in head.loaded)
    assert reached(names | {"index.html"}) == {path.name for path in FILES}


def test_the_first_paint_is_small(head: Head) -> None:
    names = {link.removeprefix("console/static/") for link in head.loaded} | {"index.html", FIRST_VIEW}
    needed = reached(names, without={"drafts.js", "service.js"})
    assert FIRST_VIEW in needed
    assert "drafts.js" not in needed
    assert sum((STATIC / name).stat().st_size for name in needed) < FIRST_PAINT


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_file_names_another_origin(path: Path) -> None:
    assert set(re.findall(r"[a-z+]+://[^\s\"'`)]*", path.read_text())) <= {SVG}
    assert not re.search(r"url\(|@import|[\"'`]//", path.read_text())


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_modules_parse_no_text(path: Path) -> None:
    assert not PARSES.findall(path.read_text())
    assert not re.search(r"\bstyle:", path.read_text())  # an attribute that the policy refuses


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_text_enters_the_page_through_one_module(path: Path) -> None:
    """The one that makes its hidden characters visible."""
    assert not re.search(r"\b(textContent|innerText|nodeValue) [+?|]*= |createTextNode", path.read_text())


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_modules_import_what_there_is(path: Path) -> None:
    for names, whole, module in NAMED.findall(path.read_text()):
        exported = set(EXPORT.findall((STATIC / module).read_text()))
        wanted = {name.strip() for name in names.split(",") if name.strip()}
        if whole:
            wanted = set(re.findall(rf"\b{whole}\.(?!js)(\w+)", path.read_text()))
        assert wanted
        assert wanted <= exported, module
        missing = {name for name in wanted if len(re.findall(rf"\b{name}\b", path.read_text())) < 2 and not whole}
        assert not missing, "imported for nothing"


def test_the_key_is_in_one_module_and_in_the_tab_alone() -> None:
    assert [path.name for path in MODULES if "sessionStorage" in path.read_text()] == ["api.js"]
    assert [path.name for path in MODULES if "localStorage" in path.read_text()] == ["store.js"]
    assert "localStorage" not in (STATIC / "api.js").read_text()
    assert not [path.name for path in MODULES if re.search(r"\.cookie\b|indexedDB", path.read_text())]


def test_sources_are_those_of_the_verifier() -> None:
    text = (STATIC / "sources.js").read_text()
    assert set(re.findall(r"^  (\w+): \{ ?kind", text, re.MULTILINE)) == {"draft", "own", *SOURCES}


def test_fields_of_a_request_exist() -> None:
    """Those of the form; what the page sends of itself is met by a real service in tests/browser."""
    numbers = re.search(r"const NUMBERS = \[(.*?)^\];", (STATIC / "request.js").read_text(), re.MULTILINE | re.DOTALL)
    assert numbers is not None
    names = re.findall(r'\[\s*"(\w+)"', numbers[1])
    assert len(names) > 5
    assert set(names) <= ChatRequest.model_fields.keys()


@pytest.mark.skipif(NODE is None, reason="node is not installed")
@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_modules_are_javascript(path: Path) -> None:
    command = [str(NODE), "--input-type=module", "--check"]
    ended = subprocess.run(command, input=path.read_text(), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.skipif(NODE is None, reason="node is not installed")
@pytest.mark.parametrize("name", ["page_modules.mjs", "page_actions.mjs"])
def test_modules_do_as_they_should(name: str) -> None:
    """What needs no browser of them, in JavaScript."""
    command = [str(NODE), "--test", str(Path(__file__).with_name(name))]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 0, ended.stdout
    assert re.search(r"pass [1-9]", ended.stdout)
