"""What a service would have recorded: traces under a bundle, with a prior and counts of a draft."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from core.sampling.params import SamplingParams
from core.traces.store import Proposals, Trace, TraceStore

_numbers = count()


def answer(bundle: str | None, task: str = "maths", accepted: int = 5, choice: int = 0) -> Trace:
    return Trace(
        prompt_ids=(next(_numbers), 7),
        output_ids=(1, 2, 3),
        params=SamplingParams(seed=0, max_tokens=8),
        choice=choice,
        task=task,
        prior={name: float(name == task) for name in ("maths", "chat")},
        bundle=bundle,
        sources={"draft": Proposals(10, accepted)},
        ended_at=time.time(),
    )


def answers(count: int, bundle: str | None = None, chat: float = 0.0) -> list[Trace]:
    """Of the tasks maths and, as far as `chat` says, chat."""
    return [answer(bundle, "chat" if number < chat * count else "maths") for number in range(count)]


def record(directory: Path, traces: Sequence[Trace]) -> Path:
    """Write a shard; its file."""
    store = TraceStore(directory)
    store.append(traces)
    return store.shards()[-1]
