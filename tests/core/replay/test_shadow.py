"""Shadows: exact counts of what a bundle would have had accepted, and the traces that they may be of."""

from __future__ import annotations

import hashlib
import time
from functools import cache
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from core.bundle.manifest import MeasuredCosts
from core.bundle.store import open_live, open_version, publish, show
from core.draft_key import GENERAL
from core.errors import ConfigError
from core.family import BUNDLE_DIR, DRAFT_DIR
from core.model.causal_lm import CausalLM, load_draft_model
from core.replay.replay import AcceptanceCounts, score_draft, total
from core.replay.shadow import (
    ServedBundle,
    ServedCounts,
    TraceSample,
    draw,
    foreign_to,
    known_costs,
    replayed,
    shadow,
)
from core.replay.speed import DraftCosts, draft_shape
from core.traces.store import TraceStore
from tests.core.bundle.bundles import NAMES
from tests.core.family_records import TERMS
from tests.core.replay.shadowed import PYTHON, SHIPPED, copied, traces, with_a_worse_adapter

LOADED: list[Path | None] = []
NOW = time.time()


def load(directory: Path | None) -> CausalLM:
    LOADED.append(directory)
    return load_draft_model(directory, DRAFT_DIR, dtype=torch.float32)


@cache
def shipped() -> ServedBundle:
    return ServedBundle.of(open_version(BUNDLE_DIR, SHIPPED))


def test_a_bundle_differs_from_itself_by_nothing_and_each_draft_is_loaded_once() -> None:
    LOADED.clear()
    found = shadow(shipped(), shipped(), traces(), TERMS, load)
    assert len(LOADED) == len(set(LOADED)) == 2
    assert found.whole.verdict == "not distinguishable"
    for part in (found.whole, *found.tasks):
        for pair in part.figures.values():
            assert pair.candidate == pair.against
            assert pair.difference == (0.0, 0.0, 0.0)


def test_the_figures_are_those_of_the_replays_of_the_routed_drafts() -> None:
    found = shadow(shipped(), shipped(), traces(), TERMS, load)
    models = {directory: load(directory) for directory in shipped().drafts.values()}
    by_task: dict[str, list[AcceptanceCounts]] = {}
    for trace in traces():
        route = shipped().route(trace.prompt_ids, TERMS.num_speculative_tokens)
        by_task.setdefault(route.task, []).extend(score_draft(models[route.draft], [trace], TERMS))
    assert {part.task for part in found.tasks} == by_task.keys()
    for part in (found.whole, *found.tasks):
        counts = total(one for task, some in by_task.items() if part.task in (None, task) for one in some)
        assert part.figures["acceptance_rate"].candidate.value == pytest.approx(counts.acceptance_rate)
        assert part.figures["tokens_per_pass"].candidate.value == pytest.approx(counts.tokens_per_pass)
        interval = part.figures["acceptance_rate"].candidate
        assert interval.low <= interval.value <= interval.high
    assert found.whole.answers == sum(part.answers for part in found.tasks) == len(traces())
    assert [part.answers for part in found.tasks] == sorted((part.answers for part in found.tasks), reverse=True)


def test_prompts_of_a_task_with_an_adapter_go_there_and_others_to_the_general_slot() -> None:
    assert set(shipped().drafts) == {GENERAL, PYTHON}
    for trace, python in zip(traces(), ([True] * 4 + [False] * 4) * 2, strict=True):
        route = shipped().route(trace.prompt_ids, 6)
        assert (route.task == PYTHON) == python
        assert route.draft == shipped().drafts[PYTHON if python else GENERAL]


def test_a_worse_adapter_shows_with_an_interval_below_zero_on_its_own_task_alone(tmp_path: Path) -> None:
    root = copied(tmp_path / "bundles")
    worse = with_a_worse_adapter(root, tmp_path / "worse")
    candidate, before = (ServedBundle.of(open_version(root, version)) for version in (worse.version, SHIPPED))
    seen: list[int] = []
    found = shadow(candidate, before, traces(), TERMS, load, seen.append)
    assert found.whole.verdict == "worse"
    for part in found.tasks:
        for pair in part.figures.values():
            if part.task == PYTHON:
                assert part.verdict == "worse"
                assert pair.difference.high < 0.0
                assert pair.candidate.value < pair.against.value
            else:
                assert pair.difference == (0.0, 0.0, 0.0)
    assert seen[-1] == 2 * len(traces())
    assert seen == sorted(set(seen))
    assert shadow(before, candidate, traces(), TERMS, load).whole.verdict == "better"


