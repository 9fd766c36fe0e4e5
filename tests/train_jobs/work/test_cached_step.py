"""Cached steps: resumed for the same inputs, started afresh for others, done once."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from train_jobs.work.cached_step import CachedStep, fingerprint


def test_what_an_interrupted_run_left_is_there_for_the_same_inputs_only(tmp_path: Path) -> None:
    directory = CachedStep(tmp_path / "stage", {"steps": 5}).start()
    (directory / "half").write_text("made")
    assert (CachedStep(tmp_path / "stage", {"steps": 5}).start() / "half").exists()
    assert not (CachedStep(tmp_path / "stage", {"steps": 6}).start() / "half").exists()


def test_done_is_for_the_inputs_it_was_done_for(tmp_path: Path) -> None:
    step = CachedStep(tmp_path / "stage", {"steps": 5})
    assert not step.done
    step.start()
    assert not step.done
    step.finish(1.5)
    assert step.done
    assert step.seconds == 1.5
    assert CachedStep(tmp_path / "stage", {"steps": 5}).done
    assert not CachedStep(tmp_path / "stage", {"steps": 6}).done


def test_what_is_half_deleted_for_other_inputs_is_of_no_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = CachedStep(tmp_path / "stage", "A")
    (step.start() / "shard").touch()
    step.finish(1.0)

    def interrupted(directory: Path) -> None:
        (directory / "shard").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", interrupted)
        with pytest.raises(KeyboardInterrupt):
            CachedStep(tmp_path / "stage", "B").start()
    assert not step.done
    assert not any(file.name == ".done" for file in step.start().iterdir())


def test_files_of_a_step_that_is_done_can_be_read_by_whom_the_umask_lets_read(tmp_path: Path) -> None:
    """safetensors leaves a file to its owner alone."""
    step, before = CachedStep(tmp_path / "align", 1), os.umask(0o027)
    try:
        file = step.start() / "adapter_model.safetensors"
        save_file({"weight": np.ones(3, np.float32)}, file)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        step.finish(1.0)
    finally:
        os.umask(before)
    found = {file.name: stat.S_IMODE(file.stat().st_mode) for file in step.directory.iterdir()}
    assert found == {".made-for": 0o640, ".done": 0o640, "adapter_model.safetensors": 0o640}


def test_the_order_of_settings_does_not_matter(tmp_path: Path) -> None:
    assert CachedStep(tmp_path, {"a": 1, "b": 2}).key == CachedStep(tmp_path, {"b": 2, "a": 1}).key


def test_a_fingerprint_tells_when_a_file_was_written_again(tmp_path: Path) -> None:
    (tmp_path / "weights").write_text("one")
    before = fingerprint(tmp_path)
    assert fingerprint(tmp_path) == before
    (tmp_path / "weights").write_text("other")
    assert fingerprint(tmp_path) != before
