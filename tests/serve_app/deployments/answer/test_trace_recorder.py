"""A finished answer becomes a trace that has everything of it; the ingress records each choice once."""

from __future__ import annotations

import stat
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import psutil  # type: ignore[import-untyped]
import pytest

from core.errors import ConfigError
from core.generation import GenerationRequest, Run
from core.sampling.params import SamplingParams
from core.settings import parse_settings
from core.traces.memory_files import marked
from core.traces.store import Proposals, Trace, TraceStore
from serve_app.config import ServiceConfig, Traces
from serve_app.deployments.actors.ingress import SpeculativeIngress
from serve_app.deployments.answer.answers import Answers, OpenAnswer
from serve_app.deployments.answer.generation import Generation
from serve_app.deployments.answer.trace_recorder import TraceRecorder
from serve_app.deployments.models.served_models import ServedModels
from serve_app.http.service import ChoiceRun, Speculation
from serve_app.spans import Spans
from tests.core.traces.memory import memory_directory

PARAMS = SamplingParams(seed=5, max_tokens=9, temperature=0.5, stop=("END",), logit_bias={3: 1.5})
RUNS = (
    ChoiceRun(0, Run((7,)), "general"),
    ChoiceRun(1, Run((8,)), "general"),
    ChoiceRun(0, Run((9, 10, 11), proposed=4, accepted=2), "math"),
    ChoiceRun(1, Run((1,), finish_reason="stop"), "general"),
    ChoiceRun(0, Run((12,), proposed=3, accepted=0, source="own_text"), "math"),
    ChoiceRun(0, Run((13,), finish_reason="length"), "math"),
)


def requests(*, store: bool = True, owner: str | None = "digest of a key") -> list[GenerationRequest]:
    return [
        GenerationRequest(tokens=(5, 6), prompt_length=2, params=PARAMS, choice=choice, owner=owner, store=store)
        for choice in range(2)
    ]


def test_the_grammar_of_an_answer_is_not_part_of_its_trace() -> None:
    held = msgspec.structs.replace(requests()[0], params=msgspec.structs.replace(PARAMS, grammar='start: "a client"'))
    assert Trace.of(held, (7,)).params == PARAMS


def recorder(directory: Path) -> TraceRecorder:
    return TraceRecorder(Traces(directory=directory))


def served() -> ServedModels:
    content = {"name": "m", "target": {"model": "family:target"}, "draft": {"model": "family:draft"}}
    config = parse_settings(content, ServiceConfig, "configuration")
    return ServedModels(config, drafts={"general": None, "math": "/bundles/parts/abcd"}, version="v7")


class Calls:
    """As `VerifierCalls`, whose verifier gives the same runs to everyone."""

    def __init__(self, fails_after: int | None = None) -> None:
        self._fails_after = fails_after
        self.place = nullcontext

    async def runs(self, _: Generation, _place: object, answer: OpenAnswer) -> AsyncGenerator[ChoiceRun, None]:
        drafts = SimpleNamespace(prior={"math": 0.9, "general": 0.1}, observe=lambda *_: None, close=lambda: None)
        if answer.drafts is not None:
            answer.drafts.close()
            answer.drafts = cast(Any, drafts)
        for run in RUNS[: self._fails_after]:
            drafts.task = lambda _, task=run.task: task
            yield answer.enter(run.choice, run.run)
        if self._fails_after is not None:
            raise RuntimeError("the engine failed")


def answers(traces: TraceRecorder, fails_after: int | None = None) -> Answers:
    return Answers(served(), cast(Any, Calls(fails_after)), traces)


async def generated(answers: Answers, requests: list[GenerationRequest], speculation: Speculation) -> list[ChoiceRun]:
    return [run async for run in answers.generate(requests, speculation)]


def traces(directory: Path) -> list[Trace]:
    return sorted(TraceStore(directory), key=lambda trace: trace.choice)


async def test_every_choice_is_a_trace_with_all_that_is_known_of_it(tmp_path: Path) -> None:
    kept = recorder(tmp_path)
    before = time.time()
    assert await generated(answers(kept), requests(), Speculation()) == list(RUNS)
    kept.close()
    first, second = traces(tmp_path)
    assert first.ended_at is not None
    assert before <= first.ended_at <= time.time()
    assert first.first_token_s is not None
    assert first.total_s is not None
    assert 0 <= first.first_token_s <= first.total_s < 60
    assert msgspec.structs.replace(first, first_token_s=None, total_s=None, ended_at=None) == Trace(
        prompt_ids=(5, 6),
        output_ids=(7, 9, 10, 11, 12, 13),
        params=PARAMS,
        choice=0,
        constrained=False,
        task="math",
        prior={"math": 0.9, "general": 0.1},
        bundle="v7",
        adapter="abcd",
        proposed=7,
        accepted=2,
        sources={"draft": Proposals(4, 2), "own_text": Proposals(3, 0)},
        target_passes=3,
    )
    assert (second.choice, second.output_ids, second.target_passes) == (1, (8, 1), 1)
    assert (second.task, second.adapter, second.proposed, second.sources) == ("general", None, 0, {})


