"""A visitor of the page: what one does there, in words of the page, and what the page asked for meanwhile."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Locator, Page, Request, Response, expect

PATIENCE = 120.0  # seconds for anything to appear
CHAT = "/v1/chat/completions"
NO_ORIGIN = ("blob", "data")  # schemes of what the page itself made

# Each stream of an answer is read twice: by the page, and as text for the test. The browser itself keeps no such body.
LISTEN = """(() => {
    const ask = window.fetch;
    window.heard = [];
    window.fetch = async (...request) => {
        const response = await ask(...request);
        if (!response.headers.get("content-type")?.startsWith("text/event-stream")) return response;
        if (!String(request[0]).endsWith("/v1/chat/completions")) return response;
        const [read, copied] = response.body.tee();
        window.heard.push(new Response(copied).text().catch(() => ""));
        return new Response(read, response);
    };
})()"""

expect.set_options(timeout=1000 * PATIENCE)


class Visitor:
    """One page at `url`. `requests` are all of the page, `foreign` those of another origin, `complaints` its errors."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.requests: list[str] = []
        self.foreign: list[str] = []
        self.complaints: list[str] = []
        self.refusals_expected = False
        self.chats: list[Request] = []
        page.add_init_script(LISTEN)
        page.on("request", self._asked)
        page.on("response", self._answered)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda said: self._said(said.type, said.text))

    def open(self, key: str = "") -> None:
        """Load the page, and enter the key that it asks for."""
        self.refusals_expected = bool(key)  # until it has the key
        self.page.goto(self.url)
        if key:
            self.enter(key)
        expect(self.page.locator("#model")).not_to_be_empty()
        self.refusals_expected = False

    def reload(self) -> None:
        """The tab keeps its key."""
        self.page.reload()
        expect(self.page.locator("#model")).not_to_be_empty()

    def enter(self, key: str) -> None:
        expect(self.page.locator("#key")).to_be_visible()
        self.page.locator("#key input").fill(key)
        self.page.get_by_role("button", name="Use this key").click()

    def view(self, name: str) -> None:
        self.page.get_by_role("link", name=name, exact=True).click()
        self.page.locator(f".{name.lower()}").wait_for()

    # The playground

    def fill(self, **fields: object) -> None:
        """Fields of the request, by their names."""
        settings = self.page.locator(".settings")
        if settings.get_attribute("open") is None:
            settings.locator("> summary").click()
        for name, value in fields.items():
            control = settings.locator(f"[name={name}]")
            if not control.is_visible():
                control.locator("xpath=ancestor::details[1]").locator("> summary").click()
            if control.evaluate("node => node.tagName") == "SELECT":
                control.select_option(str(value))
            else:
                control.fill(str(value))

    def send(self, text: str) -> None:
        self.box.fill(text)
        self.box.press("Enter")

    def ask(self, text: str) -> Locator:
        """Send it and wait for the answer's end."""
        self.send(text)
        self.wait()
        return self.answers.last

    def wait(self) -> None:
        """Until nothing is asked any more."""
        self.page.wait_for_timeout(50)
        self.page.locator(".playground:not(.busy)").wait_for()

    @property
    def box(self) -> Locator:
        return self.page.locator(".composer textarea")

    @property
    def answers(self) -> Locator:
        return self.page.locator(".turn.answered")

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def last_chat(self) -> dict[str, Any]:
        """The body of the last request for an answer."""
        body: dict[str, Any] = self.chats[-1].post_data_json
        return body

    def last_usage(self) -> dict[str, Any]:
        """That of the last answer, as the service sent it."""
        heard: str = self.page.evaluate("window.heard.at(-1)")
        lines = [line[6:] for line in heard.split("\n") if line.startswith("data: {")]
        usage: dict[str, Any] = json.loads(lines[-1])["usage"]
        return usage

    def _asked(self, request: Request) -> None:
        self.requests.append(request.url)
        address = urlsplit(request.url)
        if address.scheme not in NO_ORIGIN and f"{address.scheme}://{address.netloc}" != self.url:
            self.foreign.append(request.url)

    def _answered(self, response: Response) -> None:
        if urlsplit(response.url).path == CHAT:
            self.chats.append(response.request)
        if response.status >= 400 and not self.refusals_expected:
            self.complaints.append(f"{response.status} {response.url}")

    def _said(self, kind: str, text: str) -> None:
        refused = text.startswith("Failed to load resource: the server responded")  # as the response has told
        if kind in ("error", "warning") and not refused:
            self.complaints.append(text)


def coloured(answer: Locator) -> Counter[str]:
    """The tokens of an answer by the source that the page shows for them."""
    runs = answer.locator(".answer-text .run")
    pairs = runs.evaluate_all("runs => runs.map((run) => [run.dataset.source, Number(run.dataset.tokens)])")
    counts = Counter[str]()
    for source, tokens in pairs:
        counts[source] += tokens
    return counts


def text_of(answer: Locator) -> str:
    return "".join(answer.locator(".answer-text .run").all_text_contents())
