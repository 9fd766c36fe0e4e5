"""Every test runs on one torch thread and the same hypothesis examples each time, and has a bound.

That of pyproject.toml is for tests without Ray. It counts from the first fixture to the last.
"""

from __future__ import annotations

import hypothesis
import pytest
import torch

torch.set_num_threads(1)
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("repeatable")

BOUNDS = {"soak": 4 * 3600, "cluster": 900, "thorough": 600}  # seconds; the first that fits


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for marker, seconds in BOUNDS.items():
            if item.get_closest_marker(marker) is not None and item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(seconds))
