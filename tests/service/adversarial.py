"""A draft pool whose model knows nothing and takes its time: it proposes random ids, as many as it may."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from core.model.base import Rows, one_by_one
from core.model.draft_tokens import DraftToken, StopRule
from serve_app.config import Draft, ServiceConfig
from serve_app.deployments.actors import draft_pool
from serve_app.deployments.models.draft_loading import load_draft

SECONDS = 0.005  # of a pass: to wait for it never pays


class RandomModel:
    """Uniform logits at every position, new ones each time."""

    device = torch.device("cpu")
    loops = False
    head_ids = None

    def __init__(self, vocab_size: int, context: int) -> None:
        self.vocab_size = vocab_size
        self.context = context
        self._lengths: dict[int, int] = {}
        self._random = torch.Generator().manual_seed(0)

    @property
    def num_used_pages(self) -> int:
        return len(self._lengths)

    @property
    def num_free_pages(self) -> int:
        return 1

    @property
    def num_prefix_pages(self) -> int:
        return 0

    def open(self, session: int) -> None:
        self._lengths[session] = 0

    def fork(self, source: int, session: int) -> None:
        self._lengths[session] = self._lengths[source]

    def num_cached(self, session: int) -> int:
        return self._lengths[session]

    def forward(self, batch: Sequence[Rows]) -> torch.Tensor:
        time.sleep(SECONDS)
        for rows in batch:
            self._lengths[rows.session] += len(rows.tokens)
        wanted = sum(rows.num_logits for rows in batch)
        return 1e3 * torch.randn(wanted, self.vocab_size, generator=self._random)

    def draw(
        self, batch: Sequence[Rows], steps: int, num_ids: int, noise: torch.Tensor | None, ending: StopRule
    ) -> list[list[DraftToken]]:
        return one_by_one(self, batch, steps, num_ids, noise, ending)

    def store_prefix(self, session: int, tokens: Sequence[int]) -> None:
        pass

    def lookup_prefix(self, session: int, tokens: Sequence[int]) -> int:  # noqa: ARG002
        return 0

    def rollback(self, session: int, length: int) -> None:
        self._lengths[session] = length

    def close(self, session: int) -> None:
        self._lengths.pop(session, None)


class DraftPool(draft_pool.DraftPool):
    """The real deployment, under its own name, with engine and wire around the random model."""

    def __init__(self, config: ServiceConfig, task: str, directory: str | None) -> None:
        vars(draft_pool)["load_draft"] = random_draft
        super().__init__(config, task, directory)


def random_draft(draft: Draft, directory: str | None, target: str) -> RandomModel:
    real = load_draft(draft, directory, target)
    return RandomModel(real.vocab_size, real.context)
