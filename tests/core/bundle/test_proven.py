from __future__ import annotations

from pathlib import Path

from core.bundle.proven import is_proven, prove
from core.bundle.store import block, live_version, prune
from tests.core.bundle.bundles import publish_adapters


def test_what_has_proven_itself_stays_so_beside_all_that_becomes_of_the_directory(tmp_path: Path) -> None:
    root = tmp_path / "root"
    first, second = (publish_adapters(root, tmp_path, number).version for number in (1, 2))
    assert not is_proven(root, first)
    prove(root, first)
    prove(root, first)
    block(root, second, "worse")
    prune(root, keep=1)
    assert (is_proven(root, first), is_proven(root, second), live_version(root)) == (True, False, first)
