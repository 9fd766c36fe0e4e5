"""A service takes drafts and router from the live bundle; one that is corrupt it never serves, and says why."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from core.bundle.manifest import Manifest
from core.bundle.store import Winner, publish
from core.errors import ConfigError
from core.family import TARGET_DIR
from core.settings import parse_settings
from core.text.vocabulary import digest
from serve_app.config import ServiceConfig
from serve_app.deployments.models.served_models import ServedModels, with_bundle, with_controls
from tests.core.bundle.bundles import adapter

NAMES = {"target": "family:target", "draft": "family:draft", "id_map": digest(TARGET_DIR)}


def published(where: Path, number: int = 0, **names: str) -> Manifest:
    """Two tasks, one of them as good as the control `mixed`, a router; version after version by `number`."""
    math, mixed = adapter(where / f"math-{number}", number), adapter(where / "mixed", -1)
    winners = {
        "math": Winner(directory=math, decision="task", reason="better"),
        "多谢": Winner(directory=mixed, decision="mixed", reason="no worse"),
        "general": Winner(directory=None, decision="general", reason="nothing is better"),
    }
    router, controls = adapter(where / "router", -2), {"general": None, "mixed": mixed}
    return publish(where / "bundles", winners, router=router, controls=controls, **(NAMES | names))


def opened(where: Path, **fields: Any) -> ServedModels:
    content = {"name": "m", "target": {"model": "family:target"}, "draft": {"model": "family:draft"}}
    content |= {"bundle": str(where / "bundles")} | fields
    return with_bundle(parse_settings(content, ServiceConfig, "configuration"))


def part(where: Path, digest: str | None) -> str:
    return str(where / "bundles" / "parts" / str(digest))


def test_every_slot_is_a_pool_of_plain_directories(tmp_path: Path) -> None:
    manifest = published(tmp_path)
    served = opened(tmp_path)
    assert served.version == manifest.version
    assert served.router == part(tmp_path, manifest.router)
    assert served.drafts == {
        "general": None,
        "math": part(tmp_path, manifest.slots["math"].part),
        "多谢": part(tmp_path, manifest.slots["多谢"].part),
    }
    assert next(iter(served.drafts)) == "general"


def test_a_task_that_the_general_draft_serves_best_has_no_pool(tmp_path: Path) -> None:
    base, math = adapter(tmp_path / "base", 1), adapter(tmp_path / "math", 2)
    winners = {
        "general": Winner(directory=base, decision="base", reason="better"),
        "code": Winner(directory=base, decision="base", reason="nothing is better"),
        "math": Winner(directory=math, decision="task", reason="better"),
    }
    publish(tmp_path / "bundles", winners, router=None, **NAMES, acceptance={"math": {"math": 0.5}})
    served = opened(tmp_path)
    assert served.drafts.keys() == {"general", "math"}
    assert served.acceptance == {"math": {"math": 0.5}}


def test_a_bundle_of_one_task_leaves_general_to_the_draft_as_it_is(tmp_path: Path) -> None:
    math = Winner(directory=adapter(tmp_path / "math", 1), decision="task", reason="better")
    manifest = publish(tmp_path / "bundles", {"math": math}, router=None, **NAMES)
    served = opened(tmp_path)
    assert served.drafts == {"general": None, "math": part(tmp_path, manifest.slots["math"].part)}
    assert (served.router, served.controls) == (None, {"general": None})


def test_a_relative_bundle_is_where_this_process_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = published(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert opened(tmp_path, bundle="bundles").router == part(tmp_path, manifest.router)


@pytest.mark.parametrize("fields", [{}, {"bundle": None}])
def test_with_no_bundle_the_draft_as_it_is_serves_alone(tmp_path: Path, fields: dict[str, Any]) -> None:
    served = opened(tmp_path, **fields)
    assert (served.drafts, served.router, served.version) == ({"general": None}, None, None)


def test_the_controls_get_pools_unless_a_task_is_served_by_the_same(tmp_path: Path) -> None:
    manifest = published(tmp_path)
    served, pools = with_controls(opened(tmp_path), ["general", "mixed"])
    assert pools == {"general": "general", "mixed": "多谢"}
    assert served.drafts == opened(tmp_path).drafts
    only_math = ServedModels(served.config, drafts={"general": "better", "math": "best"}, controls=served.controls)
    assert with_controls(only_math, ["mixed"])[1] == {"mixed": "control-mixed"}
    twins = ServedModels(served.config, drafts={"general": "better"}, controls={"general": None, "base": None})
    assert with_controls(twins, ["general", "base"])[1] == {"general": "control-general"}
    served, pools = with_controls(only_math, ["general", "mixed"])
    assert pools == {"general": "control-general", "mixed": "control-mixed"}
    assert served.drafts == {
        "general": "better",
        "math": "best",
        "control-general": None,
        "control-mixed": part(tmp_path, manifest.controls["mixed"]),
    }


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def test_a_corrupt_bundle_is_never_served_and_the_log_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = published(tmp_path, 1), published(tmp_path, 2)
    damaged = Path(part(tmp_path, second.slots["math"].part), "adapter_model.safetensors")
    flip(damaged)
    served = opened(tmp_path)
    assert served.version == first.version
    assert served.drafts["math"] == part(tmp_path, first.slots["math"].part)
    assert str(damaged) in caplog.text
    assert f"served is {first.version}" in caplog.text
    caplog.clear()
    for version in (first, second):
        (tmp_path / "bundles" / "manifests" / f"{version.version}.json").write_text("{}")
    served = opened(tmp_path)
    assert (served.drafts, served.router) == ({"general": None}, None)
    assert caplog.text.count("served is the draft as it is") >= 2


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ({"draft": "another/draft"}, "is for the draft 'another/draft', and draft.model is 'family:draft'"),
        ({"target": "another/target"}, "is for the target 'another/target', and target.model is 'family:target'"),
        ({"id_map": "0" * 64}, "was trained with another tokenizer than family:target has"),
    ],
)
def test_a_bundle_for_another_pair_is_refused(tmp_path: Path, names: dict[str, str], told: str) -> None:
    published(tmp_path, **names)
    with pytest.raises(ConfigError, match=told):
        opened(tmp_path)


def test_a_pool_that_serves_nothing_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    manifest = published(tmp_path)
    caplog.set_level(logging.WARNING)
    pools = {name: {"actors": {"replicas": 2}} for name in ("math", "maths")}
    assert opened(tmp_path, pools=pools).version == manifest.version
    [told] = [record.message for record in caplog.records]
    assert told.startswith("pools: there is no task maths, so")
    assert told.endswith(f"bundle {manifest.version} has general, math, 多谢")
    caplog.clear()
    opened(tmp_path, pools=pools, bundle=None)
    assert "there is no task math, maths" in caplog.text
