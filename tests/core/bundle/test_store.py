"""Bundles: what is published is opened, listed, compared and pruned, and what must not be published is refused."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from core.bundle import store as bundle
from core.bundle.manifest import Evidence, MeasuredCosts
from core.bundle.store import Winner, diff, list_bundles, open_live, prune, publish, show
from core.errors import ConfigError
from tests.core.bundle.bundles import NAMES, adapter, content, file_of, publish_adapters, served


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
