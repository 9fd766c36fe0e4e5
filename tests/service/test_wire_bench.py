"""The measurement behind the wire, with a few round trips on the Ray that these tests have anyway."""

from __future__ import annotations

import pytest

from tests.bench.wire import measured

# tests/bench/test_wire.py has its parts without replicas
pytestmark = [pytest.mark.cluster, pytest.mark.soak, pytest.mark.usefixtures("service")]


def test_every_kind_of_round_trip_is_made_between_replicas() -> None:
    taken = measured(count=3, warm_up=1)
    assert {kind: len(seconds) for kind, seconds in taken.items()} == {"wire": 3, "serve handle": 3, "actor call": 3}