def test_without_a_bundle_the_unadapted_draft_serves_and_no_router_is_asked() -> None:
    bare = ServedBundle.of(None)
    assert bare.router is None
    assert {bare.route(trace.prompt_ids, 6) for trace in traces()} == {(GENERAL, None)}
    found = shadow(shipped(), bare, traces(), TERMS, load)
    assert found.whole.verdict == "better"
    [counts] = replayed([[None] * len(traces())], traces(), TERMS, load)
    assert counts == score_draft(load(None), traces(), TERMS)


def test_what_the_service_measured_is_of_its_drafts_where_the_trace_tells() -> None:
    silent = [msgspec.structs.replace(trace, sources=None) for trace in traces()[:1]]
    found = shadow(shipped(), shipped(), [*silent, *traces()[1:]], TERMS, load)
    count = len(traces()) - 1
    assert found.whole.measured == ServedCounts(count, 10 * count, 4 * count)
    assert sum(part.measured.accepted for part in found.tasks) == 4 * count


# ---- speed


def test_with_costs_it_is_speed_that_decides(tmp_path: Path) -> None:
    """The same adapter for next to nothing is better, and for a whole pass it is worse than at a fifth of one."""
    passes = (1.0,) * TERMS.num_speculative_tokens
    usual = {directory: DraftCosts(0.2, passes) for directory in shipped().drafts.values()}
    found = shadow(shipped(), shipped(), traces(), TERMS, load, costs=usual)
    assert {part.judged_by for part in (found.whole, *found.tasks)} == {"speedup"}
    assert found.whole.figures["speedup"].difference == (0.0, 0.0, 0.0)
    assert [*found.whole.figures] == ["speedup", "acceptance_rate", "tokens_per_pass"]
    elsewhere = copied(tmp_path / "bundles")
    other = ServedBundle.of(open_version(elsewhere, SHIPPED))
    for token, verdict in ((0.01, "better"), (1.0, "worse")):
        costs = usual | {directory: DraftCosts(token, passes) for directory in other.drafts.values()}
        judged = shadow(other, shipped(), traces(), TERMS, load, costs=costs)
        assert judged.whole.verdict == verdict
        assert judged.whole.figures["acceptance_rate"].difference == (0.0, 0.0, 0.0)


def test_without_costs_acceptance_decides() -> None:
    found = shadow(shipped(), shipped(), traces()[:2], TERMS, load)
    assert found.whole.judged_by == "acceptance_rate"
    assert "speedup" not in found.whole.figures


def test_costs_are_those_of_the_first_bundle_that_knows_all_shapes() -> None:
    drafts, older = [None, *shipped().drafts.values()], show(BUNDLE_DIR, SHIPPED)
    measured = MeasuredCosts(passes=(0.02, 0.03), tokens={draft_shape(None, DRAFT_DIR): 0.005})
    known, foreign = (
        msgspec.structs.replace(older, costs=costs) for costs in (measured, MeasuredCosts(passes=(1.0,), tokens={}))
    )
    assert older.costs is None
    assert known_costs(drafts, DRAFT_DIR, [older]) == known_costs(drafts, DRAFT_DIR, [foreign]) == {}
    expected = DraftCosts(0.25, (1.5,))
    assert known_costs(drafts, DRAFT_DIR, [older, foreign, known]) == dict.fromkeys(drafts, expected)


# ---- which traces


def drawn(directory: Path, since: float = NOW - 60.0, most: int = 100) -> TraceSample:
    foreign = foreign_to(show(BUNDLE_DIR, SHIPPED), BUNDLE_DIR, TERMS)
    return draw(TraceStore(directory), since, most, foreign)


def test_an_empty_store_has_nothing(tmp_path: Path) -> None:
    assert drawn(tmp_path / "none") == TraceSample([], 0, 0, 0, 0)


