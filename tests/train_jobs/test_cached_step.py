"""Cached steps: resumed for the same inputs, started afresh for others, done once."""

from __future__ import annotations

from pathlib import Path

from train_jobs.cached_step import CachedStep, fingerprint


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


def test_the_order_of_settings_does_not_matter(tmp_path: Path) -> None:
    assert CachedStep(tmp_path, {"a": 1, "b": 2}).key == CachedStep(tmp_path, {"b": 2, "a": 1}).key


def test_a_fingerprint_tells_when_a_file_was_written_again(tmp_path: Path) -> None:
    (tmp_path / "weights").write_text("one")
    before = fingerprint(tmp_path)
    assert fingerprint(tmp_path) == before
    (tmp_path / "weights").write_text("other")
    assert fingerprint(tmp_path) != before
