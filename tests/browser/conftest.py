"""Debian's chromium in front of services as users start them. Every page is held to its origin, and to no error."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.visitor import PATIENCE, Visitor
from tests.clients.conftest import BIN, ROOT, running

CHROMIUM = os.environ.get("CHROMIUM", shutil.which("chromium") or "/usr/bin/chromium")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
HERE = Path(__file__).parent
RAY_DIRECTORY = "taskspec-"


class Site(NamedTuple):
    """A service; `key` and `admin` are API keys of it, empty where it has none, `bundles` its directory of them."""

    url: str
    model: str
    key: str = ""
    admin: str = ""
    bundles: Path | None = None

    @property
    def log(self) -> str:
        """All that its replicas and Serve have written."""
        found = {part for line in _commands() for part in line if RAY_DIRECTORY in part}
        directories = {Path(part[part.index("/") :]) for part in found if "/" in part}
        roots = {Path(*each.parts[:3]) for each in directories if each.parts[2].startswith(RAY_DIRECTORY)}
        logs = [path for root in roots for path in root.glob("session_latest/logs/serve/*.log")]
        assert logs
        return "\n".join(path.read_text(errors="replace") for path in logs)


def _commands() -> list[list[str]]:
    """Command lines of what these tests have started."""
    return [process.cmdline() for process in psutil.Process().children(recursive=True) if process.is_running()]


def made_key(file: Path, name: str, *options: str) -> str:
    command = [BIN / "taskspec", "keys", "add", name, "--file", file, *options]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="session")
def family(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The shipped family with keys, and with a directory of bundles that begins with the shipped one."""
    place = tmp_path_factory.mktemp("family")
    keys, bundles = place / "keys", place / "bundles"
    key, admin = made_key(keys, "visitor"), made_key(keys, "keeper", "--admin")
    shutil.copytree(ROOT / "core/family/models/bundle", bundles)
    config = place / "service.yaml"
    config.write_text(f"{(HERE / 'family.yaml').read_text()}\nbundle: {bundles}\n")
    with running(BIN / "taskspec", "serve", "--config", config, "--keys", keys, "--port", "0") as service:
        yield Site(*service, key, admin, bundles)


@pytest.fixture(scope="session")
def smollm2() -> Iterator[Site]:
    """A real model, without keys."""
    with running(BIN / "taskspec", "serve", "--config", "smollm2", "--port", "0") as service:
        yield Site(*service)


@pytest.fixture(params=["family", "smollm2"])
def site(request: pytest.FixtureRequest) -> Site:
    """Each of them."""
    found: Site = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield chromium
        chromium.close()


Visit = Callable[..., Visitor]


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    """Opens a site in a browser of its own; what it asked for and what it complained of is judged at the end."""
    visitors: list[Visitor] = []

    def opened(site: Site, key: str | None = None, **context: object) -> Visitor:
        options = {"viewport": {"width": 1440, "height": 900}, "color_scheme": "light", **context}
        page = browser.new_context(**options).new_page()
        page.set_default_timeout(1000 * PATIENCE)
        visitors.append(Visitor(page, site.url))
        visitors[-1].open(site.key if key is None else key)
        return visitors[-1]

    yield opened
    for visitor in visitors:
        visitor.page.context.close()
    for visitor in visitors:
        assert not visitor.foreign
        assert not visitor.complaints
