"""Answers of the family as its service keeps them, and a bundle with an adapter that is worse than the shipped one."""

from __future__ import annotations

import shutil
import time
from functools import cache
from pathlib import Path

import msgspec
import torch
from safetensors.torch import load_file, save_file

from core.bundle.manifest import Manifest, MeasuredCosts
from core.bundle.store import Winner, open_live, publish, show
from core.family import BUNDLE_DIR
from core.traces.record import Record
from core.traces.store import Proposals, Trace
from tests.core.family_records import answered, requests

PYTHON = "python-print"  # the one task with an adapter of its own
SHIPPED = (BUNDLE_DIR / "live").read_text().split()[0]


@cache
def records() -> list[Record]:
    """Answers to prompts in Python and in Chinese, at temperatures 0 and 1."""
    laws = [{"temperature": 0.0}, {"temperature": 1.0}]
    asked = [one for law in laws for task in ("python", "chinese") for one in requests(task, 4, 21, **law)]
    return answered(asked)


def traces() -> list[Trace]:
    """The records as they end now, under the shipped bundle."""
    measured = {"draft": Proposals(10, 4), "own_text": Proposals(3, 3)}
    return [
        Trace(**msgspec.structs.asdict(record), bundle=SHIPPED, sources=measured, ended_at=time.time())
        for record in records()
    ]


def copied(root: Path) -> Path:
    """The shipped bundle in a directory of its own."""
    shutil.copytree(BUNDLE_DIR, root)
    return root


def with_a_worse_adapter(root: Path, work: Path, costs: MeasuredCosts | None = None) -> Manifest:
    """The shipped bundle's successor in `root`: the same but for the weights of one adapter."""
    bundle, shipped = open_live(root).bundle, show(root, SHIPPED)
    assert bundle is not None
    good = bundle.directory(PYTHON)
    assert good is not None
    shutil.copytree(good, work)
    weights = load_file(work / "adapter_model.safetensors")
    torch.manual_seed(0)
    noise = {name: torch.randn(weight.shape).to(weight.dtype) for name, weight in weights.items()}
    save_file(noise, work / "adapter_model.safetensors")
    winners = {
        task: Winner(directory=work if task == PYTHON else bundle.directory(task), decision=slot.decision, reason="")
        for task, slot in shipped.slots.items()
    }
    return publish(
        root,
        winners,
        router=bundle.router,
        target=shipped.target,
        draft=shipped.draft,
        id_map=shipped.id_map,
        acceptance=shipped.acceptance,
        costs=costs,
    )
