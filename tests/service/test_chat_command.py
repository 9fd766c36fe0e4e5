"""`taskspec chat` against a real service."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.service.conftest import Service, prompts

pytestmark = pytest.mark.cluster

[ITEM] = prompts(1, seed=41)


def said(service: Service, *options: str) -> str:
    command = [sys.executable, "-m", "serve_app.cli.main", "chat", service.url, "--prompt", ITEM.prompt, *options]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.parametrize("temperature", ["0", "1"])
def test_an_answer_reads_the_same_with_and_without_speculation(service: Service, temperature: str) -> None:
    options = ("--temperature", temperature, "--seed", "3", "--max-tokens", "80")
    plain = said(service, *options, "--no-speculation")
    assert len(plain) > 20
    assert said(service, *options) == plain
    unmarked = str.maketrans("", "", "[]")  # which may also be in the text
    assert said(service, *options, "--marks").translate(unmarked) == plain.translate(unmarked)
