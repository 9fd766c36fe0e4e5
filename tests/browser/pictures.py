"""Where the tests put what they saw, for the pages of this repository."""

from __future__ import annotations

from tests.browser.visitor import Visitor
from tests.clients.conftest import ROOT

PICTURES = ROOT / "build/browser/pictures"
LARGEST = 200_000  # bytes


def picture(visitor: Visitor, name: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    path = PICTURES / f"{name}.png"
    visitor.page.screenshot(path=path, animations="disabled")
    assert path.stat().st_size < LARGEST
