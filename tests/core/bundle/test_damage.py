"""Damage, kills and full disks: what is served is a bundle just as it was published, or none."""

from __future__ import annotations

import errno
import os
import random
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.bundle.manifest import Manifest
from core.bundle.store import list_bundles, open_live, show
from tests.core.bundle.bundles import content, file_of, killed_writers, publish_adapters, served
from tests.examples import examples

# ---- damage


def test_a_corrupt_part_is_not_served_and_says_why(tmp_path: Path) -> None:
    root = tmp_path / "root"
    old, new = (publish_adapters(root, tmp_path, number) for number in (1, 2))
    part = new.slots["math"].part
    file = file_of(root, part)
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)
    live = open_live(root)
    assert live.bundle is not None
    assert live.bundle.manifest == old
    assert part is not None
    [problem] = live.problems
    assert (problem.file, problem.expected) == (str(file), new.parts[part][file.name])
    assert problem.actual == content(file.parent)[file.name]
    assert [one.version for one in list_bundles(root) if one.live] == [old.version]


def test_missing_and_added_files_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = tmp_path / "root"
    only = publish_adapters(root, tmp_path, 1)
    missing = file_of(root, only.slots["math"].part, "adapter_config.json")
    missing.unlink()
    added = file_of(root, only.slots["code"].part, "more.safetensors")
    added.write_bytes(b"")
    live = open_live(root)
    assert live.bundle is None
    found = {problem.file: (problem.expected, problem.actual) for problem in live.problems}
    assert found.keys() == {str(missing), str(added)}
    assert found[str(missing)][1] == "No such file or directory"
    assert found[str(added)] == ("no such file", "one")
    assert str(missing) in caplog.text
    assert "served is the draft as it is" in caplog.text


def test_publishing_again_repairs(tmp_path: Path) -> None:
    root = tmp_path / "root"
    only = publish_adapters(root, tmp_path, 1)
    file_of(root, only.slots["math"].part).write_bytes(b"")
    shutil.rmtree(file_of(root, only.slots["code"].part).parent)
    (root / "manifests" / f"{only.version}.json").write_bytes(b"{")
    assert publish_adapters(root, tmp_path, 1).version == only.version
    assert served(root).version == only.version
    assert open_live(root).problems == ()


@pytest.mark.parametrize(
    ("stated", "instead"),
    [("better", "better!"), ("0.8", "0.9"), ('"math"', '"chess"'), ("target-13b", "target-70b"), ('"task"', '"live"')],
)
def test_a_manifest_that_says_something_else_is_not_served(tmp_path: Path, stated: str, instead: str) -> None:
    root = tmp_path / "root"
    old, new = (publish_adapters(root, tmp_path, number) for number in (1, 2))
    file = root / "manifests" / f"{new.version}.json"
    assert stated in file.read_text()
    file.write_text(file.read_text().replace(stated, instead, 1))
    live = open_live(root)
    assert live.bundle is not None
    assert live.bundle.manifest == old
    [problem] = live.problems
    assert (problem.file, problem.expected) == (str(file), f"version {new.version}")


def damage(raw: bytes, kind: str, at: float, bit: int) -> bytes:
    place = min(int(at * len(raw)), len(raw) - 1)
    if kind == "cut":
        return raw[:place]
    return raw[:place] + bytes([raw[place] ^ 1 << bit]) + raw[place + 1 :]


@pytest.fixture(scope="module")
def two_bundles(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Manifest]]:
    work = tmp_path_factory.mktemp("damage")
    return work / "root", [publish_adapters(work / "root", work, number) for number in (1, 2)]


@settings(max_examples=examples(250), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    which=st.integers(0, 99),
    kind=st.sampled_from(["flip", "flip", "cut"]),
    at=st.floats(0, 1, exclude_max=True),
    bit=st.integers(0, 7),
)
def test_no_damaged_byte_is_ever_served(
    two_bundles: tuple[Path, list[Manifest]], which: int, kind: str, at: float, bit: int
) -> None:
    root, published = two_bundles
    files = [file for file in sorted(root.rglob("*")) if file.is_file() and file.stat().st_size]
    file = files[which % len(files)]
    sound = file.read_bytes()
    try:
        file.write_bytes(damage(sound, kind, at, bit))
        live = open_live(root)
        if live.bundle is not None:
            now = live.bundle.manifest
            then = {one.version: one for one in published}[now.version]
            assert msgspec.structs.replace(now, created=then.created) == then
            for part, table in now.parts.items():
                assert content(root / "parts" / part) == table
        damaged_part = file.parent.name
        assert (live.bundle is None) == (damaged_part in published[0].parts.keys() & published[1].parts.keys())
        if damaged_part in published[1].parts:
            assert str(file) in {problem.file for problem in live.problems}
    finally:
        file.write_bytes(sound)
    assert served(root) == published[1]


