"""A retraining of answers that are kept in memory: what it refuses, leaves behind, and publishes."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
from rich.console import Console

from core.errors import ConfigError
from core.traces.memory_files import mark
from tests.core.traces.memory import memory_directory
from tests.train_jobs.small import SMALL
from tests.train_jobs.stages.test_partition import FIRST, partitioned
from tests.train_jobs.watching import answers, record
from train_jobs.config import RetrainConfig
from train_jobs.retrain import pipeline
from train_jobs.retrain.make_draft import make_draft
from train_jobs.retrain.pipeline import retrain
from train_jobs.stages import STAGES
from train_jobs.watch import watch as watch_module
from train_jobs.watch.watch import Watch
from train_jobs.watch.watched_traces import freeze
from train_jobs.work.workspace import Workspace

CONSOLE = Console(file=StringIO())


@pytest.fixture
def memory() -> Iterator[Path]:
    with memory_directory() as directory:
        yield directory


def config(home: Path, **changes: Any) -> RetrainConfig:
    """Of traces in memory, with few prompts: the pipeline refuses those before it needs a cluster."""
    places = {name: str(home / name) for name in ("work", "bundles")}
    traces = home / "traces"
    record(traces, answers(2))
    mark(traces)
    return RetrainConfig(**SMALL | places | {"collect": {"traces": str(traces)}} | changes)


def left(work: Path) -> set[str]:
    return {str(file.relative_to(work)) for file in work.rglob("*") if file.is_file()}


# ---- what is refused


def test_a_work_directory_on_a_disk_is_refused_before_anything_is_written(
    memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk(monkeypatch)
    settings = config(memory, work=str(tmp_path / "work"))
    settings.work.mkdir()
    told = rf"work: {tmp_path}/work is on a file system of type ext4, .* write work: /dev/shm/taskspec/work"
    for refused in (
        lambda: retrain(settings, STAGES, CONSOLE),
        lambda: watch_module.watch(settings, CONSOLE),
        lambda: Watch(settings, CONSOLE).retrain("drift"),
    ):
        with pytest.raises(ConfigError, match=told):
            refused()
    assert left(tmp_path) <= {"work/watch.json"}
    assert not list(tmp_path.rglob("*.parquet"))


def on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine that a test runs on may have its temporary files in memory."""
    known = [("/", "ext4"), ("/dev/shm", "tmpfs")]
    found = [type("Mount", (), {"mountpoint": place, "fstype": kind}) for place, kind in known]
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: found)


def test_traces_that_are_not_marked_may_be_learned_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk(monkeypatch)
    settings = config(tmp_path)
    (tmp_path / "traces" / ".in-memory").unlink()
    with pytest.raises(ConfigError, match="collect: no prompts for"):
        retrain(settings, STAGES, CONSOLE)
    assert (settings.work / "collect").is_dir()


def test_a_watch_that_began_before_the_answers_were_marked_ends_at_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk(monkeypatch)
    settings = RetrainConfig(
        **SMALL | {"work": str(tmp_path / "work"), "collect": {"traces": str(tmp_path / "traces")}}
    )
    settings.work.mkdir()
    watch = Watch(settings, CONSOLE)
    watch.turn()
    (settings.work / "watch.json").unlink()
    config(tmp_path)
    with pytest.raises(ConfigError, match="is on a file system of type ext4"):
        watch.turn()
    assert left(settings.work) == set()


def test_a_work_directory_that_others_use_is_refused(memory: Path) -> None:
    with pytest.raises(ConfigError, match="work: /dev/shm is not only ours; write a new directory"):
        retrain(config(memory, work="/dev/shm"), STAGES, CONSOLE)


def test_a_single_stage_and_a_draft_from_such_answers_are_refused(memory: Path) -> None:
    settings = config(memory)
    with pytest.raises(ConfigError, match="a stage alone would leave some behind: use `taskspec retrain`"):
        retrain(settings, ("collect",), CONSOLE)
    with pytest.raises(ConfigError, match=r"collect\.traces: .* write `files` in place of `traces`"):
        make_draft(settings, CONSOLE)
    assert not settings.work.exists()


# ---- what is left


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt(), SystemExit(15)])
def test_however_it_ends_only_the_report_is_left_in_a_private_directory(
    memory: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """A fault in a late stage, when all others have left their results."""
    settings = config(memory)

    def ends(work: Workspace, name: str, *_: object) -> None:
        directory = work.steps[name].start()  # type: ignore[index]
        (directory / "deeper").mkdir()
        (directory / "deeper" / "result").write_text("a prompt, or figures")
        if name == "report":
            raise error

    monkeypatch.setattr(pipeline, "run_stage", ends)
    with pytest.raises(type(error)):
        retrain(settings, STAGES, CONSOLE)
    assert left(settings.work) == {".lock", "report/.made-for", "report/deeper/result"}
    assert {child.name for child in settings.work.iterdir()} == {".lock", "report"}
    assert stat.S_IMODE(settings.work.stat().st_mode) == 0o700


def test_what_a_killed_run_left_is_gone_after_the_next(memory: Path) -> None:
    settings = config(memory)
    for name in ("collect", "partition", "evaluate"):
        (settings.work / name).mkdir(parents=True)
        (settings.work / name / "left").write_text("a prompt")
    with pytest.raises(ConfigError, match="collect: no prompts for"):
        retrain(settings, STAGES, CONSOLE)
    assert left(settings.work) == {".lock"}


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_watch_forgets_what_a_retraining_learned_from(
    memory: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    seen = list[set[str]]()

    def ends(run: RetrainConfig, *_: object) -> None:
        assert run.collect.traces is not None
        seen.append(left(run.collect.traces))
        raise error

    monkeypatch.setattr(watch_module, "retrain", ends)
    settings = config(memory)
    settings.work.mkdir()
    watch = Watch(settings, CONSOLE)
    with suppress(KeyboardInterrupt):
        watch.retrain("drift")
    [frozen] = seen
    assert ".in-memory" in frozen
    assert sum(name.endswith(".parquet") for name in frozen) == 1
    assert left(settings.work) == {"watch.json"}
    if isinstance(error, KeyboardInterrupt):  # the same command goes on, from the answers of then
        again = Watch(settings, CONSOLE)
        with suppress(KeyboardInterrupt):
            again.resume()
        assert len(seen) == 2


def test_links_to_such_traces_are_marked_and_others_are_not(memory: Path) -> None:
    config(memory)
    freeze(memory / "traces", memory / "work" / "traces")
    assert (memory / "work" / "traces" / ".in-memory").exists()
    record(memory / "others", answers(1))
    freeze(memory / "others", memory / "work" / "others")
    assert not (memory / "work" / "others" / ".in-memory").exists()


# ---- what is published


def test_tasks_are_not_named_by_words_of_prompts(memory: Path, tmp_path: Path) -> None:
    mark(memory)
    usual = partitioned(tmp_path / "usual", FIRST)
    named = usual.tasks().names
    assert {word for name in named for word in name.split("-")} <= set(" ".join(FIRST.values()).split())
    kept = partitioned(tmp_path / "kept", FIRST, collect={"traces": memory})
    assert kept.tasks().names == ("task-0", "task-1")
    assert usual.words().keys() == set(named)
    assert kept.words() == {}
