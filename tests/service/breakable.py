"""A draft pool whose cache can be broken while it serves: what it then reads is another text, which stays there.

The last token that it is given it reads all the same, so that a few proposals are right; or not even that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from core.draft_key import GENERAL
from core.model.base import Rows
from core.model.causal_lm import CausalLM
from serve_app.config import Draft, ServiceConfig
from serve_app.deployments.actors import draft_pool
from serve_app.deployments.models.draft_loading import load_draft

BREAKER = "TASKSPEC_TEST_BREAKER"  # an environment variable: while the file that it names exists, caches are broken
USELESS = "useless"  # in that file: nothing is read as it is
OTHER = 5  # the token of the other text


class DraftPool(draft_pool.DraftPool):
    """The real deployment, under its own name; the draft of `general` cannot be broken."""

    def __init__(self, config: ServiceConfig, task: str, directory: str | None) -> None:
        if task != GENERAL:
            vars(draft_pool)["load_draft"] = breakable_draft
        super().__init__(config, task, directory)


def breakable_draft(draft: Draft, directory: str | None, target: str) -> CausalLM[Any]:
    model, breaker = load_draft(draft, directory, target), Path(os.environ[BREAKER])

    def read(tokens: Sequence[int], fault: str) -> list[int]:
        last = OTHER if fault == USELESS else tokens[-1]
        return [OTHER] * (len(tokens) - 1) + [last]

    def broken(compute: Callable[..., Any]) -> Callable[..., Any]:
        def computed(batch: Sequence[Rows], *arguments: Any) -> Any:
            with suppress(FileNotFoundError):
                fault = breaker.read_text()
                batch = [rows._replace(tokens=read(rows.tokens, fault)) for rows in batch]
            return compute(batch, *arguments)

        return computed

    model.forward = broken(model.forward)  # type: ignore[method-assign]
    model.draw = broken(model.draw)  # type: ignore[method-assign]
    return model
