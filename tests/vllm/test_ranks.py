"""Several ranks compute one target: the same answers with drafts and without, and one that dies ends all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.core.model.random_models import save_model
from tests.vllm.models import SIZES

ROOT = Path(__file__).parents[2]
PATIENCE = 400.0
SCRIPT = """
import sys
from pathlib import Path

from core.model.invariance import differing
from tests.vllm.answers import answers
from tests.vllm.models import in_vllm

if __name__ == "__main__":  # ranks are spawned
    model = in_vllm(Path(sys.argv[1]), tensor_parallel_size=2)
    assert differing(model).differing == 0
    plain = answers(model)
    assert answers(model, right=plain) == answers(model, wrong=True) == plain
    print("equal", flush=True)
    while sys.argv[2] == "endless":
        answers(model)
"""


def start(directory: Path, how: str) -> subprocess.Popen[str]:
    script = directory / "ranks.py"
    script.write_text(SCRIPT)
    save_model(directory, **SIZES)
    command = [sys.executable, str(script), str(directory), how]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_two_ranks_answer_alike_with_drafts_and_end_in_order(tmp_path: Path) -> None:
    running = start(tmp_path, "once")
    printed, _ = running.communicate(timeout=PATIENCE)
    assert (printed.splitlines()[-1], running.returncode) == ("equal", 0)


@pytest.mark.parametrize("killed", ["rank 0", "rank 1"])
def test_a_rank_that_is_killed_ends_the_others(tmp_path: Path, killed: str) -> None:
    running = start(tmp_path, "endless")
    assert running.stdout is not None
    while "equal" not in (line := running.stdout.readline()):
        assert line, "it ended before it answered"
    ours = psutil.Process(running.pid)
    [other] = [child for child in ours.children(recursive=True) if "spawn_main" in " ".join(child.cmdline())]
    (ours if killed == "rank 0" else other).send_signal(signal.SIGKILL)
    running.wait(PATIENCE)
    assert not psutil.wait_procs([other], PATIENCE)[1]
