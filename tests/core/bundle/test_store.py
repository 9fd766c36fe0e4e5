"""Bundles: publication is atomic, and only what was published is served, whatever happens to the disk."""

from __future__ import annotations

import errno
import json
import os
import pickle
import random
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.bundle import store as bundle
from core.bundle.manifest import Evidence, Manifest, MeasuredCosts
from core.bundle.store import Winner, diff, list_bundles, open_live, prune, publish, show
from core.errors import ConfigError
from tests.core.bundle.bundles import NAMES, adapter, content, killed_writers, publish_adapters
from tests.examples import examples


def served(root: Path) -> Manifest:
    """The live manifest, after a check that its adapters and router are as they were published."""
    live = open_live(root).bundle
    assert live is not None
    for directory in (live.router, *(live.directory(task) for task in live.manifest.slots)):
        assert directory is None or content(directory) == live.manifest.parts[directory.name]
    return live.manifest


def file_of(root: Path, part: str | None, name: str = "adapter_model.safetensors") -> Path:
    assert part is not None
    return root / "parts" / part / name


def test_nothing_published_is_nothing_live(tmp_path: Path) -> None:
    assert open_live(tmp_path / "nowhere") == bundle.Live(None)
    assert list_bundles(tmp_path / "nowhere") == []


def test_what_is_published_is_opened(tmp_path: Path) -> None:
    manifest = publish_adapters(tmp_path / "root", tmp_path, 1)
    assert served(tmp_path / "root") == manifest == show(tmp_path / "root", manifest.version)
    live = open_live(tmp_path / "root").bundle
    assert live is not None
    assert live.directory("general") is None
    math, router = live.directory("math"), live.router
    assert math is not None
    assert router is not None
    assert content(math) == content(tmp_path / "math-1")
    assert content(router) == content(tmp_path / "router")
    assert manifest.slots["math"].scores == {"task": 0.8, "general": 0.7}


def test_the_version_depends_on_content_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = publish_adapters(tmp_path / "here", tmp_path / "a", 1)
    monkeypatch.chdir(tmp_path)
    elsewhere = publish_adapters(Path("there/root"), Path("b"), 1)
    assert elsewhere.version == first.version
    assert elsewhere.created > first.created
    assert publish_adapters(tmp_path / "here", tmp_path / "c", 1) == first
    assert len(list_bundles(tmp_path / "here")) == 1
    assert publish_adapters(tmp_path / "here", tmp_path / "a", 2).version != first.version


def test_a_part_is_stored_once(tmp_path: Path) -> None:
    for number in (1, 2, 1):
        publish_adapters(tmp_path / "root", tmp_path, number)
    assert len(list((tmp_path / "root" / "parts").iterdir())) == 4  # two of math, code, router


def test_what_later_formats_added_does_not_change_the_version_of_older_bundles(tmp_path: Path) -> None:
    """The shipped bundle of an earlier format was published without these fields."""
    root = tmp_path / "root"
    manifest = publish_adapters(root, tmp_path, 1)
    file = root / "manifests" / f"{manifest.version}.json"
    older = json.loads(file.read_text())
    assert older.pop("acceptance") == older.pop("evidence") == {}
    assert older.pop("costs") is None
    file.write_text(json.dumps(older))
    assert served(root) == manifest
    evidence = {"math": Evidence(gain=0.02, variance=1e-4, prompts=70)}
    winners = {"math": Winner(directory=None, decision="general", reason="")}
    costs = MeasuredCosts(passes=(0.01, 0.012), tokens={"small": 0.001})
    newer = publish(
        root, winners, router=None, **NAMES, acceptance={"math": {"math": 0.5}}, evidence=evidence, costs=costs
    )
    assert (served(root).evidence, served(root).acceptance) == (evidence, {"math": {"math": 0.5}})
    assert served(root).costs == costs
    assert newer.version != publish(root, winners, router=None, **NAMES).version


def test_the_centroids_are_a_part_that_pruning_keeps_and_older_bundles_lack(tmp_path: Path) -> None:
    root = tmp_path / "root"
    old = publish_adapters(root, tmp_path, 1)
    assert bundle.centroids(root, old.version) is None
    file = root / "manifests" / f"{old.version}.json"
    older = json.loads(file.read_text())
    assert older.pop("centroids") is None
    file.write_text(json.dumps(older))
    assert served(root) == old
    winners = {"math": Winner(directory=None, decision="general", reason="")}
    new = publish(root, winners, router=None, **NAMES, centroids=adapter(tmp_path / "centroids", 7))
    assert new.version != publish(root, winners, router=None, **NAMES).version
    again = publish(root, winners, router=None, **NAMES, centroids=tmp_path / "centroids")
    assert prune(root, keep=1)
    part = bundle.centroids(root, again.version)
    assert part is not None
    assert content(part) == content(tmp_path / "centroids") == served(root).parts[part.name]


