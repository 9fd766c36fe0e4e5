"""Arrays of NumPy, with which a draft computes on a CPU, and tensors of torch, which all else computes with.

Importing torch takes a third of a second and 190 MB, which each draft replica would pay. So what a draft does is
written with what both libraries name alike: operators, methods, and the functions of `namespace`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import TypeVar

if TYPE_CHECKING:
    import torch

Array = TypeVar("Array", bound=Any, default="torch.Tensor")

Device = Any
"""Where arrays are, as their own `device` says: a string for NumPy's, a `torch.device` for tensors."""


def namespace(device: Device) -> Any:
    """The library whose arrays are there, `numpy` or `torch`."""
    if isinstance(device, str):
        return np
    import torch

    return torch


def on_cpu(device: Device) -> bool:
    """Whether NumPy can read what is there."""
    return isinstance(device, str) or device.type == "cpu"


def converted(array: Array, dtype: str) -> Any:
    """The array in the type of this name; itself if it has that type."""
    xp = namespace(array.device)
    return array.astype(dtype, copy=False) if xp is np else array.to(getattr(xp, dtype))


def highest(array: Array, count: int) -> Any:
    """The `count` highest values of each row [n, V], in descending order."""
    if namespace(array.device) is np:
        return np.sort(np.partition(array, -count)[:, -count:])[:, ::-1]  # what is not a number comes first
    return array.topk(count).values