async def test_a_request_without_speculation_has_no_prior(tmp_path: Path) -> None:
    kept = recorder(tmp_path)
    await generated(answers(kept), requests(), Speculation(enabled=False))
    kept.close()
    assert [trace.prior for trace in traces(tmp_path)] == [None, None]


async def test_what_must_not_be_stored_is_not(tmp_path: Path) -> None:
    kept = recorder(tmp_path)
    await generated(answers(kept), requests(store=False), Speculation())
    kept.close()
    assert traces(tmp_path) == []


@pytest.mark.parametrize(("fails_after", "finished"), [(3, []), (5, [1])])
async def test_only_answers_that_ended_are_kept(tmp_path: Path, fails_after: int, finished: list[int]) -> None:
    kept = recorder(tmp_path)
    with pytest.raises(RuntimeError):
        await generated(answers(kept, fails_after), requests(), Speculation())
    kept.close()
    assert [trace.choice for trace in traces(tmp_path)] == finished


async def test_a_client_that_leaves_after_the_last_token_was_sent_has_its_answer_kept(tmp_path: Path) -> None:
    kept = recorder(tmp_path)
    runs = answers(kept).generate(requests(), Speculation())
    async for run in runs:
        if run == RUNS[-1]:
            break
    await runs.aclose()
    kept.close()
    assert len(traces(tmp_path)) == 2


async def test_nothing_tells_whose_an_answer_is(tmp_path: Path) -> None:
    kept = recorder(tmp_path)
    await generated(answers(kept), requests(), Speculation())
    kept.close()
    assert not any("digest" in str(trace) for trace in traces(tmp_path))


async def test_in_memory_a_client_has_so_many_answers_kept_in_a_private_directory() -> None:
    with memory_directory() as memory:
        directory = memory / "traces"
        kept = TraceRecorder(Traces(directory=directory, in_memory=True, per_key=3))
        assert marked(directory)
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        for owner in ("one", "other", None):
            for _ in range(4):
                await generated(answers(kept), requests(owner=owner), Speculation())
        kept.close()
        assert len(traces(directory)) == 9
        assert kept.counts() == {"written": 9, "shards": 1, "dropped_over_key": 15}


async def test_in_memory_of_an_answer_only_what_is_learned_from_is_kept() -> None:
    with memory_directory() as memory:
        kept = TraceRecorder(Traces(directory=memory, in_memory=True))
        before = time.time()
        await generated(answers(kept), requests(), Speculation())
        kept.close()
        first, _ = traces(memory)
        assert first.ended_at is not None
        assert first.ended_at % 60 == 0
        assert before - 60 < first.ended_at <= time.time()
        assert msgspec.structs.replace(first, ended_at=None) == Trace(
            prompt_ids=(5, 6),
            output_ids=(7, 9, 10, 11, 12, 13),
            params=msgspec.structs.replace(PARAMS, stop=()),
            choice=0,
            constrained=False,
            task="math",
            prior={"math": 0.9, "general": 0.1},
            bundle="v7",
            sources={"draft": Proposals(4, 2), "own_text": Proposals(3, 0)},
        )


def test_on_a_machine_whose_directory_is_on_a_disk_nothing_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    with memory_directory() as memory:
        checked = Traces(directory=memory / "traces", in_memory=True)
        monkeypatch.setattr(psutil, "disk_partitions", lambda **_: [SimpleNamespace(mountpoint="/", fstype="ext4")])
        with pytest.raises(ConfigError, match=r"traces\.directory: .* is on a file system of type ext4 here"):
            TraceRecorder(checked)
        assert not checked.directory.exists()


def test_a_directory_that_others_use_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"traces\.directory: /dev/shm is not only ours; write a new directory"):
        TraceRecorder(Traces(directory=Path("/dev/shm"), in_memory=True))


async def test_serve_ends_a_replica_once_what_waits_is_written(tmp_path: Path) -> None:
    """Serve calls `__del__` of its own class, which calls ours."""
    recorded = answers(recorder(tmp_path))
    await generated(recorded, requests(), Speculation())
    end = cast("Callable[[Any], None]", vars(SpeculativeIngress.__mro__[1])["__del__"])
    end(SimpleNamespace(_answers=recorded, _spans=Spans()))
    assert len(traces(tmp_path)) == 2
