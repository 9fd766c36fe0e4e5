"""lm-eval scores choices by the logprobs of echoed prompts, and takes the tokens from the service as well."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from conftest import Service

HERE = Path(__file__).parent
QUESTIONS = 8


def results(service: Service, output: Path, *model_arguments: str) -> dict[str, Any]:
    """Run the task from the command line."""
    arguments = ",".join([f"model={service.model}", f"base_url={service.v1}/completions", *model_arguments])
    command = [sys.executable, "-m", "lm_eval", "run", "--model", "local-completions", "--model_args", arguments]
    ended = subprocess.run(
        [*command, "--tasks", "questions.yaml", "--output_path", str(output)],
        cwd=HERE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "remote tokenizer backend" in ended.stderr
    [written] = output.rglob("results_*.json")
    return dict(json.loads(written.read_text()))


def test_a_multiple_choice_task_has_an_accuracy(service: Service, tmp_path: Path) -> None:
    found = results(service, tmp_path, "num_concurrent=4")
    scores = found["results"]["questions"]
    print(f"lm-eval: accuracy {scores['acc,none']:.2f}, normalised {scores['acc_norm,none']:.2f}")  # noqa: T201
    assert found["n-samples"]["questions"]["effective"] == QUESTIONS
    assert scores["acc,none"] > 0.5  # chance is a quarter
