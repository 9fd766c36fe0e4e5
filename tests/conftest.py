"""Every test runs on one torch thread and the same hypothesis examples each time."""

from __future__ import annotations

import hypothesis
import pytest
import torch

torch.set_num_threads(1)
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("repeatable")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the tests that start Ray, those that share one service run beside all others, which come one by one."""
    for item in items:
        group = "service" if "service" in item.path.parts else "others"
        item.add_marker(pytest.mark.xdist_group(group))