# ---- kills and full disks


@pytest.fixture
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """fsync matters only for a power failure, and takes most of the time of a test that kills."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def whole(root: Path) -> None:
    """Check that nothing visible is half-written: the parts of all manifests exist and match their digests."""
    for one in list_bundles(root):
        for part, table in show(root, one.version).parts.items():
            assert content(root / "parts" / part) == table


@pytest.mark.usefixtures("no_fsync")
def test_a_publisher_killed_at_any_point_leaves_the_last_good_bundle(tmp_path: Path) -> None:
    root = tmp_path / "root"
    after = publish_adapters(tmp_path / "undisturbed", tmp_path, 1).version
    seen = []
    with killed_writers("bundle", root) as writers:
        for point in range(1, 500):
            before = publish_adapters(root, tmp_path, 0).version
            finished = not writers.killed(f"at {point}")
            live = open_live(root)
            assert live.problems == ()
            assert live.bundle is not None
            seen.append(live.bundle.manifest.version)
            whole(root)
            assert publish_adapters(root, tmp_path, 1).version == after
            assert served(root).version == after
            assert not [path for path in root.rglob("*") if path.name.startswith(".aside-")]
            shutil.rmtree(root)
            if finished:
                break
    assert finished
    assert len(seen) > 20
    assert set(seen[: seen.index(after)]) == {before}
    assert set(seen[seen.index(after) :]) == {after}


@pytest.mark.usefixtures("no_fsync")
def test_the_first_publisher_killed_at_any_point_leaves_nothing_live(tmp_path: Path) -> None:
    root = tmp_path / "root"
    publish_adapters(root, tmp_path, 1)
    seen = []
    with killed_writers("bundle", root) as writers:
        for point in range(1, 500, 3):
            shutil.rmtree(root, ignore_errors=True)
            finished = not writers.killed(f"at {point}")
            live = open_live(root)
            assert live.problems == ()
            seen.append(live.bundle is not None)
            if finished:
                break
    assert seen == sorted(seen)
    assert not seen[0]
    assert seen[-1]


@pytest.mark.usefixtures("no_fsync")
def test_publishers_killed_at_random_leave_one_of_their_bundles(tmp_path: Path) -> None:
    root = tmp_path / "root"
    versions = {publish_adapters(tmp_path / "undisturbed", tmp_path, number).version for number in range(4)}
    publish_adapters(root, tmp_path, 0)
    rng = random.Random(5)
    with killed_writers("bundle", root) as writers:
        for _ in range(25):
            assert writers.killed(f"for {rng.uniform(0.001, 0.05)}")
            live = open_live(root)
            assert live.problems == ()
            assert live.bundle is not None
            assert live.bundle.manifest.version in versions
            whole(root)


def test_everything_is_on_disk_before_it_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[int] = set()
    shown: list[str] = []
    fsync, rename = os.fsync, os.rename

    def record_sync(descriptor: int) -> None:
        synced.add(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    def checked_rename(source: Any, to: Any, **options: Any) -> None:
        written = [Path(source), *Path(source).rglob("*")]
        assert {path.stat().st_ino for path in written} <= synced
        shown.append(Path(to).relative_to(tmp_path / "root").parts[0])
        rename(source, to, **options)

    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, checked_rename)
    monkeypatch.setattr(os, "fsync", record_sync)
    publish_adapters(tmp_path / "root", tmp_path, 1)
    assert shown == ["parts"] * 3 + ["manifests", "live"]


def test_a_full_disk_leaves_what_was_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    versions = [publish_adapters(root, tmp_path, 0).version]
    fsync = os.fsync
    for room in range(100):
        calls = iter(range(room))

        def full(descriptor: int, calls: Any = calls) -> None:
            if next(calls, None) is None:
                raise OSError(errno.ENOSPC, "No space left on device")
            fsync(descriptor)

        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            try:
                publish_adapters(root, tmp_path, 1)
                break
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
        versions.append(served(root).version)
        assert open_live(root).problems == ()
        assert not list((root / "manifests").glob(".aside-*"))
    assert room > 10
    assert versions.count(versions[0]) > 10
    assert served(root).version != versions[0]
