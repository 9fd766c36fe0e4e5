"""Small bundles and the paths of their files; the process whose writers are killed."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from core.bundle.manifest import Manifest
from core.bundle.store import Winner, open_live, publish

NAMES = {"target": "target-13b", "draft": "draft-68m", "id_map": "f" * 64}
ROOT = Path(__file__).parents[3]


def adapter(directory: Path, number: int, base: str | None = None) -> Path:
    """A directory as peft writes it; `number` distinguishes its weights, `base` names the model that it is for."""
    if not directory.exists():
        directory.mkdir(parents=True)
        config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4} | ({"base_model_name_or_path": base} if base else {})
        (directory / "adapter_config.json").write_text(json.dumps(config))
        weight = np.full((2, 8), number, np.float32)
        save_file({"base_model.model.lm_head.lora_A.weight": weight}, directory / "adapter_model.safetensors")
    return directory


def model(directory: Path, number: int) -> Path:
    """A directory as transformers writes a whole model, but with one small tensor."""
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps({"model_type": "llama"}))
    save_file({"model.norm.weight": np.full(8, number, np.float32)}, directory / "model.safetensors")
    return directory


def publish_adapters(root: Path, work: Path, number: int, *, live: bool = True) -> Manifest:
    """A bundle of two tasks and a router: `math` depends on `number`, `code` does not, `general` has no adapter."""
    winners = {
        "math": Winner(
            directory=adapter(work / f"math-{number}", number),
            decision="task",
            reason="better",
            scores={"task": 0.8, "general": 0.7},
        ),
        "code": Winner(directory=adapter(work / "code", -1), decision="mixed", reason="no worse"),
        "general": Winner(directory=None, decision="general", reason="nothing is better"),
    }
    return publish(root, winners, router=adapter(work / "router", -2), live=live, **NAMES)


def content(directory: Path) -> dict[str, str]:
    """SHA-256 of every file under a directory, by its path in it."""
    files = (file for file in sorted(directory.rglob("*")) if file.is_file())
    return {str(file.relative_to(directory)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def served(root: Path) -> Manifest:
    """The live manifest, after a check that its adapters and router are as they were published."""
    live = open_live(root).bundle
    assert live is not None
    for directory in (live.router, *(live.directory(task) for task in live.manifest.slots)):
        assert directory is None or content(directory) == live.manifest.parts[directory.name]
    return live.manifest


def file_of(root: Path, part: str | None, name: str = "adapter_model.safetensors") -> Path:
    assert part is not None
    return root / "parts" / part / name


class KilledWriters:
    """The other end of `killed_writers.py`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def killed(self, order: str) -> bool:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()
        return {"killed\n": True, "finished\n": False}[self._process.stdout.readline()]


@contextmanager
def killed_writers(kind: str, root: Path) -> Iterator[KilledWriters]:
    command = [sys.executable, "-m", "tests.core.bundle.killed_writers", kind, str(root)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield KilledWriters(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0
