"""Waits of the long tests end at their bound, or once nothing can come of them any more, and say what was seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.serve_app.command import Command
from tests.serve_app.foreign import Foreign
from tests.serve_app.live import live
from tests.serve_app.traffic import Answer, Flow, Traffic


def test_traffic_that_fails_ends_the_wait_for_what_would_come_of_it() -> None:
    foreign = Foreign()
    foreign.refusal = 503, "every verifier is busy"
    with live(foreign.app) as url:
        traffic = Traffic(url, "them/13b", [("math", "What is 1 + 1?")], clients=2)
        with pytest.raises(AssertionError, match="every verifier is busy"), traffic.flowing([]) as flow:
            flow.eventually(lambda: False, "drift is found", seconds=60)


def test_what_does_not_come_of_traffic_is_told_with_what_was_seen() -> None:
    answers = [Answer(0.0, "math", 0, [1], None)]
    with pytest.raises(AssertionError, match=r"not within 0 s: drift is found; seen: {'math': 1} answers, the last of"):
        Flow(answers, []).eventually(lambda: False, "drift is found", seconds=0)


def test_a_line_that_a_command_never_says_is_told_with_what_it_said(tmp_path: Path) -> None:
    command = Command(tmp_path, "--help")
    try:
        with pytest.raises(AssertionError, match="Usage: taskspec"):
            command.line(lambda line: "base_url" in line)
    finally:
        command.kill()
