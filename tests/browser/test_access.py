"""Keys: asked for once, kept in the tab alone, and needed for every action."""

from __future__ import annotations

from urllib.parse import urlsplit

from playwright.sync_api import expect

from tests.browser.conftest import Site, Visit
from tests.browser.visitor import Visitor

ACT = """async ([path, body, key]) => {
    const headers = { "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) };
    const response = await fetch(path, { method: "POST", headers, body: JSON.stringify(body) });
    return [response.status, (await response.json()).error?.code ?? null];
}"""
SCALE = ["console/scale", {"replicas": {"general": 2}}]


def kept(visitor: Visitor, storage: str) -> str:
    text: str = visitor.page.evaluate(f"JSON.stringify({{...{storage}}})")
    return text


def test_a_key_is_in_the_tab_and_nowhere_else(family: Site, visit: Visit) -> None:
    visitor = visit(family)
    visitor.fill(max_tokens=20)
    visitor.ask("What is 17 + 25?")
    for view in ("Drafts", "Service"):
        visitor.view(view)
        visitor.page.locator(".feed.live").wait_for()
    assert family.key in kept(visitor, "sessionStorage")
    assert family.key not in kept(visitor, "localStorage")
    assert not visitor.page.context.cookies()
    assert not [url for url in visitor.requests if family.key in url]
    assert family.key not in visitor.page.content()
    assert family.key not in family.log


def test_the_page_comes_without_a_key_and_nothing_else_does(family: Site, visit: Visit) -> None:
    other = visit(family).page.context.new_page()  # a tab of its own has no key
    statuses: dict[str, int] = {}
    other.on("response", lambda response: statuses.update({urlsplit(response.url).path: response.status}))
    other.goto(f"{family.url}/#service")
    expect(other.locator("#key")).to_be_visible()
    other.wait_for_load_state("networkidle")
    assert {path for path, status in statuses.items() if status == 401} == {"/v1/models", "/console/events"}
    assert set(statuses.values()) <= {200, 304, 401}


def test_a_wrong_key_is_asked_for_again(family: Site, visit: Visit) -> None:
    visitor = visit(family)
    visitor.refusals_expected = True
    visitor.button("Key").click()
    visitor.enter("sk-wrong")
    expect(visitor.page.locator("#key")).to_be_visible()
    visitor.enter(family.key)
    visitor.send("What is 17 + 25?")
    visitor.answers.first.wait_for()
    visitor.wait()


def test_an_action_without_the_admin_key_is_refused_and_logged(family: Site, visit: Visit) -> None:
    visitor = visit(family)
    visitor.view("Drafts")
    scale = visitor.button("Scale").first
    expect(scale).to_be_disabled()
    expect(visitor.page.locator(".why")).to_contain_text("admin")
    visitor.refusals_expected = True
    before = family.log.count("/console/scale by visitor: refused, admin_key_needed")
    assert visitor.page.evaluate(ACT, [*SCALE, family.key]) == [403, "admin_key_needed"]
    assert visitor.page.evaluate(ACT, [*SCALE, ""])[0] == 401
    assert family.log.count("/console/scale by visitor: refused, admin_key_needed") == before + 1


def test_a_pool_is_scaled_with_the_admin_key(family: Site, visit: Visit) -> None:
    visitor = visit(family, key=family.admin)
    visitor.view("Drafts")
    card = visitor.page.get_by_label("general", exact=True)
    for replicas in (2, 1):
        card.locator("input[type=number]").fill(str(replicas))
        card.get_by_role("button", name="Scale").click()
        visitor.button("Do it").click()
        expect(visitor.page.locator(".outcome")).to_contain_text(f"{replicas} replica")
        expect(card.locator("dl").first).to_contain_text(f"{replicas} of {replicas}")
    assert "scale 'general' to 2 by keeper: general: 1 -> 2 replicas" in family.log
    assert family.admin not in family.log


def test_an_action_that_cannot_be_says_why(family: Site, visit: Visit) -> None:
    visitor = visit(family, key=family.admin)
    visitor.refusals_expected = True
    code = visitor.page.evaluate(ACT, ["console/scale", {"replicas": {"nobody": 2}}, family.admin])
    assert code == [409, "not_possible"]
