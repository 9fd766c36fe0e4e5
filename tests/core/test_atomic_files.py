"""Files that are written here, or by a library, can be read by whom the umask lets read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from core.atomic_files import grant, replace
from core.sampling.params import SamplingParams
from core.traces.store import Trace, TraceStore
from tests.core.bundle.bundles import publish_adapters


@pytest.fixture(autouse=True)
def _for_the_group() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


def modes(directory: Path) -> dict[str, int]:
    files = (file for file in directory.rglob("*") if file.is_file())
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in files}


def tensors(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file({"weight": np.ones(3, np.float32)}, file)
    return file


def test_a_replaced_file_a_trace_shard_and_a_bundle_are_the_groups_too(tmp_path: Path) -> None:
    replace(tmp_path / "one", b"1")
    params = SamplingParams(seed=0, max_tokens=1)
    TraceStore(tmp_path / "traces").append([Trace(prompt_ids=(1,), output_ids=(2,), params=params)])
    publish_adapters(tmp_path / "bundles", tmp_path / "made", 1)
    found = modes(tmp_path / "bundles") | modes(tmp_path / "traces") | {"one": modes(tmp_path)["one"]}
    assert {"one", "live", "adapter_model.safetensors"} < set(found)
    assert any(name.endswith(".parquet") for name in found)
    assert set(found.values()) == {0o640}


def test_what_a_library_kept_to_its_owner_is_the_groups_afterwards(tmp_path: Path) -> None:
    inside = tensors(tmp_path / "drafts" / "one" / "adapter_model.safetensors")
    assert modes(tmp_path) == {inside.name: 0o600}
    grant(tmp_path)
    assert modes(tmp_path) == {inside.name: 0o640}


def test_a_program_stays_one_a_link_is_left_alone_and_nothing_is_added(tmp_path: Path) -> None:
    program, outside = tmp_path / "in" / "program", tensors(tmp_path / "outside.safetensors")
    tensors(program).chmod(0o700)
    (tmp_path / "in" / "link").symlink_to(outside)
    grant(tmp_path / "in")
    assert modes(tmp_path) == {"program": 0o740, outside.name: 0o600, "link": 0o600}
