"""What the page loads: little, from its own origin, under a policy that lets it do nothing else."""

from __future__ import annotations

from urllib.parse import urlsplit

from playwright.sync_api import Browser, Response, expect

from tests.browser.conftest import Site, Visit

FIRST_PAINT = 100_000  # bytes of files


def test_the_first_paint_needs_little_and_only_its_own(smollm2: Site, browser: Browser) -> None:
    page = browser.new_page()
    responses: list[Response] = []

    def heard(response: Response) -> None:
        responses.append(response)

    page.on("response", heard)
    page.goto(smollm2.url)
    expect(page.locator(".composer textarea")).to_be_visible()
    page.wait_for_load_state("networkidle")
    page.close()
    files = {each.url: int(each.headers["content-length"]) for each in responses if "/v1/" not in each.url}
    assert len(files) > 10
    assert sum(files.values()) < FIRST_PAINT
    assert {urlsplit(url).netloc for url in files} == {urlsplit(smollm2.url).netloc}


def test_the_policy_lets_no_text_become_script(smollm2: Site, visit: Visit) -> None:
    visitor = visit(smollm2)
    tried = """() => {
        const script = document.createElement("script");
        script.textContent = "window.hurt = 1";
        document.head.append(script);
        return window.hurt ?? null;
    }"""
    assert visitor.page.evaluate(tried) is None
    assert any("Content Security Policy" in said or "violates" in said for said in visitor.complaints)
    visitor.complaints.clear()


def test_who_is_no_browser_gets_no_page(smollm2: Site, visit: Visit) -> None:
    asked = visit(smollm2).page.request.get(smollm2.url, headers={"accept": "application/json"})
    assert "console/static" not in asked.text()
