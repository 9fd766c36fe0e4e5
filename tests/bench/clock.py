"""The clock, read when the device is done: a call that gives a GPU work returns before the work is."""

from __future__ import annotations

import time

import torch


def now(device: str | torch.device) -> float:
    """Seconds, once `device` has done all it was given."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
