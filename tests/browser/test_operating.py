"""The views of an operator in front of a real service: what they tell of traffic, and a canary that is ended."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.conftest import Site, Visit
from tests.browser.pictures import picture
from tests.browser.visitor import Visitor
from tests.clients.conftest import BIN, ROOT

CANARY_IN = 2400.0  # seconds for a retraining on a busy machine; six minutes on two idle cores
SMOKE = "train_jobs/configs/smoke.yaml"


def test_drafts_and_service_tell_of_the_traffic(family: Site, visit: Visit) -> None:
    visitor = visit(family, key=family.admin)
    visitor.fill(temperature=0, max_tokens=60, task="task:python-print")
    visitor.ask("Write a function that prints 3 times x.")
    visitor.view("Drafts")
    card = visitor.page.get_by_label("python-print", exact=True)
    expect(card).to_contain_text("accepted by source")
    expect(card.locator(".words span")).to_have_text(["python", "print"])
    expect(card.get_by_role("button", name="Scale")).to_be_enabled()
    visitor.view("Service")
    panel = visitor.page.get_by_label("Replicas", exact=True)
    for part in ("ingress", "target", "router", "general", "python-print"):
        expect(panel.get_by_role("rowheader", name=part, exact=True)).to_be_visible()
    expect(visitor.page.get_by_label("Keys", exact=True)).to_contain_text("keeper (admin)")
    expect(
        visitor.page.get_by_label("The last hour", exact=True).locator("svg.timeline path.line").first
    ).to_be_attached()


def test_who_is_no_admin_sees_no_other_keys(family: Site, visit: Visit) -> None:
    visitor = visit(family)
    visitor.view("Service")
    keys = visitor.page.get_by_label("Keys", exact=True)
    expect(keys).to_contain_text("visitor")
    expect(keys).not_to_contain_text("keeper")


def test_nothing_is_asked_while_nobody_looks(family: Site, visit: Visit) -> None:
    visitor = visit(family)
    visitor.view("Drafts")
    visitor.page.locator(".feed.live").wait_for()
    visitor.view("Playground")
    visitor.page.wait_for_timeout(500)
    looks = len(looked(visitor))
    visitor.page.wait_for_timeout(3000)
    assert len(looked(visitor)) == looks


def test_what_was_written_stays_while_figures_change(family: Site, visit: Visit) -> None:
    visitor = visit(family, key=family.admin)
    visitor.view("Drafts")
    card = visitor.page.get_by_label("general", exact=True)
    card.locator("input").fill("3")
    visitor.page.keyboard.press("Tab")
    expect(card.get_by_role("button", name="Scale")).to_be_focused()
    before = card.locator("dl").first.text_content()
    other = visit(family)
    other.fill(temperature=0, max_tokens=20, task="task:general")
    other.ask("How is key spelled?")
    expect(card.locator("dl").first).not_to_have_text(str(before))
    expect(card.locator("input")).to_have_value("3")
    expect(card.get_by_role("button", name="Scale")).to_be_focused()


def looked(visitor: Visitor) -> list[str]:
    return [url for url in visitor.requests if "/console/events" in url]


def test_a_retraining_arrives_as_a_canary_and_is_ended(family: Site, visit: Visit, tmp_path: Path) -> None:
    visitor = visit(family, key=family.admin)
    visitor.view("Drafts")
    rollout = visitor.page.get_by_label("Rollout", exact=True)
    expect(rollout.locator("dl")).to_contain_text("steady")
    served = rollout.locator("code").first.text_content()
    retraining = subprocess.Popen(
        [BIN / "taskspec", "retrain", "--config", SMOKE, "--work", tmp_path, "--bundles", str(family.bundles)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    late = threading.Timer(CANARY_IN, retraining.terminate)
    late.start()
    try:
        said, _ = retraining.communicate()
    finally:
        late.cancel()
        retraining.terminate()  # this test may be interrupted
    assert retraining.returncode == 0, said
    expect(rollout.locator("dl strong")).to_have_text("canary")
    expect(rollout.locator("dl")).to_contain_text("20 %")
    candidate = rollout.locator("code").nth(1).text_content()
    assert candidate not in (None, served)
    expect(visitor.page.get_by_label("Bundles", exact=True)).to_contain_text(str(candidate))
    picture(visitor, "canary-light")
    visitor.button("End the canary").click()
    visitor.button("Do it").click()
    expect(rollout.locator("dl strong")).to_have_text("steady")
    expect(rollout.locator("code")).to_have_text([str(served)])
    assert "deploy" in family.log
    assert "by keeper" in family.log
