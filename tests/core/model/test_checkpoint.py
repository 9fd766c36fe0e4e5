"""Weight files as NumPy reads them: every type that checkpoints have, and the errors for files that are none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from core.errors import ConfigError
from core.model.checkpoint import Checkpoint
from core.model.tensor_views import TensorCheckpoint

TYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool]


@pytest.fixture
def tensors() -> dict[str, torch.Tensor]:
    dice = torch.Generator().manual_seed(0)
    return {str(dtype): torch.randint(-9, 9, (3, 5), generator=dice).to(dtype) for dtype in TYPES}


@pytest.mark.parametrize("old", [False, True], ids=["safetensors", "before them"])
def test_tensors_of_every_type(tmp_path: Path, tensors: dict[str, torch.Tensor], old: bool) -> None:
    if old:
        torch.save(tensors, tmp_path / "pytorch_model.bin")
    else:
        save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    assert sorted(Checkpoint(tmp_path).names()) == sorted(tensors)
    for name, tensor in tensors.items():
        assert isinstance(Checkpoint(tmp_path)[name], np.ndarray)
        found = TensorCheckpoint(tmp_path)[name]
        assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(found, tensor)


def test_what_is_changed_in_memory_stays_out_of_the_file(tmp_path: Path, tensors: dict[str, torch.Tensor]) -> None:
    save_file(tensors, tmp_path / "model.safetensors")
    Checkpoint(tmp_path)["torch.float32"][:] = 1.0
    assert torch.equal(TensorCheckpoint(tmp_path)["torch.float32"], tensors["torch.float32"])


def test_a_type_that_no_model_here_has_is_refused_when_it_is_read(tmp_path: Path) -> None:
    save_file({"whole": torch.ones(2), "eighths": torch.ones(2).to(torch.float8_e4m3fn)}, tmp_path / "a.safetensors")
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint["whole"].tolist() == [1.0, 1.0]
    with pytest.raises(ConfigError, match=r"a\.safetensors: 'eighths' is of the type F8_E4M3; known: F64, F32"):
        checkpoint["eighths"]


def test_a_file_that_ends_early_is_refused(tmp_path: Path, tensors: dict[str, torch.Tensor]) -> None:
    file = tmp_path / "model.safetensors"
    save_file(tensors, file)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ConfigError, match=r"model\.safetensors: not a readable safetensors file"):
        Checkpoint(tmp_path)
