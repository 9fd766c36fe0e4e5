"""The playground in front of real models: chat, sources of tokens, branches, proof and race."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Site, Visit
from tests.browser.visitor import Visitor, coloured, text_of

REPEATS = "Repeat this list three times: alpha, beta, gamma, delta, epsilon, zeta, eta, theta."
SUM = "What is 17 + 25?"
PERSON = {
    "type": "object",
    "properties": {"given_name": {"type": "string"}, "family_name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["given_name", "family_name", "age"],
    "additionalProperties": False,
}


def matches(visitor: Visitor, usage: dict[str, Any]) -> dict[str, int]:
    """Holds the last answer to the service's account of it; accepted tokens by source."""
    shown = coloured(visitor.answers.last)
    sources = {name: counts["accepted"] for name, counts in usage["speculation"]["sources"].items()}
    assert {name: shown[name] for name in sources} == sources
    assert shown.total() == usage["completion_tokens"]
    assert shown["own"] == usage["completion_tokens"] - sum(sources.values())
    listed = visitor.answers.last.locator(".by-source li[data-source]")
    for name, accepted in sources.items():
        expect(listed.and_(visitor.page.locator(f"[data-source={name}]"))).to_have_attribute(
            "data-accepted", str(accepted)
        )
    return sources


@pytest.mark.parametrize(
    ("question", "fields"),
    [
        (SUM, {"temperature": 0, "max_tokens": 120}),
        (REPEATS, {"temperature": 0.7, "seed": 11, "max_tokens": 160, "num_speculative_tokens": 5}),
        ("Describe a person.", {"temperature": 0, "max_tokens": 120, "schema": json.dumps(PERSON)}),
    ],
    ids=["chat", "sampled", "schema"],
)
def test_coloured_tokens_are_those_that_the_service_counted(
    site: Site, visit: Visit, question: str, fields: dict[str, Any]
) -> None:
    visitor = visit(site)
    visitor.fill(**fields)
    visitor.ask(question)
    sources = matches(visitor, visitor.last_usage())
    assert sum(sources.values()) > 0
    if "schema" in fields:
        assert sources["grammar"] > 0
        assert visitor.last_chat()["response_format"]["json_schema"]["schema"] == PERSON


def test_figures_are_those_of_the_answer(site: Site, visit: Visit) -> None:
    visitor = visit(site)
    visitor.fill(temperature=0, max_tokens=60, seed=5)
    answer = visitor.ask(SUM)
    usage = visitor.last_usage()
    shown = dict(
        zip(
            answer.locator(".instruments dt").all_text_contents(), answer.locator("dd").all_text_contents(), strict=True
        )
    )
    assert shown["tokens"] == str(usage["completion_tokens"])
    assert shown["tokens per pass"] == f"{usage['speculation']['tokens_per_target_pass']:.2f}"
    assert shown["draft"] == usage["speculation"]["task"]
    assert shown["seed"] == "5"
    assert shown["moved"] == (
        "no" if not usage["speculation"]["rerouted"] else "from " + ", ".join(usage["speculation"]["rerouted_from"])
    )
    assert float(shown["tokens/s"].replace(",", "")) > 0
    assert shown["first token"].endswith("s")


def test_a_run_tells_its_source_to_a_pointer_and_to_the_keyboard(family: Site, visit: Visit) -> None:
    visitor = visit(family)
    visitor.fill(temperature=0, max_tokens=100, num_speculative_tokens=6)
    answer = visitor.ask("What is 38 + 47?")  # another question: earlier answers would be looked up
    detail = answer.locator(".detail")
    answer.locator(".answer-text .run.draft").first.hover()
    expect(detail).to_contain_text("accepted from the draft")
    expect(detail).to_contain_text("task ")
    expect(detail).to_contain_text("pass ")
    answer.locator(".answer-text").focus()
    visitor.page.keyboard.press("Home")
    expect(detail).to_contain_text("read with the prompt")
    expect(detail).to_contain_text("drawn by the target itself")
    told = set()
    for _ in range(6):
        visitor.page.keyboard.press("ArrowRight")
        told.add(detail.text_content())
    assert len(told) > 2
    expect(answer.locator(".run.current")).to_have_count(1)


