"""Which draft gets a slot: the one in it stays until another is better beyond doubt.

In: what every candidate would have done on the same held-out records. Out: a name, and the reason in words.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from core.acceptance import Acceptance
from core.bootstrap import Difference, compare


class Choice(NamedTuple):
    """The candidate that gets the slot, and why."""

    name: str
    reason: str


def choose(candidates: Mapping[str, Sequence[Acceptance]], prompts: Sequence[Hashable]) -> Choice:
    """Take the candidates in order: the first holds the slot until a later one beats it.

    Better is an acceptance_rate whose difference has its whole 95 % interval above 0 (paired bootstrap by prompt). So
    name the draft in service first and what is dearest to serve last. Raises ValueError without records.
    """
    (holder, *challengers), reasons = candidates, list[str]()
    for name in challengers:
        difference = compare(candidates[name], candidates[holder], prompts)
        reasons.append(f"{name} {_against(difference)} {holder}")
        if difference.better:
            holder = name
    count = len(set(prompts))
    return Choice(holder, f"on {count} prompts: " + "; ".join(reasons) if reasons else "the only candidate")


def _against(difference: Difference) -> str:
    interval = f"{difference.difference:+.3f} ({difference.low:+.3f} to {difference.high:+.3f})"
    return f"{interval}, {'better than' if difference.better else 'not better than'}"
