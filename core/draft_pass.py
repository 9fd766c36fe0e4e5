"""What the draft model says next on lines of thought: a guess for each from one pass, or many from passes in a loop.

Enters: parts, the rows that each line feeds. Leaves: guesses on the lines, drawn with the dice of their session.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from core.confidence import Confidence
from core.draft_session import DraftSession, Line
from core.guess import guesses
from core.model.base import Model, Rows
from core.warps import GeneratedCounts, Sampling, score


class Part(NamedTuple):
    """A line's part of a pass."""

    session: DraftSession
    line: Line
    rows: Rows

    @property
    def unwarped(self) -> bool:
        """Whether its next tokens may be drawn in the model: the warps need a look at each."""
        return self.rows.num_logits > 0 and not self.session.opened.params.warped


class Drawn(NamedTuple):
    """How many lines a pass, or several in a loop, were for, and the tokens each got: 0 where a prompt was read."""

    lines: int
    tokens: int


class DraftPass:
    """Passes of `model`, in which ids below `num_valid` are drawn, as long as there is `confidence` in them."""

    def __init__(self, model: Model, num_valid: int, confidence: Confidence) -> None:
        self._model = model
        self._confidence = confidence
        self._num_valid = num_valid

    def __call__(self, parts: Sequence[Part]) -> Drawn:
        """Append guesses to the lines: one each, or many where the model draws them; none where a prompt is being read.

        A model that loops draws for those that it can, and the others come another time. Elsewhere one pass is for all.
        """
        if self._model.loops:
            looped = [part for part in parts if part.unwarped]
            if looped:
                return Drawn(len(looped), self._many(looped))
        elif all(part.unwarped for part in parts):
            return Drawn(len(parts), self._many(parts))
        return Drawn(len(parts), self._single(parts))

    @torch.inference_mode()
    def _single(self, parts: Sequence[Part]) -> int:
        logits = self._model.forward([part.rows for part in parts])
        last = [part for part in parts if part.rows.num_logits]
        if last:
            scores = score(logits, [_sampling(part) for part in last], self._num_valid)
            for part, guess in zip(last, guesses(scores), strict=True):
                part.line.chain.append(guess)
        return int(len(last) == len(parts))

    def _many(self, parts: Sequence[Part]) -> int:
        """As many for each as the longest should get; proposals, where the model does not loop, until one can be sent.

        What is prepared for a verdict is sent only once all of it is there.
        """
        sent = all(part.line is part.session.line for part in parts)
        rooms = [self._model.context + 1 - session.length(line) + session.start for session, line, _ in parts]
        missing = [session.missing(line) for session, line, _ in parts]
        steps = min(*rooms, min(missing) if sent and not self._model.loops else max(missing))
        noise = None
        if not all(part.session.opened.params.greedy for part in parts):
            noise = torch.stack([self._noise(part, steps) for part in parts], 1)
        survivals, worths = [part.line.survival for part in parts], [part.session.worth for part in parts]
        ending = self._confidence.ending(survivals, worths, 1 if sent else len(parts))
        drawn = self._model.draw([part.rows for part in parts], steps, self._num_valid, noise, ending)
        for part, guessed in zip(parts, drawn, strict=True):
            part.line.chain += guessed
        return len(drawn[0])

    def _noise(self, part: Part, steps: int) -> torch.Tensor:
        """What the next steps add to the line's logits: [steps, ids]."""
        session, params, device = part.session, part.session.opened.params, self._model.device
        if params.greedy:
            return torch.zeros(steps, self._num_valid, device=device)
        return session.noise.rows(session.length(part.line), steps, self._num_valid, device) * params.temperature


def _sampling(part: Part) -> Sampling:
    session, line, _ = part
    params, length = session.opened.params, session.length(line)
    history = GeneratedCounts()
    if params.penalised:
        history.update(session.tokens(line, session.opened.prompt_length, length))
    return Sampling(params, session.noise, length, history)
