"""Pictures of each view, for the pages of this repository: build/browser/pictures, made last."""

from __future__ import annotations

import pytest

from tests.browser.conftest import Site, Visit
from tests.browser.pictures import picture
from tests.browser.visitor import Visitor

LOOKS = {"light": ("light", 1360, 850), "dark": ("dark", 1360, 850), "narrow": ("light", 390, 844)}
QUESTIONS = ("Write a short poem about the sea.", "Name five planets, and say one thing about each.")


def look(visit: Visit, site: Site, name: str, key: str) -> Visitor:
    theme, width, height = LOOKS[name]
    return visit(site, key=key, color_scheme=theme, viewport={"width": width, "height": height})


@pytest.mark.parametrize("name", LOOKS)
def test_the_playground_and_a_race(smollm2: Site, visit: Visit, name: str) -> None:
    visitor = look(visit, smollm2, name, "")
    visitor.fill(temperature=0, max_tokens=160)
    if name == "narrow":
        visitor.page.locator(".settings > summary").click()
    visitor.ask(QUESTIONS[1])
    visitor.button("Prove it").click()
    visitor.page.locator(".proof strong").wait_for()
    visitor.wait()
    visitor.answers.last.locator(".answer-text .run:not(.own)").first.hover()
    visitor.page.evaluate("scrollTo(0, 0)")
    picture(visitor, f"playground-{name}")
    visitor.box.fill(QUESTIONS[0])
    visitor.button("Race").click()
    visitor.page.locator(".race strong").wait_for()
    visitor.wait()
    visitor.page.locator(".race").evaluate("node => node.scrollIntoView()")
    picture(visitor, f"race-{name}")


@pytest.mark.parametrize("name", LOOKS)
def test_the_views_of_an_operator(family: Site, visit: Visit, name: str) -> None:
    visitor = look(visit, family, name, family.admin)
    if name == "light":
        visitor.fill(temperature=0, max_tokens=80)
        for question in ("What is 17 + 25?", "Write a function that prints 3 times x.", "How is key spelled?") * 2:
            visitor.ask(question)
    for view in ("Drafts", "Service"):
        visitor.view(view)
        visitor.page.locator(".panel table").first.wait_for()
        visitor.page.wait_for_timeout(1500)
        picture(visitor, f"{view.lower()}-{name}")
