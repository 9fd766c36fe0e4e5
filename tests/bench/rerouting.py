"""An answer as the service would reroute it: every draft's hits are known, and `core.policy.rerouting` chooses.

Enters: hits, the router's chances, the table of the service. Leaves: counts, and the slots that drafted. Pure, save
that the table learns, as it does in a service that gets one answer after another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from random import Random
from typing import NamedTuple

from core.distill.record import Record
from core.distill.replay import AcceptanceCounts, Terms
from core.generation import Run
from core.policy.rerouting import AnswerRoute, RoutingTable

JOIN_PASSES = 2  # from the decision to move to the first proposal: a Serve call and the prompt; the old draft goes on


class Rerouted(NamedTuple):
    """The counts of an answer, the slots that drafted for it, in order, and the hits of whichever was at work."""

    counts: AcceptanceCounts
    slots: tuple[str, ...]
    hits: tuple[bool, ...]


def play(
    hits: Mapping[str, Sequence[bool]], record: Record, routed: Mapping[str, float], table: RoutingTable, terms: Terms
) -> Rerouted:
    """An answer, pass by pass. `hits` has one bool per output token, by slot."""
    length, most = len(record.output_ids), min(record.params.max_tokens, terms.context - record.prompt_length)
    route = AnswerRoute(table, routed, terms.num_speculative_tokens)
    slots, joining = [route.slot], dict[int, str]()  # by the pass after which a slot takes over
    committed, passes, all_proposed, all_accepted = 1, 0, 0, 0  # the first token is the prefill's
    at_work = [False]
    while committed < length:
        proposed = max(0, min(terms.num_speculative_tokens, most - committed - 1))
        accepted = sum(takewhile(bool, hits[route.slot][committed : committed + proposed]))
        at_work += hits[route.slot][committed : committed + accepted + 1]
        committed, passes = committed + accepted + 1, passes + 1
        all_proposed, all_accepted = all_proposed + proposed, all_accepted + accepted
        if proposed:
            route.observe(Run((), proposed, accepted))
        if passes in joining:
            route.move(joining.pop(passes))
            slots.append(route.slot)
        elif not joining and (better := route.better((), most - committed)) is not None:
            joining[passes + JOIN_PASSES] = better
    return Rerouted(
        AcceptanceCounts(max(0, length - 1), passes, all_proposed, all_accepted), tuple(slots), tuple(at_work)
    )


def at_random(routed: Mapping[str, float], seed: str) -> dict[str, float]:
    """The word of a router that knows nothing and is as sure: the chances, dealt out anew."""
    chances = list(routed.values())
    Random(seed).shuffle(chances)
    return dict(zip(routed, chances, strict=True))
