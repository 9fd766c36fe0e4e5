"""Services in processes of their own, as users start them: the clients' environment has nothing of this project."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE = 300.0  # seconds until it serves, and until it has ended
BIN = ROOT / ".venv" / "bin"
ADDRESS = re.compile(r"OpenAI base_url: (\S+)/v1 +model: (\S+)")


class Service(NamedTuple):
    """Where a service is, and the name of its model."""

    url: str
    model: str

    @property
    def v1(self) -> str:
        """The base URL of OpenAI's clients."""
        return f"{self.url}/v1"


@contextmanager
def running(*command: str | Path) -> Iterator[Service]:
    """Run the command for as long as the block lasts; it prints where its service is."""
    process = subprocess.Popen(list(map(str, command)), cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    late = threading.Timer(PATIENCE, process.kill)
    late.start()
    try:
        printed = ""
        for line in process.stdout:
            printed += line
            if found := ADDRESS.search(line):
                late.cancel()
                yield Service(*found.groups())
                break
        else:
            pytest.fail(f"it ended before it served:\n{printed}", pytrace=False)
    finally:
        late.cancel()
        process.terminate()
        process.communicate(timeout=PATIENCE)
    assert process.returncode in (0, 130, -15)


@pytest.fixture(scope="session")
def service() -> Iterator[Service]:
    """A real one; grammars make a small model's answers valid, so tests hold their form, not their sense."""
    with running(BIN / "taskspec", "serve", "--config", "tests/clients/service.yaml", "--port", "0") as found:
        yield found


@pytest.fixture(scope="session")
def scripted() -> Iterator[Service]:
    """One whose target thinks and calls a tool whenever it is offered some, and ends when it is told the result."""
    with running(BIN / "python", "-m", "tests.clients.scripted_server") as found:
        yield found


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No client writes into the user's home, or asks the network for anything."""
    for name in [name for name in os.environ if name.startswith(("OPENAI_", "ANTHROPIC_", "LLM_", "LANGSMITH_"))]:
        monkeypatch.delenv(name)
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "LITELLM_LOCAL_MODEL_COST_MAP"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
