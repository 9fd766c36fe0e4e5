"""What the draft model says next on lines of thought: a guess for each from one pass, or many from passes in a loop.

Enters: parts, the rows that each line feeds. Leaves: guesses, drawn with the dice of their session.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from core.draft_session import DraftSession, Line
from core.guess import Guess, guesses
from core.model.base import Model, Rows
from core.warps import GeneratedCounts, score


class Part(NamedTuple):
    """A line's part of a pass."""

    session: DraftSession
    line: Line
    rows: Rows

    @property
    def loops(self) -> bool:
        """Whether its next tokens may be drawn without a look at each: the warps would need one."""
        return self.rows.num_logits > 0 and not self.session.opened.params.warped


class DraftPass:
    """Passes of `model`, in which ids below `num_valid` are drawn."""

    def __init__(self, model: Model, num_valid: int) -> None:
        self._model = model
        self._num_valid = num_valid

    def __call__(self, parts: Sequence[Part]) -> list[tuple[Part, list[Guess]]]:
        """Guesses that follow each line, none while its prompt is being read.

        Where the model draws in loops, those that can be are told of first, and the others another time.
        """
        looped = [part for part in parts if self._model.loops and part.loops]
        if looped:
            return list(zip(looped, self._loop(looped), strict=True))
        return list(zip(parts, self._single(parts), strict=True))

    def _single(self, parts: Sequence[Part]) -> list[list[Guess]]:
        logits = self._model.forward([part.rows for part in parts])
        last = [part for part in parts if part.rows.num_logits]
        if not last:
            return [[] for _ in parts]
        scores = [self._score(part, logits[row : row + 1]) for row, part in enumerate(last)]
        guessed = iter(guesses(torch.cat(scores)))
        return [[next(guessed)] if part.rows.num_logits else [] for part in parts]

    def _loop(self, parts: Sequence[Part]) -> list[list[Guess]]:
        """As many for each as the longest should get, or as one's context has room for."""
        rooms = [self._model.context + 1 - session.length(line) + session.start for session, line, _ in parts]
        steps = min(*rooms, max(session.missing(line) for session, line, _ in parts))
        noise = torch.stack([self._noise(part, steps) for part in parts], 1)
        scores = self._model.draw([part.rows for part in parts], noise)
        guessed = guesses(scores.flatten(0, 1))
        return [guessed[index :: len(parts)] for index in range(len(parts))]

    def _score(self, part: Part, logits: torch.Tensor) -> torch.Tensor:
        session, line, _ = part
        params, length = session.opened.params, session.length(line)
        history = GeneratedCounts()
        if params.penalised:
            history.update(session.tokens(line, session.opened.prompt_length, length))
        return score(logits, params, session.noise, length, history, (), self._num_valid)

    def _noise(self, part: Part, steps: int) -> torch.Tensor:
        """What the next steps add to the line's logits: [steps, ids]."""
        session, params, device = part.session, part.session.opened.params, self._model.device
        if params.greedy:
            return torch.zeros(steps, self._num_valid, device=device)
        return session.noise.rows(session.length(part.line), steps, self._num_valid, device) * params.temperature
