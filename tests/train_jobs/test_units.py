"""Pieces of work on disk: resumed for the same inputs, begun again for others, done once."""

from __future__ import annotations

from pathlib import Path

from train_jobs.units import Unit, fingerprint


def test_what_an_interrupted_run_left_is_there_for_the_same_inputs_only(tmp_path: Path) -> None:
    directory = Unit(tmp_path / "stage", {"steps": 5}).start()
    (directory / "half").write_text("made")
    assert (Unit(tmp_path / "stage", {"steps": 5}).start() / "half").exists()
    assert not (Unit(tmp_path / "stage", {"steps": 6}).start() / "half").exists()


def test_done_is_for_the_inputs_it_was_done_for(tmp_path: Path) -> None:
    unit = Unit(tmp_path / "stage", {"steps": 5})
    assert not unit.done
    unit.start()
    assert not unit.done
    unit.finish(1.5)
    assert unit.done
    assert unit.seconds == 1.5
    assert Unit(tmp_path / "stage", {"steps": 5}).done
    assert not Unit(tmp_path / "stage", {"steps": 6}).done


def test_the_order_of_settings_does_not_matter(tmp_path: Path) -> None:
    assert Unit(tmp_path, {"a": 1, "b": 2}).key == Unit(tmp_path, {"b": 2, "a": 1}).key


def test_a_fingerprint_tells_when_a_file_was_written_again(tmp_path: Path) -> None:
    (tmp_path / "weights").write_text("one")
    before = fingerprint(tmp_path)
    assert fingerprint(tmp_path) == before
    (tmp_path / "weights").write_text("other")
    assert fingerprint(tmp_path) != before
