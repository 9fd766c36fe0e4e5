"""Where a made draft is put: checked before any work, and taken by renames that lose neither draft."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from core.errors import ConfigError
from train_jobs.retrain.draft_place import DraftPlace


def draft(directory: Path, weights: str) -> Path:
    directory.mkdir(parents=True)
    (directory / "model.safetensors").write_text(weights)
    (directory / "config.json").write_text("{}")
    return directory


def weights(place: DraftPlace) -> str:
    return (place.directory / "model.safetensors").read_text()


def test_a_draft_takes_a_free_place_then_that_of_an_earlier_one(tmp_path: Path) -> None:
    one, other, place = draft(tmp_path / "1", "one"), draft(tmp_path / "2", "other"), tmp_path / "new" / "made"
    here = DraftPlace(place, tmp_path / "work")
    assert here.free
    assert not here.has(one)
    place.mkdir()
    assert here.free  # an empty directory is
    for each in (one, other, one):
        here.put(each)
        assert weights(here) == (each / "model.safetensors").read_text()
        assert here.has(each)
        assert not here.free
    assert not here.has(other)
    assert [file.name for file in place.parent.iterdir()] == ["made"]


STEPS = ["rmtree", "rmtree", "copytree", "rename", "rename", "rmtree"]  # of putting a draft in the place of another


@pytest.mark.parametrize("killed_at", range(len(STEPS)))
def test_a_kill_at_any_step_loses_neither_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: int
) -> None:
    place, done = DraftPlace(draft(tmp_path / "made", "old"), tmp_path / "work"), list[str]()
    new = draft(tmp_path / "new", "new")

    def killing(original: Callable[..., object], name: str) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            done.append(name)
            if len(done) > killed_at:
                raise KeyboardInterrupt
            return original(*arguments, **options)

        return call

    with monkeypatch.context() as patched:
        for of, name in ((shutil, "rmtree"), (shutil, "copytree"), (Path, "rename")):
            patched.setattr(of, name, killing(getattr(of, name), name))
        with pytest.raises(KeyboardInterrupt):
            place.put(new)
    assert done == STEPS[: killed_at + 1]
    again = DraftPlace(place.directory, tmp_path / "work")
    assert weights(again) == ("new" if killed_at == 5 else "old")
    again.put(new)
    assert weights(again) == "new"
    assert {file.name for file in tmp_path.iterdir()} == {"made", "new"}


@pytest.mark.parametrize("name", ["work", "work/draft", ".", "work/../link/draft", "link/draft"])
def test_it_lies_apart_from_the_work_directory(tmp_path: Path, name: str) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "work")
    for work in (tmp_path / "work", tmp_path / "link", tmp_path / ".." / tmp_path.name / "work"):
        with pytest.raises(ConfigError, match=r"draft: .* must be apart; write another directory"):
            DraftPlace(tmp_path / name, work)


def test_a_place_that_cannot_be_written_is_told_of_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"draft: nothing can be written into .*file \(.*\); write another directory"):
        DraftPlace(tmp_path / "file" / "made", tmp_path / "work")
    with pytest.raises(ConfigError, match="draft: /proc is a mount point; write a directory in it"):
        DraftPlace(Path("/proc"), tmp_path / "work")


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "made")
    DraftPlace(tmp_path / "link", tmp_path / "work").put(draft(tmp_path / "new", "new"))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "link" / "model.safetensors").read_text() == "new"