def test_other_files_are_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    before = publish_adapters(root, tmp_path, 1)
    for name, raw in {
        "training_args.bin": pickle.dumps({"lr": 1}),
        "README.md": b"# adapter",
        "weights.safetensors": pickle.dumps({"lr": 1}),
        "optimizer.json": b'{"half": ',
        "latin.json": b'"\xff"',
    }.items():
        directory = adapter(tmp_path / f"with-{name}", 5)
        (directory / name).write_bytes(raw)
        winner = Winner(directory=directory, decision="task", reason="better")
        with pytest.raises(ConfigError, match=name):
            publish(root, {"math": winner}, router=None, **NAMES)
    assert served(root) == before


@pytest.mark.parametrize("kind", ["link", "directory", "empty", "missing"])
def test_what_is_no_plain_directory_of_files_is_refused(tmp_path: Path, kind: str) -> None:
    directory = tmp_path / "adapter"
    if kind != "missing":
        directory.mkdir()
    if kind == "link":
        (tmp_path / "outside.json").write_text("{}")
        (directory / "linked.json").symlink_to(tmp_path / "outside.json")
    if kind == "directory":
        (directory / "nested.json").mkdir()
    with pytest.raises(ConfigError, match="adapter"):
        publish(tmp_path / "root", {}, router=directory, **NAMES)
    assert open_live(tmp_path / "root").bundle is None


def test_a_score_that_is_no_number_is_refused(tmp_path: Path) -> None:
    winner = Winner(directory=None, decision="general", reason="", scores={"task": float("nan")})
    with pytest.raises(ConfigError, match="scores"):
        publish(tmp_path / "root", {"math": winner}, router=None, **NAMES)


def test_whole_scores_give_the_version_they_are_read_with(tmp_path: Path) -> None:
    winner = Winner(directory=None, decision="general", reason="", scores={"task": 1})
    assert publish(tmp_path, {"math": winner}, router=None, **NAMES) == served(tmp_path)


def test_bundles_are_listed_newest_first_with_the_one_that_is_live(tmp_path: Path) -> None:
    root = tmp_path / "root"
    first, second = (publish_adapters(root, tmp_path, number) for number in (1, 2))
    assert publish_adapters(root, tmp_path, 1) == first
    listed = list_bundles(root)
    assert [(one.version, one.live) for one in listed] == [(second.version, False), (first.version, True)]
    assert msgspec.to_builtins(listed[1]) == {
        "version": first.version,
        "created": msgspec.to_builtins(first.created),
        "tasks": ("code", "general", "math"),
        "live": True,
    }
    assert datetime.now(UTC) > listed[0].created > listed[1].created


def test_a_diff_names_what_changed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    old = publish_adapters(root, tmp_path, 1)
    only = {"math": Winner(directory=None, decision="general", reason="better")}
    new = publish(root, only, router=None, **NAMES | {"target": "target-70b"})
    changes = {change.what: (change.before, change.after) for change in diff(root, old.version, new.version)}
    assert changes == {
        "task code": (old.slots["code"], None),
        "task general": (old.slots["general"], None),
        "task math": (old.slots["math"], new.slots["math"]),
        "router": (old.router, None),
        "target": ("target-13b", "target-70b"),
    }
    assert diff(root, old.version, old.version) == []


def test_a_version_that_is_none_is_not_shown(tmp_path: Path) -> None:
    known = publish_adapters(tmp_path / "root", tmp_path, 1)
    for version in ("../live", "", "\0", "0" * 16):
        with pytest.raises(ConfigError, match=known.version):
            show(tmp_path / "root", version)


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


# ---- pruning


def test_pruning_keeps_what_is_served_and_its_parts(tmp_path: Path) -> None:
    root = tmp_path / "root"
    manifests = [publish_adapters(root, tmp_path, number) for number in range(4)]
    prune(root, keep=2)
    assert served(root) == manifests[3]
    assert [one.version for one in list_bundles(root)] == [manifests[3].version, manifests[2].version]
    assert {path.name for path in (root / "parts").iterdir()} == manifests[2].parts.keys() | manifests[3].parts.keys()
    file_of(root, manifests[3].slots["math"].part).unlink()
    prune(root, keep=1)
    assert served(root) == manifests[2]
    assert open_live(root).problems == ()


def test_the_manifest_is_plain_json(tmp_path: Path) -> None:
    manifest = publish_adapters(tmp_path / "root", tmp_path, 1)
    read = json.loads((tmp_path / "root" / "manifests" / f"{manifest.version}.json").read_text())
    assert read["slots"]["general"] == {
        "part": None,
        "decision": "general",
        "reason": "nothing is better",
        "scores": {},
    }
    assert (tmp_path / "root" / "live").read_text() == manifest.version + "\n"
