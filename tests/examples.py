"""How many examples a property is tried on: a quarter at first, all of them where there is time."""

from __future__ import annotations

import os

ALL = "TASKSPEC_ALL_EXAMPLES"  # set in the environment by `make test-cluster` and `make soak`


def examples(number: int) -> int:
    """So many, or a quarter of them in `make test`."""
    return number if ALL in os.environ else max(1, number // 4)
