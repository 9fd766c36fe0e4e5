"""The measurement behind the wire keeps working: its pieces with a handful of round trips, and no Ray."""

from __future__ import annotations

from core.wire.messages import Commit, Propose
from tests.bench.wire import as_json, table
from tests.bench.wire_ends import AnsweringThread, WireEnd, answer, interleaved

TAKEN = {"serve handle": [0.004, 0.005, 0.006], "wire": [0.0001, 0.0001, 0.0003]}


async def test_round_trips_are_interleaved_and_those_of_the_warm_up_left_out() -> None:
    answering, order = AnsweringThread(), list[str]()
    answering.start()
    wire = WireEnd(answering.address)

    async def over_wire(proposed: Propose) -> Commit:
        order.append("wire")
        return await wire.round_trip(proposed)

    async def over_nothing(proposed: Propose) -> Commit:
        order.append("nothing")
        return answer(proposed)

    try:
        taken = await interleaved({"wire": over_wire, "nothing": over_nothing}, count=3, warm_up=1)
    finally:
        wire.close()
        answering.stop()
    assert order == ["wire", "nothing", "nothing", "wire"] * 2
    assert {kind: len(seconds) for kind, seconds in taken.items()} == {"wire": 3, "nothing": 3}
    assert answering.error is None


def test_the_table_has_the_slowest_last() -> None:
    assert table(TAKEN).splitlines()[2:] == ["| wire | 0.10 | 0.30 | 1.0 |", "| serve handle | 5.00 | 5.98 | 50.0 |"]
    told = as_json(TAKEN)
    assert told["wire"] == {"round trips": 3, "p10": 0.1, "p50": 0.1, "p90": 0.26, "p99": 0.296}
