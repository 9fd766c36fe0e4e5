"""`Model`, what engines ask of a model: rows in, logits out, with a cache per session; a `Decoder` computes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from core.arrays import Array, Device
from core.errors import ConfigError, OutOfPages
from core.model.draft_tokens import DraftToken, StopRule, draft_tokens


class Rows(NamedTuple):
    """The input of one session to one pass: tokens that follow its cached ones.

    The pass returns the logits of the last `num_logits` of these tokens (0 for a prefill chunk that is not the last).
    """

    session: int
    tokens: Sequence[int]
    num_logits: int


class Model(Protocol[Array]):
    """A causal language model with a cache per session. Its arrays are tensors, or those of NumPy.

    A token's logits are a function of its own prefix only, bit for bit. They depend neither on the other sessions in
    the pass nor on how the prefix was cut into passes. A draft need not keep this promise, because it only guesses.
    """

    vocab_size: int  # ids that it reads, padding included
    head_ids: Array | None  # ids of the logits' columns: int64, ascending; None where it has logits of all ids
    context: int  # the most tokens that a session may hold
    device: Device  # of its arrays
    loops: bool  # True if `draw` always draws all steps, ignoring `ending`

    @property
    def num_used_pages(self) -> int:
        """The cache pages that sessions hold."""

    @property
    def num_free_pages(self) -> int:
        """The cache pages that sessions may take, including those of the prefix cache."""

    @property
    def num_prefix_pages(self) -> int:
        """The free pages that still hold the beginning of an earlier session; they are taken last."""

    def open(self, session: int) -> None:
        """Start an empty session."""

    def fork(self, source: int, session: int) -> None:
        """Start a session whose cache equals that of `source`; they share its full pages."""

    def num_cached(self, session: int) -> int:
        """The number of tokens in the session's cache."""

    def forward(self, batch: Sequence[Rows]) -> Array:
        """Append the tokens of every session to its cache; returns fp32 logits [sum of num_logits, ids].

        Raises `OutOfPages` before anything is written.
        """

    def draw(
        self, batch: Sequence[Rows], steps: int, num_ids: int, noise: Array | None, ending: StopRule
    ) -> list[list[DraftToken]]:
        """Feed the tokens of every session, then draw `steps` tokens for each; returns the drawn tokens by session.

        A step draws the id of the highest score and feeds it to the next step; the last drawn token is not cached.
        Scores are the logits of the first `num_ids` columns, plus `noise` [steps, sessions, ids] unless that is None;
        the noise is fp32 on the model's device. All sessions get equally many tokens. A model that does not loop stops
        early when `ending` is reached or pages run out. Raises `OutOfPages` before anything is written.
        """

    def store_prefix(self, session: int, tokens: Sequence[int]) -> None:
        """Put the session's pages of `tokens`, which must be committed, into the prefix cache for other sessions."""

    def lookup_prefix(self, session: int, tokens: Sequence[int]) -> int:
        """Extend the session's cache by pages of `tokens` in the prefix cache; returns the number of tokens gained.

        The session's cache must be a beginning of `tokens`. The last token is never looked up, because it has to be fed
        for its logits.
        """

    def rollback(self, session: int, length: int) -> None:
        """Drop all cached tokens from position `length` on."""

    def close(self, session: int) -> None:
        """Free the session's pages; unknown sessions are ignored."""


def drawable_ids(head_ids: Array | None, num_valid: int) -> int | Array:
    """The ids below `num_valid` that a model has logits for: all of them, or an ascending int64 array.

    They are the ids of the first columns of its logits. Raises `ConfigError` if there are none.
    """
    if head_ids is None:
        return num_valid
    ids: Array = head_ids[head_ids < num_valid]
    if not len(ids):
        raise ConfigError(f"the draft's vocabulary has none of the {num_valid} ids of the tokenizer")
    return ids


def one_by_one(
    model: Model[Array], batch: Sequence[Rows], steps: int, num_ids: int, noise: Array | None, ending: StopRule
) -> list[list[DraftToken]]:
    """`Model.draw` for a model that does not loop: one forward per token."""
    steps_drawn: list[list[DraftToken]] = []
    for step in range(steps):
        try:
            scores = model.forward(batch)[:, :num_ids]
        except OutOfPages:
            if not steps_drawn:
                raise
            break
        steps_drawn.append(draft_tokens(scores if noise is None else scores + noise[step], model.head_ids))
        ending = ending.after(steps_drawn[-1])
        if ending.reached:
            break
        batch = [Rows(rows.session, [guess.token], 1) for rows, guess in zip(batch, steps_drawn[-1], strict=True)]
    return [list(line) for line in zip(*steps_drawn, strict=True)]
