"""Which directories are memory, and that one is made for its owner alone or refused."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil  # type: ignore[import-untyped]
import pytest

from core.traces.memory_files import disk_at, make_private, mark, marked
from tests.core.traces.memory import memory_directory


@pytest.fixture
def memory() -> Iterator[Path]:
    with memory_directory() as directory:
        yield directory


def mounted(monkeypatch: pytest.MonkeyPatch, *kinds: tuple[str, str]) -> None:
    found = [SimpleNamespace(mountpoint=place, fstype=kind) for place, kind in kinds]
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: found)


def test_shared_memory_is_memory_also_where_nothing_is_yet(memory: Path) -> None:
    assert disk_at(memory) is None
    assert disk_at(memory / "no" / "such" / "directory") is None


def test_the_nearest_mount_decides_and_of_two_at_one_place_the_later(monkeypatch: pytest.MonkeyPatch) -> None:
    mounted(monkeypatch, ("/", "ext4"), ("/fast", "ext4"), ("/fast", "tmpfs"), ("/fast/slow", "xfs"))
    kinds = {place: disk_at(Path(place)) for place in ("/", "/faster", "/fast", "/fast/a/b", "/fast/slow/a")}
    assert kinds == {"/": "ext4", "/faster": "ext4", "/fast": None, "/fast/a/b": None, "/fast/slow/a": "xfs"}


def test_a_place_that_no_mount_explains_counts_as_a_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    mounted(monkeypatch)
    assert disk_at(Path("/anywhere")) == "unknown"


def test_a_link_is_where_it_leads(memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted(monkeypatch, ("/", "ext4"), ("/dev/shm", "tmpfs"))
    (memory / "link").symlink_to(disk)
    (disk / "link").symlink_to(memory)
    assert disk_at(memory / "link") == "ext4"
    assert disk_at(disk / "link" / "x") is None


def test_a_private_directory_is_its_owners_alone_made_or_taken(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.mkdir(mode=0o755)
    for directory in (tmp_path / "a" / "b", taken):
        make_private(directory)
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_what_others_use_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = Path("/dev/shm").stat().st_mode
    with pytest.raises(OSError, match="/dev/shm is not only ours"):
        make_private(Path("/dev/shm"))
    assert Path("/dev/shm").stat().st_mode == shared
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(OSError, match="is not only ours"):
        make_private(tmp_path)


def test_a_mark_stays_with_its_directory(tmp_path: Path) -> None:
    assert not marked(tmp_path)
    mark(tmp_path)
    mark(tmp_path)
    assert marked(tmp_path)
    assert not marked(tmp_path / "none")
