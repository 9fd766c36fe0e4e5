"""What the figures were taken on: processor, cores, versions, date; nothing that names a machine. And its clock."""

from __future__ import annotations

import os
import platform
import time
from datetime import UTC, datetime
from pathlib import Path

import torch
import transformers


def facts() -> dict[str, object]:
    """JSON values."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "date": datetime.now(UTC).date().isoformat(),
    }


def line() -> str:
    """The facts as one line below a table."""
    return ", ".join(f"{name} {value}" if name != "processor" else str(value) for name, value in facts().items())


def now(device: str | torch.device) -> float:
    """Seconds, once `device` has done all it was given: a call that gives a GPU work returns before the work is."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _processor() -> str:
    """The model's name, and which of the instructions that decide here it has."""
    wanted = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
    name, flags = platform.machine(), ""
    for entry in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        key, _, value = entry.partition(":")
        if key.strip() == "model name":
            name = value.strip()
        if key.strip() == "flags":
            flags = value
    return f"{name} ({', '.join(flag for flag in wanted if flag in flags.split()) or 'no vector extension known here'})"
