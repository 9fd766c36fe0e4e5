from __future__ import annotations

from pathlib import Path

from core.bundle.shadow_results import keep_shadow, shadow_of
from core.bundle.store import prune
from tests.core.bundle.bundles import publish_adapters


def test_the_last_result_of_a_bundle_is_kept_as_long_as_the_bundle(tmp_path: Path) -> None:
    root = tmp_path / "root"
    first, second = (publish_adapters(root, tmp_path, number).version for number in (1, 2))
    assert shadow_of(root, first) is None
    for version, verdict in ((first, "worse"), (first, "better"), (second, "worse")):
        keep_shadow(root, version, {"verdict": verdict, "all": {"answers": 3}})
    assert shadow_of(root, first) == {"verdict": "better", "all": {"answers": 3}}
    prune(root, keep=1)
    assert (shadow_of(root, first), shadow_of(root, second) is None) == (None, False)


def test_a_result_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    keep_shadow(tmp_path, "0" * 16, {})
    [file] = (tmp_path / "shadows").iterdir()
    file.write_bytes(b'{"verdict": ')
    assert shadow_of(tmp_path, "0" * 16) is None
