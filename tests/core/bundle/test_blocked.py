"""Candidates wait until they are told to serve, and blocked bundles never do."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from core.bundle.manifest import Manifest
from core.bundle.store import block, blocked, go_live, list_bundles, live_version, open_live, prune
from core.errors import ConfigError
from tests.core.bundle.bundles import publish_adapters


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def published(root: Path, number: int, *, live: bool = True) -> Manifest:
    return publish_adapters(root, root.parent, number, live=live)


def served(root: Path) -> str | None:
    live = open_live(root).bundle
    assert (live.manifest.version if live else None) == live_version(root)
    return live_version(root)


def test_a_candidate_is_served_once_it_is_told_to(root: Path) -> None:
    first, candidate = published(root, 1), published(root, 2, live=False)
    assert served(root) == first.version
    go_live(root, candidate.version)
    assert served(root) == candidate.version
    go_live(root, first.version)
    assert served(root) == first.version


def test_a_blocked_bundle_gives_way_to_the_one_before_and_stays_blocked_if_it_is_published_again(root: Path) -> None:
    first, second = published(root, 1), published(root, 2)
    block(root, second.version, "worse")
    assert served(root) == first.version
    assert published(root, 2) == second
    assert served(root) == first.version
    assert blocked(root) == {second.version: "worse"}
    assert [one.live for one in list_bundles(root)] == [False, True]


def test_told_to_serve_it_is_blocked_no_longer(root: Path) -> None:
    first, second = published(root, 1), published(root, 2)
    block(root, first.version, "old")
    block(root, second.version, "worse")
    assert served(root) is None
    go_live(root, second.version)
    assert (served(root), blocked(root)) == (second.version, {first.version: "old"})


def test_what_is_not_there_or_damaged_is_not_told_to_serve(root: Path) -> None:
    first, candidate = published(root, 1), published(root, 2, live=False)
    with pytest.raises(ConfigError, match="no bundle 0123456789abcdef"):
        go_live(root, "0123456789abcdef")
    part = candidate.slots["math"].part
    assert part is not None
    (root / "parts" / part / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(ConfigError, match="damaged"):
        go_live(root, candidate.version)
    assert served(root) == first.version


def test_a_list_of_blocked_ones_that_cannot_be_read_blocks_none_and_is_not_written_over(root: Path) -> None:
    first, second = published(root, 1), published(root, 2)
    (root / "blocked.json").write_bytes(b"{")
    assert served(root) == second.version
    for write in (
        lambda: block(root, first.version, "worse"),
        lambda: go_live(root, first.version),
        lambda: prune(root, keep=1),
    ):
        with pytest.raises(ConfigError, match=r"blocked\.json does not say which bundles are blocked: .* or delete it"):
            write()
    assert (root / "blocked.json").read_bytes() == b"{"
    assert {one.version for one in list_bundles(root)} == {first.version, second.version}


def test_one_failed_read_loses_no_block(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault: a network file system that does not answer."""
    first, second = published(root, 1), published(root, 2)
    block(root, first.version, "old")
    read = Path.read_bytes

    def stale(file: Path) -> bytes:
        if file.name == "blocked.json":
            raise OSError(errno.ESTALE, "Stale file handle")
        return read(file)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", stale)
        assert served(root) == second.version
        with pytest.raises(OSError, match="Stale"):
            block(root, second.version, "worse")
        with pytest.raises(OSError, match="Stale"):
            go_live(root, second.version)
    assert blocked(root) == {first.version: "old"}


def test_a_candidate_that_was_never_live_is_not_served_where_all_that_were_are_blocked(root: Path) -> None:
    first, candidate = published(root, 1), published(root, 2, live=False)
    block(root, first.version, "worse")
    assert served(root) is None
    assert prune(root, keep=1) == []
    assert served(root) is None
    assert {one.version for one in list_bundles(root)} == {first.version, candidate.version}


def test_where_the_history_is_damaged_what_is_there_is_served(root: Path) -> None:
    first = published(root, 1)
    (root / "live").write_bytes(b"0123")
    live = open_live(root)
    assert live.bundle is not None
    assert live.bundle.manifest == first
    assert [problem.expected for problem in live.problems] == ["a version"]


def test_candidates_that_came_after_the_live_bundle_are_not_pruned(root: Path) -> None:
    old, live, candidate = published(root, 1, live=False), published(root, 2), published(root, 3, live=False)
    assert prune(root, keep=1) == [old.version]
    go_live(root, candidate.version)
    assert {one.version for one in list_bundles(root)} == {live.version, candidate.version}