def test_an_edited_turn_is_a_branch_and_the_browser_keeps_both(family: Site, visit: Visit) -> None:
    visitor = visit(family)
    visitor.fill(temperature=0, max_tokens=40)
    first = text_of(visitor.ask(SUM))
    visitor.ask("And 3 + 4?")
    assert [message["role"] for message in visitor.last_chat()["messages"]] == ["user", "assistant", "user"]
    visitor.button("Edit and branch").first.click()
    visitor.page.get_by_label("The turn").fill("What is 2 + 2?")
    visitor.button("Send as a branch").click()
    visitor.wait()
    assert [message["content"] for message in visitor.last_chat()["messages"]] == ["What is 2 + 2?"]
    expect(visitor.answers).to_have_count(1)
    expect(visitor.page.locator(".branches")).to_contain_text("2 of 2")
    visitor.button("Earlier branch").click()
    expect(visitor.answers).to_have_count(2)
    assert text_of(visitor.answers.first) == first
    visitor.button("Later branch").click()
    visitor.reload()
    expect(visitor.page.locator(".asked .text")).to_have_text("What is 2 + 2?")
    expect(visitor.page.locator(".branches")).to_contain_text("2 of 2")


def test_an_answer_is_stopped_and_asked_again(family: Site, visit: Visit) -> None:
    visitor = visit(family)
    visitor.fill(temperature=1, max_tokens=900, seed=3, task="off")
    visitor.send("Tell a long story about a fox. " * 5)
    visitor.page.locator(".answer-text .run").nth(2).wait_for()
    visitor.button("Stop").click()
    visitor.wait()
    expect(visitor.answers.last.locator(".problem")).to_have_text("stopped")
    length = len(text_of(visitor.answers.last))
    visitor.page.wait_for_timeout(500)
    assert len(text_of(visitor.answers.last)) == length
    visitor.fill(max_tokens=20)
    visitor.button("Regenerate").click()
    visitor.wait()
    expect(visitor.answers.last.locator(".branches")).to_contain_text("2 of 2")
    assert coloured(visitor.answers.last).keys() == {"own"}


@pytest.mark.parametrize("temperature", [0, 1])
def test_an_answer_is_proved(site: Site, visit: Visit, temperature: float) -> None:
    visitor = visit(site)
    visitor.fill(temperature=temperature, max_tokens=60)
    answer = visitor.ask(SUM)
    tokens = visitor.last_usage()["completion_tokens"]
    visitor.button("Prove it").click()
    expect(answer.locator(".proof strong")).to_have_text(f"{tokens} of {tokens} tokens equal")
    asked = visitor.last_chat()
    assert asked["speculation"] == {"enabled": False}
    assert isinstance(asked["seed"], int)


def test_a_proof_that_fails_names_the_first_different_token(family: Site, visit: Visit) -> None:
    """The service never differs, so the answer is altered in the page's store."""
    visitor = visit(family)
    visitor.fill(temperature=0, max_tokens=40)
    visitor.ask(SUM)
    visitor.page.evaluate(
        """() => {
            const name = Object.keys(localStorage).find((key) => key.startsWith("taskspec.conversation."));
            const kept = JSON.parse(localStorage.getItem(name));
            const { answer } = Object.values(kept.turns).find((turn) => turn.answer);
            answer.runs[0].ids[0] += 1;
            localStorage.setItem(name, JSON.stringify(kept));
        }"""
    )
    visitor.reload()
    visitor.button("Prove it").click()
    expect(visitor.answers.last.locator(".proof strong")).to_contain_text("Token 1 differs")


def test_a_race_is_seen_live_and_its_answers_are_equal(site: Site, visit: Visit) -> None:
    visitor = visit(site)
    visitor.fill(temperature=0, max_tokens=150)
    visitor.box.fill(REPEATS)
    visitor.button("Race").click()
    on, off = (visitor.page.get_by_label(f"Speculation {side}", exact=True) for side in ("on", "off"))
    for lane in (on, off):
        lane.locator(".run").first.wait_for()
    expect(visitor.page.locator(".playground.busy")).to_have_count(1)
    expect(visitor.page.locator(".race .verdict strong")).to_contain_text("tokens equal")
    assert text_of(on) == text_of(off)
    assert coloured(off).keys() == {"own"}
    assert sum(coloured(on).values()) == sum(coloured(off).values()) > 0
    visitor.button("Close").click()
    expect(visitor.page.locator(".race")).to_have_count(0)


