"""The trace of a first token, of a few prompts, on the service that these tests have anyway."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.progress import Progress

from tests.bench.first_token import NAMED_WAY, PLAIN_WAY, ROUTED_WAY, draw, measured, table
from tests.bench.items import held_out
from tests.bench.moments import ARRIVED, ASKED, DRAFT, FIRST, OPEN, ROUTED, ROUTER
from tests.service.conftest import Service

pytestmark = [pytest.mark.cluster, pytest.mark.soak]


def test_router_and_draft_are_asked_while_the_first_token_is_on_its_way(service: Service, tmp_path: Path) -> None:
    with Progress(disable=True) as progress:
        traces = measured(service.url, service.served, held_out(1)[:4], warm=1, progress=progress)
    plain, named, routed = (traces.by_way[way] for way in (PLAIN_WAY, NAMED_WAY, ROUTED_WAY))
    assert len(plain) == len(named) == len(routed) == 3
    for noted in plain:
        assert 0 < noted[ASKED] < noted[FIRST] < noted[ARRIVED]
        assert not {ROUTER, ROUTED, DRAFT, OPEN} & noted.keys()
    for noted in named:
        assert ROUTER not in noted
    for noted in routed:
        assert 0 < noted[ASKED] < noted[ROUTER] < noted[FIRST] < noted[ARRIVED]
        assert noted[ROUTER] < noted[ROUTED]
    assert traces.later(ROUTED_WAY).items == 3
    assert f"| {ROUTED} |" in table(traces)
    draw(traces, tmp_path / "trace.png")
    assert (tmp_path / "trace.png").read_bytes().startswith(b"\x89PNG")
