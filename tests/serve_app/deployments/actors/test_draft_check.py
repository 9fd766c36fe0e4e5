"""The check of drafts: what it says of a draft, what it costs, and that nothing stops it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from core.family import BUNDLE_DIR
from core.replay.decay import FEWEST, WINDOW, DraftedAnswer, DraftedPass
from core.replay.replay import hits_among, output_logits, session_forward
from core.traces.record import Record
from serve_app.config import load_config
from serve_app.deployments.actors import draft_check
from serve_app.deployments.actors.draft_check import DraftCheck
from tests.core.family_records import TERMS, answered, draft, requests

LOGGER = "serve_app.deployments.actors.draft_check"
ADAPTER = next(iter(BUNDLE_DIR.glob("parts/*/adapter_model.safetensors"))).parent


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return answered(requests("english", FEWEST + 2, 5, max_tokens=16))


def check(share: float = 1.0) -> DraftCheck:
    made = DraftCheck(load_config("family"))
    made.share = share
    return made


async def replayed(made: DraftCheck, answers: Sequence[DraftedAnswer]) -> None:
    await made.take(answers)
    while made._waiting:
        made._free_at = 0.0
        await made.check_health()
        assert made._turn is not None
        await made._turn


def drafted(record: Record, hits: Sequence[bool], directory: Path | None = None) -> DraftedAnswer:
    """As if a single token had been proposed for every pass."""
    passes = tuple(DraftedPass(place, 1, int(hit)) for place, hit in enumerate(hits) if place)
    return DraftedAnswer(record, passes, "math", None if directory is None else str(directory))


def sound(record: Record) -> DraftedAnswer:
    model = draft()
    hits = hits_among(TERMS.num_valid, record, output_logits(record, session_forward(model), model.context))
    return drafted(record, hits)


def broken(record: Record, directory: Path | None = None) -> DraftedAnswer:
    return drafted(record, [False] * len(record.output_ids), directory)


async def test_a_sound_draft_is_told_with_no_gap(records: list[Record], caplog: pytest.LogCaptureFixture) -> None:
    made = check()
    await replayed(made, [sound(record) for record in records])
    told = made.report().records["math"]
    assert told.answers == len(records)
    assert told.accepted == told.replayed > 0.0
    assert not told.decayed
    assert not caplog.records


async def test_a_broken_draft_is_told_once_and_again_when_it_is_well(
    records: list[Record], caplog: pytest.LogCaptureFixture
) -> None:
    made = check()
    with caplog.at_level(logging.WARNING, LOGGER):
        await replayed(made, [broken(record) for record in records])
        await replayed(made, [broken(record) for record in records])
        assert made.report().records["math"].decayed
        [alarm] = caplog.messages
        assert "the draft of math has decayed: 0.000 of its tokens" in alarm
        assert "taskspec scale math=0" in alarm
        for _ in range(WINDOW // len(records) + 1):
            await replayed(made, [sound(record) for record in records])
    assert not made.report().records["math"].decayed
    assert "does again what it ought to" in caplog.messages[-1]


async def test_two_drafts_of_a_task_are_told_apart_and_one_that_serves_no_more_is_forgotten(
    records: list[Record], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = check()
    with caplog.at_level(logging.WARNING, LOGGER):
        for _ in range(3):  # as with a canary
            await replayed(made, [broken(record) for record in records])
            await replayed(made, [broken(records[0], ADAPTER)])
    assert len(caplog.messages) == 1
    told = made.report().records
    assert {name: record.answers for name, record in told.items()} == {
        "math": WINDOW,
        f"math@{ADAPTER.name[:12]}": 3,
    }
    monkeypatch.setattr(draft_check, "STALE", -1.0)
    await made.check_health()
    assert not made.report().records
    await replayed(made, [sound(records[0])])
    monkeypatch.undo()
    await replayed(made, [sound(records[0])])
    assert made.report().records["math"].answers <= 2


async def test_it_rests_for_as_long_as_its_share_says(records: list[Record]) -> None:
    made = check(share=1e-6)
    await replayed(made, [sound(records[0])])
    await made.take([sound(records[1])])
    await made.check_health()
    assert made.report().records["math"].answers == 1
    assert made._waiting


async def test_drafts_take_turns_and_the_latest_answers_wait(records: list[Record]) -> None:
    made = check()
    await made.take([sound(record) for record in records] * WINDOW)
    await made.take([sound(records[0])._replace(task="python")])
    await replayed(made, [])
    told = made.report().records
    assert {task: record.answers for task, record in told.items()} == {"math": WINDOW, "python": 1}


async def test_a_draft_that_cannot_be_loaded_is_told_once_and_the_others_are_checked(
    records: list[Record], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = check()
    with caplog.at_level(logging.WARNING, LOGGER):
        for _ in range(2):
            await replayed(made, [broken(records[0], tmp_path / "nowhere"), sound(records[1])])
    [message] = caplog.messages
    assert "the draft of math is not checked" in message
    assert made.report().records["math"].answers == 2
