"""Writers that die: `python killed_writers.py bundle|traces ROOT`, which reads commands from stdin.

`at N`: a child writes once and kills itself with SIGKILL as it is about to do its N-th thing to the file system.
`for S`: a child writes on and on and is killed after S seconds.
Each is answered with a line: `killed`, or `finished` where the child had fewer than N things to do.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from core.sampling.params import SamplingParams
from core.traces.store import Trace, TraceStore
from tests.core.bundle.bundles import publish_adapters

TOUCHES = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree")


def kill_at(count: int) -> None:
    left = itertools.count(count, -1)

    def hook(event: str, _: object) -> None:
        if event in TOUCHES and next(left) == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def in_child(work: Callable[[], None], seconds: float | None = None) -> bool:
    """True if the child was killed, by itself or after `seconds`."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except Exception:  # noqa: BLE001 - the child must not continue as its parent
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), f"the writer failed: {status}"
    return status != 0


def write_bundle(root: Path, number: int) -> None:
    publish_adapters(root, root.parent, number)


def write_traces(root: Path, number: int) -> None:
    params = SamplingParams(seed=number, max_tokens=8)
    tokens = tuple(range(number, number + 50))
    TraceStore(root).append([Trace(prompt_ids=tokens, output_ids=tokens, params=params, choice=at) for at in range(20)])


def main(write: Callable[[Path, int], None], root: Path) -> None:
    def once(count: int) -> None:
        kill_at(count)
        write(root, 1)

    def ever() -> None:
        for number in itertools.count(2):
            write(root, number % 4)

    write(root.parent / "elsewhere", 0)  # so that children have the imports
    for line in sys.stdin:
        word, value = line.split()
        killed = in_child(lambda at=int(value): once(at)) if word == "at" else in_child(ever, float(value))
        sys.stdout.write("killed\n" if killed else "finished\n")
        sys.stdout.flush()


if __name__ == "__main__":
    os.fsync = lambda _: None  # SIGKILL loses no data that the kernel has, and fsync takes most of the time
    main({"bundle": write_bundle, "traces": write_traces}[sys.argv[1]], Path(sys.argv[2]))
