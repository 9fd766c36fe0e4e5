"""The one door between engines and models: `forward(rows) -> logits`, with a cache per session behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch

from core.errors import OutOfPages
from core.guess import Ending, Guess, guesses


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
    loops: bool  # whether `draw` draws all its tokens whatever they are

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
        self, batch: Sequence[Rows], steps: int, num_ids: int, noise: torch.Tensor | None, ending: Ending
    ) -> list[list[Guess]]:
        """Feed every session's tokens, then those that it draws itself; returns what was drawn for each of them.

        The id of the highest score is drawn and fed to the next step, so that the last one drawn is not cached. Scores
        are the logits of the first `num_ids` ids plus, unless it is None, `noise` [steps, sessions, ids], fp32 on the
        model's device. All sessions get as many: `steps` where the model `loops`, else until one has reached its
        `ending` or pages run out. Raises `OutOfPages` before anything is written.
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
    model: Model, batch: Sequence[Rows], steps: int, num_ids: int, noise: torch.Tensor | None, ending: Ending
) -> list[list[Guess]]:
    """`Model.draw` for one that does not loop: a forward for each token."""
    drawn: list[list[Guess]] = []
    for step in range(steps):
        try:
            scores = model.forward(batch)[:, :num_ids]
        except OutOfPages:
            if not drawn:
                raise
            break
        drawn.append(guesses(scores if noise is None else scores + noise[step]))
        ending = ending.after(drawn[-1])
        if ending.reached:
            break
        batch = [Rows(rows.session, [guess.token], 1) for rows, guess in zip(batch, drawn[-1], strict=True)]
    return [list(line) for line in zip(*drawn, strict=True)]
