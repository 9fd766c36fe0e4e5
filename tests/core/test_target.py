"""What configurations say of a target: its decoder, and what is vLLM's."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.errors import ConfigError
from core.model.vllm.loading import _arguments, _check_device
from core.model.vllm.options import VllmOptions, check_options
from core.settings import parse_settings
from core.target import TargetModel, load_target
from tests.core.model.random_models import save_model


def parsed(**fields: Any) -> TargetModel:
    return parse_settings({"model": "family:target", **fields}, TargetModel, "mine.yaml")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"decoder": "vlm"}, "none called 'vlm'; write one of auto, compiled, torch, vllm"),
        ({"vllm": {"quantization": "fp8"}}, "only read with decoder: vllm"),
        ({"decoder": "vllm", "vllm": {"dtype": "half"}}, "vllm.dtype is not for you to set: write target.dtype"),
        ({"decoder": "vllm", "vllm": {"speculative_config": {}}}, "speculative_config is not for you to set"),
        ({"decoder": "vllm", "vllm": {"pipeline_parallel_size": 2}}, "write tensor_parallel_size"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_write(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=r"mine\.yaml") as refused:
        parsed(**fields)
    assert message in str(refused.value)


def test_a_context_in_vllm_is_the_length_asked_for_or_the_models(tmp_path: Path) -> None:
    save_model(tmp_path, max_position_embeddings=512)
    target = {"model": str(tmp_path), "decoder": "vllm"}
    assert parsed(**target).context == 512
    assert parsed(**target, vllm={"max_model_len": 128}).context == 128
    (tmp_path / "config.json").write_text(json.dumps({"text_config": {"max_position_embeddings": 64}}))
    assert parsed(**target).context == 64
    (tmp_path / "config.json").write_text("{}")
    for engine in ({}, {"max_model_len": -1}, {"max_model_len": True}):
        with pytest.raises(ConfigError, match=r"target\.vllm\.max_model_len"):
            _ = parsed(**target, vllm=engine).context


def test_a_cache_is_of_a_whole_context_or_more(tmp_path: Path) -> None:
    save_model(tmp_path, max_position_embeddings=512)
    target = parsed(model=str(tmp_path))
    with pytest.raises(ConfigError, match="cache_tokens: 511 is less than one whole context"):
        load_target(target, 2, cache_tokens=511)
    assert load_target(target, 2, cache_tokens=512).num_free_pages == 8
    assert load_target(target, 2).num_free_pages == 16


def test_where_vllm_is_not_installed_the_page_is_named_that_says_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    save_model(tmp_path)
    with pytest.raises(ConfigError, match=r"serve_app/serving\.md says how to install it"):
        load_target(parsed(model=str(tmp_path), decoder="vllm"), 1)


def test_another_version_of_vllm_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their names are all that is read before the version."""
    for name in (
        "vllm",
        "vllm.platforms",
        "vllm.engine",
        "vllm.engine.arg_utils",
        "vllm.v1",
        "vllm.v1.engine",
        "vllm.v1.engine.core",
    ):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(EngineArgs=None, EngineCore=None, platforms=None))
    monkeypatch.setitem(sys.modules, "vllm.version", SimpleNamespace(__version__="0.33.1"))
    save_model(tmp_path)
    with pytest.raises(ConfigError, match=r"vllm 0\.33\.1 is installed, and this drives 0\.32"):
        load_target(parsed(model=str(tmp_path), decoder="vllm"), 1)


def test_no_argument_that_is_given_to_vllm_is_the_users_as_well(tmp_path: Path) -> None:
    save_model(tmp_path)
    given = _arguments(tmp_path, VllmOptions("float32", "cpu", True, max_sessions=1, num_pages=8))
    for name in given.keys() - {"max_model_len"}:
        with pytest.raises(ConfigError, match="not for you to set"):
            check_options({name: 1})


@pytest.mark.parametrize(
    ("device", "of_vllm", "message"),
    [("cpu", "cuda", "computes on cuda; write that"), ("cuda", "cpu", "on cpu"), ("cuda:1", "cuda", "write cuda;")],
)
def test_vllm_computes_where_its_package_does(device: str, of_vllm: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _check_device(device, of_vllm)
