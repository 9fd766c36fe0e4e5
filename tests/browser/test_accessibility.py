"""axe-core on each view in both themes; every width from a phone to a wall; motion only for who wants it."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Site, Visit
from tests.browser.visitor import Visitor
from tests.clients.conftest import ROOT

AXE = ROOT / "build/browser/node/node_modules/axe-core/axe.min.js"
SERIOUS = ("serious", "critical")
VIEWS = ("Playground", "Drafts", "Service")
WIDTHS = {"phone": (360, 740), "desk": (1440, 900), "wall": (3840, 2160)}


def findings(visitor: Visitor) -> list[str]:
    visitor.page.evaluate(AXE.read_text())
    found: list[dict[str, Any]] = visitor.page.evaluate("axe.run().then((result) => result.violations)")
    return [
        f"{rule['id']}: {node['html'][:200]} {node['failureSummary']}"
        for rule in found
        if rule["impact"] in SERIOUS
        for node in rule["nodes"]
    ]


def enter(visitor: Visitor, view: str) -> None:
    """With something in it to look at."""
    if view != "Playground":
        visitor.view(view)
        visitor.page.locator(".panel table").first.wait_for()
        return
    visitor.fill(temperature=0, max_tokens=40)
    visitor.ask("What is 17 + 25?")
    visitor.button("Prove it").click()
    visitor.page.locator(".proof strong").wait_for()
    visitor.wait()
    visitor.box.fill("What is 3 + 4?")
    visitor.button("Race").click()
    visitor.page.locator(".race strong").wait_for()
    visitor.wait()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing_serious(family: Site, visit: Visit, view: str, theme: str) -> None:
    visitor = visit(family, key=family.admin)
    visitor.page.get_by_label("Theme").select_option(theme)
    assert visitor.page.evaluate("getComputedStyle(document.documentElement).colorScheme") == theme
    enter(visitor, view)
    assert not findings(visitor)
    visitor.button("Key").click()
    expect(visitor.page.locator("#key")).to_be_visible()
    assert not findings(visitor)


def test_axe_would_find_something(family: Site, visit: Visit) -> None:
    visitor = visit(family)
    for name in ("aria-label", "placeholder"):
        visitor.box.evaluate("(node, name) => node.removeAttribute(name)", name)
    assert any("label" in finding for finding in findings(visitor))


@pytest.mark.parametrize("size", WIDTHS)
@pytest.mark.parametrize("view", VIEWS)
def test_every_view_fits_the_width(family: Site, visit: Visit, view: str, size: str) -> None:
    width, height = WIDTHS[size]
    visitor = visit(family, viewport={"width": width, "height": height})
    enter(visitor, view)
    assert visitor.page.evaluate("document.documentElement.scrollWidth") <= width


def test_nothing_moves_for_who_wants_no_motion(family: Site, visit: Visit) -> None:
    visitor = visit(family, reduced_motion="reduce")
    moving = """[...document.querySelectorAll("*")].filter((node) => {
        const style = getComputedStyle(node);
        return parseFloat(style.transitionDuration) > 0 || style.animationName !== "none";
    }).length"""
    assert visitor.page.evaluate(moving) == 0
    assert visit(family, reduced_motion="no-preference").page.evaluate(moving) > 0


def test_the_theme_is_kept(family: Site, visit: Visit) -> None:
    visitor = visit(family)
    visitor.page.get_by_label("Theme").select_option("dark")
    visitor.reload()
    assert visitor.page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
