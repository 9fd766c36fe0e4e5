"""The one door between engines and models: `forward(rows) -> logits`, with a cache per session behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import torch


class Rows(NamedTuple):
    """What one session feeds in one pass: tokens that follow its cached ones.

    The logits of the last `num_logits` of these tokens are wanted (0 for a prefill chunk that is not the last).
    """

    session: int
    tokens: Sequence[int]
    num_logits: int


class Model(Protocol):
    """A causal language model with a cache per session.

    A token's logits are a function of its own prefix only, bit for bit: not of the other sessions in the pass,
    nor of how the prefix was cut into passes. Drafts alone may do without: theirs only guess.
    """

    vocab_size: int  # width of the logits, padding included
    context: int  # most tokens a session may hold
    device: torch.device
    loops: bool  # whether `draw` draws all its tokens before it tells of the first

    @property
    def num_used_pages(self) -> int:
        """Cache pages that sessions hold now."""

    @property
    def num_free_pages(self) -> int:
        """Cache pages that sessions may take, remembered ones among them."""

    @property
    def num_remembered_pages(self) -> int:
        """Free pages that hold the beginning of some earlier session, for as long as no other page is free."""

    def open(self, session: int) -> None:
        """Start an empty session."""

    def fork(self, source: int, session: int) -> None:
        """Start a session whose cache equals that of `source`, sharing its full pages."""

    def num_cached(self, session: int) -> int:
        """How many tokens the session's cache holds."""

    def forward(self, batch: Sequence[Rows]) -> torch.Tensor:
        """Append every session's tokens to its cache; return fp32 logits [sum of num_logits, vocab_size].

        Raises `OutOfPages` before anything is written.
        """

    def draw(
        self, batch: Sequence[Rows], steps: int, num_ids: int, noise: torch.Tensor | None
    ) -> Iterator[torch.Tensor]:
        """Feed every session's tokens, then those that it draws itself; yields the fp32 scores [sessions, ids] of each.

        Scores are the logits of the first `num_ids` ids plus, unless it is None, `noise` [steps, sessions, ids], on the
        model's device. The id of the highest is drawn and fed to the next step, so that the last one drawn is not
        cached. Where the model `loops`, listen to the end; where it does not, you may drop this when you have heard
        enough: until then it holds pages, and nothing else may be done with the sessions. Raises `OutOfPages` before
        anything is written, of a step or of all.
        """

    def remember(self, session: int, tokens: Sequence[int]) -> None:
        """The session begins with `tokens`, and they are committed: what is cached of them may be recalled."""

    def recall(self, session: int, tokens: Sequence[int]) -> int:
        """Extend the session, which caches the first of `tokens`, by those remembered; returns how many were gained.

        The last of `tokens` is never recalled: it has to be fed for its logits.
        """

    def rollback(self, session: int, length: int) -> None:
        """Forget all cached tokens from position `length` on."""

    def close(self, session: int) -> None:
        """Free the session's pages; unknown sessions are ignored."""


def one_by_one(
    model: Model, batch: Sequence[Rows], steps: int, num_ids: int, noise: torch.Tensor | None
) -> Iterator[torch.Tensor]:
    """`Model.draw` for one that does not loop: a forward for each token, when it is asked for. On CPUs."""
    for step in range(steps):
        scores = model.forward(batch)[:, :num_ids]
        if noise is not None:
            scores = scores + noise[step]
        drawn = scores.numpy().argmax(-1).tolist()
        yield scores
        batch = [Rows(rows.session, [token], 1) for rows, token in zip(batch, drawn, strict=True)]
