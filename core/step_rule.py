"""When the verifier steps: now with what is in hand, or a little later with proposals that are about to arrive.

Enters: what each session brings now and would bring later, measured step costs and reply times. Leaves: a moment.
The rule takes the larger rate of committed tokens over time (design 6), and waits only where that is clearly larger: an
answer is awaited that may come late, what is in hand is there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from core.asking import CLEARLY
from core.step_costs import StepCosts

MAX_MISSES = 2  # a draft that let this many deadlines pass is not waited for until it is heard again


class Standing(NamedTuple):
    """What one session brings to a pass.

    `arrival` is the seconds until its next proposal is expected, 0 where nothing is waited for; `expected_*` are the
    tokens the pass is expected to commit for it (E), now and once the proposal is there; `rows_*` the rows it feeds.
    """

    arrival: float
    expected_now: float
    expected_then: float
    rows_now: int
    rows_then: float


def seconds_to_wait(standings: Sequence[Standing], costs: StepCosts) -> float:
    """How long to wait for further proposals before stepping; 0 means step now."""
    arrivals = sorted({standing.arrival for standing in standings if standing.arrival > 0.0})
    if not arrivals:
        return 0.0
    best_wait, best_rate = 0.0, (1.0 + CLEARLY) * _rate(standings, 0.0, costs)
    for arrival in arrivals:
        rate = _rate(standings, arrival, costs)
        if rate > best_rate:
            best_wait, best_rate = arrival, rate
    return best_wait


def _rate(standings: Sequence[Standing], wait: float, costs: StepCosts) -> float:
    tokens = sum(s.expected_then if 0.0 < s.arrival <= wait else s.expected_now for s in standings)
    rows = sum(s.rows_then if 0.0 < s.arrival <= wait else s.rows_now for s in standings)
    seconds = wait + costs.seconds(round(rows))
    return tokens / seconds if seconds > 0.0 else math.inf