def test_only_traces_of_the_period_are_drawn(tmp_path: Path) -> None:
    ends = [NOW - 3600, NOW - 61, NOW - 59, NOW]
    kept = [msgspec.structs.replace(traces()[0], ended_at=ended) for ended in ends]
    TraceStore(tmp_path).append(kept)
    assert drawn(tmp_path) == TraceSample(kept[2:], 2, 0, 0, 0)
    assert drawn(tmp_path, 0.0).matching == 4


def test_files_written_before_the_period_are_not_read(tmp_path: Path) -> None:
    TraceStore(tmp_path).append(traces())
    [shard] = TraceStore(tmp_path).shards()
    shard.rename(tmp_path / f"{int((NOW - 120) * 1e9):020d}{shard.name[20:]}")
    assert drawn(tmp_path).matching == 0
    assert drawn(tmp_path, NOW - 180).matching == len(traces())


def test_of_many_traces_some_of_all_are_drawn_the_same_every_time(tmp_path: Path) -> None:
    many = [msgspec.structs.replace(traces()[0], choice=choice, ended_at=NOW) for choice in range(400)]
    TraceStore(tmp_path).append(many)
    found = drawn(tmp_path, most=100)
    choices = [trace.choice for trace in found.traces]
    assert found.matching == 400
    assert len(set(choices)) == 100
    assert 15 < sum(choice < 100 for choice in choices) < 35
    assert drawn(tmp_path, most=100) == found


def test_traces_of_other_models_are_counted_and_left_out(tmp_path: Path) -> None:
    root = copied(tmp_path / "bundles")
    other = publish(root, {}, router=None, **NAMES)
    good = traces()[0]
    foreign = {
        "of another target's bundle": msgspec.structs.replace(good, bundle=other.version),
        "of an unknown bundle": msgspec.structs.replace(good, bundle="0" * 16),
        "with an id that the tokenizer lacks": msgspec.structs.replace(good, output_ids=(TERMS.num_valid,)),
        "longer than the context": msgspec.structs.replace(good, output_ids=(1,) * TERMS.context),
    }
    without = msgspec.structs.replace(good, bundle=None)
    incomplete = [
        msgspec.structs.replace(good, **{field: value})
        for field, value in (("prompt_ids", ()), ("output_ids", ()), ("ended_at", None))
    ]
    TraceStore(tmp_path / "traces").append([good, *foreign.values(), without, *incomplete])
    is_foreign = foreign_to(show(root, SHIPPED), root, TERMS)
    assert [name for name, trace in foreign.items() if not is_foreign(trace)] == []
    found = draw(TraceStore(tmp_path / "traces"), NOW - 60, 100, is_foreign)
    assert found == TraceSample([good, without], 2, len(foreign), len(incomplete), 0)


def test_a_file_of_other_dice_is_counted_and_left_out(tmp_path: Path) -> None:
    store = TraceStore(tmp_path)
    store.append(traces()[:2])
    [shard] = store.shards()
    table = parquet.read_table(pa.BufferReader(shard.read_bytes()))
    shard.unlink()
    rows = [row | {"dice": 2} for row in table.to_pylist(maps_as_pydicts="strict")]
    other = tmp_path / "other.parquet"
    parquet.write_table(pa.Table.from_pylist(rows, table.schema), other)
    named(other, len(rows))
    store.append(traces()[2:])
    found = drawn(tmp_path)
    assert (found.matching, found.unreadable) == (len(traces()) - 2, 1)


def named(file: Path, rows: int) -> None:
    """Give a file the name of a shard."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    file.rename(file.with_name(f"{time.time_ns():020d}-{rows}-{digest}.parquet"))


# ---- which bundles


def test_a_damaged_bundle_is_refused_by_its_version(tmp_path: Path) -> None:
    root = copied(tmp_path / "bundles")
    live = open_live(root).bundle
    assert live is not None
    assert open_version(root, SHIPPED) == live
    router = live.router
    assert router is not None
    (router / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=f"bundle {SHIPPED} is damaged: .*config.json"):
        open_version(root, SHIPPED)
    with pytest.raises(ConfigError, match="no bundle 0000000000000000 can be read"):
        open_version(root, "0" * 16)
