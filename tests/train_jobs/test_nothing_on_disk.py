"""Nothing of a prompt is on a disk after a whole retraining of answers kept in memory; a search for them shows it.

The same search finds them in the files of an ordinary retraining.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import save_file

from core.atomic_files import replace
from core.bundle.store import open_live
from core.generation import GenerationRequest, Run
from core.settings import parse_settings
from core.text.prompt_files import read_prompts
from core.traces.store import Trace, parquet_of
from serve_app.config import ServiceConfig, Traces
from serve_app.deployments.answer.generation import Generation
from serve_app.deployments.answer.trace_recorder import TraceRecorder
from serve_app.deployments.models.served_models import ServedModels
from serve_app.http.service import ChoiceRun
from tests.core.traces.memory import memory_directory
from tests.train_jobs import learned_from
from tests.train_jobs.retraining import ENVIRONMENT, TINY
from tests.train_jobs.searching import Lookout, Needles, of_text, of_tokens, search
from tests.train_jobs.small import SMALL
from tests.train_jobs.watching import answers
from train_jobs.config import RetrainConfig
from train_jobs.prompts.sources import unanswered
from train_jobs.stages.collect import Answerer
from train_jobs.work.models import context, target_tokenizer


@pytest.fixture
def memory() -> Iterator[Path]:
    with memory_directory() as directory:
        yield directory


SECRET = "Zyxgorb flimwack quondrel"
WORDS = ("zyxgorb", "flimwack", "quondrel")


@pytest.fixture(scope="module")
def secret() -> list[int]:
    """Its tokens, those at its ends aside, which may depend on what is beside it."""
    tokens = target_tokenizer(RetrainConfig(**SMALL)).encode_answer(f" {SECRET}")[1:-1]
    assert len(tokens) >= 6
    return tokens


def test_the_search_finds_each_form_and_no_other(tmp_path: Path, secret: list[int]) -> None:
    tokens = of_tokens(secret)
    for name, needle in {**tokens, **of_text(SECRET)}.items():
        (tmp_path / "file").write_bytes(b"before" + needle + b"after")
        assert name in search([tmp_path], {**tokens, **of_text(SECRET)})
    (tmp_path / "file").write_bytes(np.array(secret[::-1], "<i4").tobytes() + SECRET[::-1].encode())
    assert search([tmp_path], {**tokens, **of_text(SECRET)}) == {}


def test_the_search_finds_tokens_in_the_files_of_a_retraining(tmp_path: Path, secret: list[int]) -> None:
    trace = Trace(prompt_ids=(1, *secret, 2), output_ids=(3,), params=answers(1)[0].params)
    files = {name: tmp_path / name for name in ("shard", "set", "numbers", "checkpoint")}
    replace(files["shard"], parquet_of([trace]))
    save_file({"tokens": torch.tensor([1, *secret], dtype=torch.int32)}, files["set"])
    np.savez_compressed(files["numbers"].open("wb"), ids=np.array([0, *secret]))
    torch.save({"ids": torch.tensor(secret)}, files["checkpoint"])
    found = search([tmp_path], of_tokens(secret))
    assert {file for where in found.values() for file in where} == set(files.values())


def test_a_lookout_sees_a_file_that_comes_and_goes(tmp_path: Path) -> None:
    with Lookout([tmp_path], of_text(SECRET), every=0.01) as lookout:
        (tmp_path / "file").write_text(SECRET)
        assert lookout.seen.wait(60)
        (tmp_path / "file").unlink()
    assert {file for _, file in lookout.found} == {tmp_path / "file"}


# ---- the whole

SERVICE = {"name": "m", "target": {"model": "family:target"}, "draft": {"model": "family:draft"}}
NAMES = ("bundles", "ray", "home", "temporary")


class Learned(NamedTuple):
    """A retraining, the traces of which had the secret in their prompts: where its files are, and what was on disk."""

    home: Path
    work: Path
    traces: Path
    needles: Needles
    passing: set[tuple[str, Path]]


def recorded(directory: Path, *, in_memory: bool) -> list[Trace]:
    """What a service keeps of answers to prompts of two tasks, all of one task with the secret."""
    file = yaml.safe_load(TINY.read_text())
    settings = RetrainConfig(**file)
    prompts = [prompt for file in settings.collect.files or () for prompt in read_prompts(file)][:150]
    told = [
        prompt
        if prompt.task == "chinese"
        else type(prompt)(messages=tuple(_with_secret(message) for message in prompt.messages or ()), task=prompt.task)
        for prompt in prompts
    ]
    collect = settings.collect.model_copy(update={"max_tokens": 24})
    size = context(settings.target.model)
    asked = list(unanswered(told, collect, target_tokenizer(settings), size))
    found = Answerer(settings, directory, size, lambda *_: None).answers("answers", asked)
    recorder = TraceRecorder(Traces(directory=directory, in_memory=in_memory))
    models = ServedModels(parse_settings(SERVICE, ServiceConfig, "configuration"), version="v7")
    for number, trace in enumerate(found):
        _record(recorder, models, trace, f"client {number % 7}")
    recorder.close()
    return found


def _with_secret(message: Any) -> Any:
    return type(message)(role=message.role, content=f"{message.content} {SECRET} {SECRET}")


def _record(recorder: TraceRecorder, models: ServedModels, trace: Trace, owner: str) -> None:
    request = GenerationRequest(
        tokens=trace.prompt_ids, prompt_length=trace.prompt_length, params=trace.params, owner=owner
    )
    generation = Generation([request])
    generation.ledger.add(ChoiceRun(0, Run(trace.output_ids, finish_reason="stop"), "general"))
    recorder.record(generation, 0, models, None)


def needles_of(traces: Sequence[Trace], secret: Sequence[int]) -> Needles:
    """The secret, and tokens from the middle of some prompts and answers."""
    long = [trace for trace in traces if trace.prompt_length >= 30 and len(trace.output_ids) >= 20][:5]
    assert len(long) == 5
    found: dict[str, bytes] = {}
    for text in (SECRET, SECRET.lower(), *WORDS):
        found |= of_text(text)
    for tokens in (secret, *(trace.prompt_ids[8:20] for trace in long), *(trace.output_ids[4:16] for trace in long)):
        found |= of_tokens(list(tokens))
    return found


def learned(home: Path, place: Path, secret: Sequence[int], *, in_memory: bool) -> Learned:
    """Retrain from traces in `place`, with everything that may write to a disk below `home`."""
    traces, work = place / "traces", place / "work"
    needles = needles_of(recorded(traces, in_memory=in_memory), secret)
    settings = yaml.safe_load(TINY.read_text()) | {"work": str(work), "bundles": str(home / "bundles")}
    settings["collect"] = {"traces": str(traces), "held_out_share": 0.4, "shard": 64}
    settings["align"] |= {"ranks": [4], "steps": 4, "evaluate_every": 2, "worker": {"at_once": 1}}
    for name in NAMES:
        (home / name).mkdir()
    file = home / "learn.yaml"
    file.write_text(yaml.safe_dump(settings))
    short = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # the paths of sockets are limited to 100 bytes
    own = {"HOME": str(home / "home"), "TMPDIR": str(home / "temporary"), "HF_HOME": str(home / "home" / "hf")}
    try:
        roots = [short, *(home / name for name in NAMES)]
        with Lookout(roots, needles) as lookout:
            outcome = subprocess.run(
                [sys.executable, learned_from.__file__, str(file), str(short)],
                env=ENVIRONMENT | own | {"PYTHONPATH": str(Path(__file__).parents[2]), "RAY_USAGE_STATS_ENABLED": "0"},
                capture_output=True,
                text=True,
                check=False,
            )
        assert outcome.returncode == 0, outcome.stdout + outcome.stderr
        assert any("session_" in str(seen) for seen in lookout.searched)
        shutil.copytree(short, home / "ray", dirs_exist_ok=True, symlinks=True, ignore=_sockets)
    finally:
        shutil.rmtree(short)
    return Learned(home, work, traces, needles, lookout.found)


def _sockets(directory: str, names: list[str]) -> list[str]:
    return [name for name in names if stat.S_ISSOCK(os.lstat(Path(directory, name)).st_mode)]


def everywhere(of: Learned) -> dict[str, list[Path]]:
    return search([of.home / name for name in NAMES] + [of.work], of.needles)


@pytest.mark.soak  # about three minutes on one core
def test_nothing_of_a_prompt_is_on_a_disk_or_left_in_memory(memory: Path, tmp_path: Path, secret: list[int]) -> None:
    found = learned(tmp_path, memory, secret, in_memory=True)
    bundle = open_live(tmp_path / "bundles").bundle
    assert bundle is not None
    assert set(bundle.manifest.evidence) <= {"task-0", "task-1"}
    assert b"number" in (tmp_path / "ray" / "objects").read_bytes()  # a column of what Ray Data embeds
    assert everywhere(found) == {}
    assert found.passing == set()
    assert {child.name for child in found.work.iterdir()} == {".lock", "report"}
    assert (found.work / "report" / "report.html").exists()
    assert search([found.traces], found.needles)  # the only place


@pytest.mark.soak  # about three minutes on one core
def test_the_same_search_finds_it_in_ordinary_traces_work_and_bundle(tmp_path: Path, secret: list[int]) -> None:
    home = tmp_path / "home"
    home.mkdir()
    found = learned(home, tmp_path, secret, in_memory=False)
    where = everywhere(found)
    files = {file for of_needle in where.values() for file in of_needle}
    stages = {file.relative_to(found.work).parts[0] for file in files if found.work in file.parents}
    assert {"collect", "partition", "report"} <= stages
    assert any("i4" in name for name in where)
    assert any(home / "bundles" in file.parents for file in files)
    assert search([found.traces], found.needles)
