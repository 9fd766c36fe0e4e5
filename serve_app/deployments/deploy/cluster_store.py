"""Values in the store of the Ray cluster (internal_kv), which outlast the process that put them there."""

from __future__ import annotations

from typing import Any

import ray.cloudpickle as pickle
from ray.experimental import internal_kv


def load_value(key: str) -> Any:
    """What was stored under this key; None if nothing was."""
    content = internal_kv._internal_kv_get(key.encode())
    return None if content is None else pickle.loads(content)


def store_value(key: str, value: object) -> None:
    internal_kv._internal_kv_put(key.encode(), pickle.dumps(value), overwrite=True)
