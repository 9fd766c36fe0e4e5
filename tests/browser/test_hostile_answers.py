"""Whatever an answer says, it is text: no markup, no control of the page, and no room that it does not have."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Site, Visit
from tests.browser.streams import answers_with, call_answer, text_answer
from tests.browser.visitor import coloured, text_of

MARKUP = [
    "<script>window.hurt = 1</script>",
    "<img src=x onerror='window.hurt = 1'><iframe src='javascript:window.hurt = 1'></iframe>",
    "</div></main><style>body { display: none }</style><a href='https://example.com'>here</a>",
    "`${window.hurt = 1}` {{constructor.constructor('window.hurt = 1')()}} &lt;b&gt; &#x3c;",
]
LONG = "x" * 100_000
OVERRIDE, ISOLATE = "\u202e", "\u2067"


@pytest.mark.parametrize("text", MARKUP)
def test_markup_stays_text(family: Site, visit: Visit, text: str) -> None:
    visitor = visit(family)
    elements = visitor.page.evaluate("document.querySelectorAll('script, style, iframe, img, a').length")
    answers_with(visitor.page, text_answer(text, text))
    answer = visitor.ask(text)
    assert text_of(answer) == text + text
    expect(visitor.page.locator(".asked .text")).to_have_text(text)
    assert visitor.page.evaluate("window.hurt") is None
    assert visitor.page.evaluate("document.querySelectorAll('script, style, iframe, img, a').length") == elements
    visitor.reload()  # now it comes from the store
    expect(visitor.answers).to_have_count(1)
    assert text_of(visitor.answers.last) == text + text
    assert visitor.page.evaluate("window.hurt") is None


def test_control_characters_are_seen_and_reorder_nothing(family: Site, visit: Visit) -> None:
    visitor = visit(family)
    answers_with(visitor.page, text_answer("\x1b[31mred\x1b[0m\x07\r", f"{OVERRIDE}txt.exe{ISOLATE} שלום\n", "after"))
    answer = visitor.ask("Hello")
    shown = text_of(answer)
    assert "␛[31mred␛[0m␇␍" in shown
    assert "⟨U+202E⟩txt.exe" in shown
    assert "⟨U+2067⟩ שלום" in shown
    assert not {OVERRIDE, ISOLATE} & set(shown)
    assert "שלום" in shown
    facts = answer.locator(".instruments dl")
    assert facts.evaluate("node => getComputedStyle(node).direction") == "ltr"
    blocks = answer.locator(".answer-text > div")
    assert blocks.first.evaluate("node => getComputedStyle(node).unicodeBidi") == "plaintext"


def test_a_hundred_thousand_characters_without_a_space_stay_in_their_column(family: Site, visit: Visit) -> None:
    visitor = visit(family)
    answers_with(visitor.page, text_answer(LONG))
    answer = visitor.ask(LONG[:5000])
    assert text_of(answer) == LONG
    width = visitor.page.evaluate("document.documentElement.scrollWidth")
    assert width <= 1440
    box = answer.locator(".answer-text").bounding_box()
    column = answer.locator(".said").bounding_box()
    assert box is not None
    assert column is not None
    assert box["width"] <= column["width"] + 1


def test_characters_outside_the_first_plane_are_split_where_the_service_says(family: Site, visit: Visit) -> None:
    visitor = visit(family)
    answers_with(visitor.page, text_answer("😀😀ab"))  # two characters of four, in JavaScript's count four of six
    answer = visitor.ask("Hello")
    assert answer.locator(".answer-text .run.draft").all_text_contents() == ["😀😀"]
    assert answer.locator(".answer-text .run.own").last.text_content() == "ab"


def test_marks_piled_on_a_letter_stay_in_the_answer(family: Site, visit: Visit) -> None:
    visitor = visit(family)
    answers_with(visitor.page, text_answer("Z" + "\u0335\u030d" * 3000))
    answer = visitor.ask("Hello")
    block = answer.locator(".answer-text > div").first
    assert block.evaluate("node => getComputedStyle(node).contain") in ("content", "paint", "strict")
    assert visitor.page.evaluate("document.documentElement.scrollHeight") < 3000


def test_a_call_is_shown_and_its_result_goes_back(family: Site, visit: Visit) -> None:
    visitor = visit(family)
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
    visitor.fill(tools=json.dumps([tool]))
    answers_with(visitor.page, call_answer("weather", '{"city": "<b>Rome</b>"}'))
    answer = visitor.ask("How is the weather in Rome?")
    assert visitor.last_chat()["tools"] == [tool]
    expect(answer.locator(".calls")).to_contain_text('weather {"city": "<b>Rome</b>"}')
    assert coloured(answer) == {"own": 4}
    answers_with(visitor.page, text_answer("Sunny."))
    visitor.page.get_by_label("Result of weather").fill("18 degrees")
    visitor.button("Send results").click()
    visitor.wait()
    assert visitor.last_chat()["messages"][-1] == {"role": "tool", "content": "18 degrees", "tool_call_id": "call_1"}
    assert visitor.last_chat()["messages"][-2]["tool_calls"][0]["function"]["name"] == "weather"
    assert text_of(visitor.answers.last) == "Sunny."
