"""Adapters of a base: the model that they are for is a part of the bundle, beside them, for as long as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.bundle.blobs import store_blob
from core.bundle.manifest import Manifest
from core.bundle.store import Winner, go_live, open_live, prune, publish
from core.errors import ConfigError
from core.model.loader import adapted_model
from tests.core.bundle.bundles import NAMES, adapter, model


def of_base(work: Path, number: int) -> tuple[Path, Path, str]:
    """A base, an adapter of it, and the digest that the adapter names it by."""
    (work / "parts").mkdir(parents=True, exist_ok=True)
    base = model(work / f"base-{number}", number)
    digest = store_blob(work / "parts", base).digest
    return base, adapter(work / f"math-of-{number}", number, digest), digest


def publish_with_base(root: Path, work: Path, number: int) -> Manifest:
    base, math, _ = of_base(work, number)
    winners = {
        "general": Winner(directory=base, decision="base", reason="better"),
        "math": Winner(directory=math, decision="task", reason="better"),
    }
    return publish(root, winners, router=None, **NAMES)


def test_an_adapter_keeps_its_base_in_the_bundle(tmp_path: Path) -> None:
    root = tmp_path / "root"
    first = publish_with_base(root, tmp_path / "a", 1)
    live = open_live(root).bundle
    assert live is not None
    base, math = live.directory("general"), live.directory("math")
    assert base is not None
    assert math is not None
    assert adapted_model(math, "draft") == adapted_model(base, "draft") == str(base)
    winners = {"math": Winner(directory=math, decision="live", reason="as before")}
    alone = publish(root, winners, router=None, **NAMES)  # the base serves no slot now
    assert set(alone.parts) == {base.name, math.name}
    publish_with_base(root, tmp_path / "b", 2)
    go_live(root, alone.version)
    assert first.version in prune(root, keep=1)
    now = open_live(root)
    assert now.bundle is not None
    assert (now.bundle.manifest, now.problems) == (alone, ())
    assert base.is_dir()


def test_an_adapter_without_its_base_is_not_published(tmp_path: Path) -> None:
    _, math, digest = of_base(tmp_path / "a", 1)
    with pytest.raises(ConfigError, match=f"{digest}: no such directory"):
        publish(tmp_path / "root", {"math": Winner(directory=math, decision="task", reason="")}, router=None, **NAMES)
    assert open_live(tmp_path / "root").bundle is None
