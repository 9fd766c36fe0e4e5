"""Runs the draft model over lines: a token for each from one pass, or many from a loop of passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from core.arrays import namespace
from core.draft.line import Line
from core.draft.session import DraftSession
from core.draft.token_confidence import Confidence
from core.model.base import Model, Rows, drawable_ids
from core.model.draft_tokens import StopRule, draft_tokens
from core.sampling.gumbel import gumbel, keys, num_ids
from core.sampling.sampler import GeneratedCounts, Sampling, score

NOISE_ROWS = 8  # made at once: a single row costs twice as much
_WARM_LINES = (4, 8, 16, 32)  # of the passes that are drawn first; a GPU pads others to like numbers
_WARM_TURNS = 4  # of each, after which passes are replayed (`core.model.torch.graphs`)


class LineRows(NamedTuple):
    """The rows of a pass that are a line's."""

    session: DraftSession
    line: Line
    rows: Rows

    @property
    def unwarped(self) -> bool:
        """Whether the model may draw its next tokens in a loop: warps need to see each token."""
        return self.rows.num_logits > 0 and not self.session.opened.params.warped


class PassResult(NamedTuple):
    """The lines of a pass or a loop of passes, and the tokens that each of them got: 0 if a prompt was read."""

    lines: int
    tokens: int


class Proposer:
    """Passes of `model`, in which ids below `num_valid` are drawn, as long as there is `confidence` in them."""

    def __init__(self, model: Model[Any], num_valid: int, confidence: Confidence) -> None:
        self._model = model
        self._confidence = confidence
        self._ids = drawable_ids(model.head_ids, num_valid)

    def __call__(self, parts: Sequence[LineRows]) -> PassResult:
        """Append drafted tokens to the lines: one each, many if the model draws them, none while a prompt is read.

        A model with a drawing loop serves the lines that need no warps first. Other models serve all lines in one pass.
        """
        if self._model.loops:
            looped = [part for part in parts if part.unwarped]
            if looped:
                return PassResult(len(looped), self._many(looped))
        elif all(part.unwarped for part in parts):
            return PassResult(len(parts), self._many(parts))
        return PassResult(len(parts), self._single(parts))

    def warm_up(self, chunk: int) -> None:
        """Read a prompt of `chunk` tokens and draw tokens that nobody asked for.

        A GPU compiles, loads and records on the way, which the first verifiers would wait for.
        """
        if not self._model.loops:
            return
        self._model.open(-1)
        self._model.forward([Rows(-1, [0] * min(chunk, self._model.context), 1)])
        self._model.close(-1)
        for lines in sorted({min(lines, self._model.num_free_pages) for lines in _WARM_LINES}):
            numbers = range(-1, -1 - lines, -1)
            places = [(0, 0, number) for number in range(2 * len(numbers))]
            noise = gumbel(namespace(self._model.device).asarray(keys(places), device=self._model.device), self._ids)
            for _ in range(_WARM_TURNS):
                for number in numbers:
                    self._model.open(number)
                batch, never = [Rows(number, [0], 1) for number in numbers], StopRule.never(len(numbers))
                self._model.draw(batch, 2, num_ids(self._ids), noise.reshape(2, len(numbers), -1), never)
                for number in numbers:
                    self._model.close(number)

    def _single(self, parts: Sequence[LineRows]) -> int:
        logits = self._model.forward([part.rows for part in parts])
        last = [part for part in parts if part.rows.num_logits]
        if last:
            scores = score(logits, [_sampling(part) for part in last], self._ids)
            for part, guess in zip(last, draft_tokens(scores, self._model.head_ids), strict=True):
                part.line.chain.append(guess)
        return int(len(last) == len(parts))

    def _many(self, parts: Sequence[LineRows]) -> int:
        """Draw as many tokens for each line as the longest may get.

        Without a loop in the model, drawing stops as soon as one proposal is complete; branches are sent only together.
        """
        proposing = all(part.line is part.session.line for part in parts)
        rooms = [self._model.context + 1 - session.length(line) + session.start for session, line, _ in parts]
        missing = [session.missing(line) for session, line, _ in parts]
        steps = min(*rooms, min(missing) if proposing and not self._model.loops else max(missing))
        noise = None
        if not all(part.session.opened.params.greedy for part in parts):
            noise = namespace(self._model.device).stack([self._noise(part, steps) for part in parts], 1)
        survivals, min_survivals = [part.line.survival for part in parts], [part.session.min_survival for part in parts]
        ending = self._confidence.ending(survivals, min_survivals, 1 if proposing else len(parts))
        tokens_by_line = self._model.draw([part.rows for part in parts], steps, num_ids(self._ids), noise, ending)
        for part, guessed in zip(parts, tokens_by_line, strict=True):
            part.line.chain += guessed
        return len(tokens_by_line[0])

    def _noise(self, part: LineRows, steps: int) -> Any:
        """The noise that the next steps add to the line's logits: [steps, ids]."""
        session, params, device = part.session, part.session.opened.params, self._model.device
        xp, first = namespace(device), session.length(part.line)
        if params.greedy:
            return xp.zeros((steps, num_ids(self._ids)), dtype=xp.float32, device=device)
        missing = [position for position in range(first, first + steps) if position not in session.noise]
        if missing:
            positions = range(missing[0], max(first + steps, missing[0] + NOISE_ROWS))
            places = [(params.seed, session.opened.choice, position) for position in positions]
            rows = gumbel(xp.asarray(keys(places), device=device), self._ids)
            open_rows = {at: row for at, row in session.noise.items() if at >= len(session.committed)}
            session.noise = {**open_rows, **dict(zip(positions, rows, strict=True))}
        return xp.stack([session.noise[first + step] for step in range(steps)]) * params.temperature


def _sampling(part: LineRows) -> Sampling:
    session, line, _ = part
    params, length = session.opened.params, session.length(line)
    history = GeneratedCounts()
    if params.penalised:
        history.update(session.tokens(line, session.opened.prompt_length, length))
    prompt = session.prompt_ids if params.repetition_penalty != 1.0 else ()
    return Sampling(params, session.opened.choice, length, history, prompt=prompt)