def test_the_picker_offers_every_task_and_none(family: Site, visit: Visit) -> None:
    visitor = visit(family)
    options = visitor.page.locator("[name=task] option")
    expect(options).to_have_count(4)
    assert options.all_text_contents() == ["Automatic, by the router", "general", "python-print", "No draft"]
    visitor.fill(task="task:python-print", temperature=0, max_tokens=60, num_speculative_tokens=4)
    visitor.ask("Write a function that prints 3 times x.")
    assert visitor.last_chat()["speculation"] == {"task": "python-print", "num_speculative_tokens": 4}
    assert visitor.last_usage()["speculation"]["task"] == "python-print"
    visitor.fill(task="off")
    visitor.ask("Write a function that prints 4 times x.")
    assert visitor.last_chat()["speculation"] == {"enabled": False}
    assert coloured(visitor.answers.last).keys() == {"own"}


def test_every_field_reaches_the_service(family: Site, visit: Visit) -> None:
    visitor = visit(family)
    numbers = {"max_tokens": 12, "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.01, "seed": 9}
    penalties = {"repetition_penalty": 1.1, "presence_penalty": 0.2, "frequency_penalty": 0.1}
    visitor.fill(**numbers, **penalties, stop='["xyz"]', num_speculative_tokens=2, system="Be brief.")
    visitor.ask(SUM)
    body = visitor.last_chat()
    assert numbers | penalties | {"stop": ["xyz"]} == {name: body[name] for name in (*numbers, *penalties, "stop")}
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert body["speculation"] == {"num_speculative_tokens": 2}


def test_a_wrong_field_is_named_and_nothing_is_asked(family: Site, visit: Visit) -> None:
    visitor = visit(family)
    for fields, message in (
        ({"temperature": 9}, "Temperature"),
        ({"schema": "{"}, "JSON schema"),
        ({"tools": "["}, "Tools"),
    ):
        visitor.fill(**fields)
        visitor.send(SUM)
        expect(visitor.page.locator(".request .problem")).to_contain_text(message)
        visitor.fill(**dict.fromkeys(fields, ""))
    assert not visitor.chats


def test_a_refusal_of_the_service_is_shown(family: Site, visit: Visit) -> None:
    visitor = visit(family)
    visitor.refusals_expected = True
    visitor.fill(tools='[{"type": "function", "function": {"name": "no spaces, please"}}]')
    visitor.send(SUM)
    expect(visitor.answers.last.locator(".problem")).to_contain_text("name")


def test_a_conversation_is_exported_and_deleted(family: Site, visit: Visit) -> None:
    visitor = visit(family)
    visitor.fill(temperature=0, max_tokens=20)
    answer = text_of(visitor.ask(SUM))
    with visitor.page.expect_download() as download:
        visitor.button("Export").click()
    text = download.value.path().read_text()
    turns = list(json.loads(text)["turns"].values())
    assert [turn["role"] for turn in turns] == ["user", "assistant"]
    assert "".join(run["content"] for run in turns[1]["answer"]["runs"]) == answer
    assert family.key not in text
    visitor.button(f"Delete {SUM}").click()
    expect(visitor.answers).to_have_count(0)
    assert not [name for name in stored(visitor) if "conversation." in name]


def stored(visitor: Visitor) -> list[str]:
    names: list[str] = visitor.page.evaluate("Object.keys(localStorage)")
    return names


def test_all_of_a_chat_by_keyboard_alone(family: Site, visit: Visit) -> None:
    visitor = visit(family)
    visitor.fill(temperature=0, max_tokens=40)
    visitor.page.locator("body").press("Tab")
    reach(visitor, ".composer textarea")
    visitor.page.keyboard.type(SUM)
    visitor.page.keyboard.press("Enter")
    visitor.answers.first.wait_for()
    visitor.wait()
    reach(visitor, ".answer-text", backwards=True)
    visitor.page.keyboard.press("ArrowRight")
    expect(visitor.answers.last.locator(".detail")).to_contain_text("token")
    reach(visitor, "text=Prove it")
    visitor.page.keyboard.press("Space")
    expect(visitor.answers.last.locator(".proof strong")).to_contain_text("equal")


def reach(visitor: Visitor, selector: str, *, backwards: bool = False) -> None:
    for _ in range(60):
        if visitor.page.locator(selector).first.evaluate("node => node === document.activeElement"):
            return
        visitor.page.keyboard.press("Shift+Tab" if backwards else "Tab")
    pytest.fail(f"the keyboard does not reach {selector}")
