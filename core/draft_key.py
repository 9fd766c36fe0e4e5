"""Which draft: the task that it was trained for, and which of the drafts of that task it is."""

from __future__ import annotations

from typing import NamedTuple

GENERAL = "general"  # the task of prompts that belong to no other; its draft is the best single one for all


class DraftKey(NamedTuple):
    """A draft by its task and the first digits of its adapter's digest, None for the draft without an adapter.

    `math@1a2b3c4d5e6f` as text, or `general`. The task stays when a bundle brings another adapter, so what depends on
    the text alone is kept by task, and what depends on the weights, such as acceptance, by key.
    """

    task: str
    digest: str | None = None

    @classmethod
    def parse(cls, text: str) -> DraftKey:
        """The key that `str` wrote."""
        task, _, digest = text.partition("@")
        return cls(task, digest or None)

    def __str__(self) -> str:
        return self.task if self.digest is None else f"{self.task}@{self.digest}"
