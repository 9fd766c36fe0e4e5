"""Plain decoding along recorded answers, and the verdict on each.

The serving engine draws one token after the other, without a proposal, with the noise of the answer's own seed. Where
it draws another token than the answer has, the gap says how far the answer's token lies below. It is one of scores,
which are logits with noise, penalties, filters and grammar, and of which the highest is drawn. Another machine, or
other kernels, round otherwise, which moves scores a little. So a gap of `NEAR_TIE` at most is a near-tie: plain
decoding goes on behind the answer's own token, and all that follows is held to it as well. A wider gap is no rounding,
and the answer is different.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import torch

from core.audit.expected import ExpectedAnswer
from core.errors import InvalidRequest
from core.generation import GenerationRequest, Run, Vocabulary
from core.model.base import Model
from core.sampling.filters import BANNED
from core.sampling.params import SamplingParams
from core.sampling.sampler import Sampling, score
from core.verify.engine import Drawing, VerifyConfig, VerifyEngine
from core.verify.sources import DRAFTS_ALONE

NEAR_TIE = 1.0
"""The widest gap, in logits, that rounding is taken for; see tests/bench/README.md for gaps between kernels."""
CANDIDATES = 64  # of the highest scores, among which the token of a text is looked for
EDGE = 0.02  # of probability, and SLACK of a logit, by which rounding may move the edge of a filter
SLACK = 0.25

Class = Literal["equal", "near-tie", "different", "skipped"]


class Question(NamedTuple):
    """A request, and what was recorded of its answer."""

    request: GenerationRequest
    expected: ExpectedAnswer


class TokenDifference(NamedTuple):
    """Where plain decoding draws another token: behind how many tokens of the answer, both tokens, and the gap.

    The answer's token is None where only its text is known, and no likely token has it. The gap is None there, and
    where the request allows no such token.
    """

    position: int
    token: int | None
    plain: int
    gap: float | None

    @property
    def near(self) -> bool:
        return self.gap is not None and self.gap <= NEAR_TIE


class AnswerVerdict(NamedTuple):
    """What an answer is, by the tokens that were compared.

    `tokens` are those of plain decoding, and the answer's own at near-ties. `complaint` says what else than tokens is
    wrong with it, or why it is skipped.
    """

    tokens: tuple[int, ...]
    differences: tuple[TokenDifference, ...] = ()
    complaint: str = ""
    skipped: bool = False

    @property
    def kind(self) -> Class:
        if self.skipped:
            return "skipped"
        if self.complaint or not all(difference.near for difference in self.differences):
            return "different"
        return "near-tie" if self.differences else "equal"


class PlainDecoding(VerifyEngine):
    """The engine without any proposal, which takes a recorded answer's token where that is a near-tie.

    `expected` has the recorded answer of each session, `differences` those that were met.
    """

    def __init__(self, model: Model, vocabulary: Vocabulary, max_sessions: int) -> None:
        # nothing is proposed, so nothing reads the clock
        super().__init__(model, vocabulary, VerifyConfig(max_sessions, lookup=DRAFTS_ALONE), clock=lambda: 0.0)
        self.expected: dict[int, ExpectedAnswer] = {}
        self.differences: dict[int, list[TokenDifference]] = {}
        self._num_valid = vocabulary.num_valid

    def _commit(self, drawing: Drawing, tokens: list[int]) -> Run:
        [plain] = tokens
        number, chain = drawing.session.number, drawing.session.chain
        answer = chain.tokens[chain.prompt_length :]
        token = self.expected[number].following(answer, [plain])
        if token != plain:
            difference = self._difference(drawing, answer, plain)
            self.differences[number].append(difference)
            if difference.near and difference.token is not None:
                tokens = [difference.token]
        return super()._commit(drawing, tokens)

    def _difference(self, drawing: Drawing, answer: Sequence[int], plain: int) -> TokenDifference:
        _, sampling = self._sampling(drawing)
        scores = Scores(drawing.logits, sampling, self._num_valid)
        token = self.expected[drawing.session.number].following(answer, scores.ranked)
        return TokenDifference(len(answer), token, plain, None if token is None else scores.gap(token))


class Scores:
    """The scores of the next token of one answer, and of these the ones that a filter surely lets in, or may let in.

    A token at the edge of a filter hangs on rounding, however high it scores.
    """

    def __init__(self, logits: torch.Tensor, sampling: Sampling, num_ids: int) -> None:
        def scored(**params: Any) -> torch.Tensor:
            law = sampling._replace(params=msgspec.structs.replace(sampling.params, **params))
            return score(logits, [law], num_ids)[0]

        self._scores = scored(top_k=0, top_p=1.0, min_p=0.0)
        self._sure = self._possible = self._scores > BANNED
        params = sampling.params
        if not params.greedy and (params.top_k > 0 or params.top_p < 1.0 or params.min_p > 0.0):
            z = scored(temperature=0.0)
            lowest = [z[scored(**_shifted(params, by)) > BANNED].min() for by in (1, -1)]
            self._possible = self._sure & (z >= lowest[0] - SLACK)
            self._sure = z >= (lowest[1] + SLACK).clamp(max=z.max())

    @property
    def ranked(self) -> list[int]:
        """The ids of the highest scores that may be let in, the highest first."""
        scores = self._scores.where(self._possible, BANNED)
        ids: list[int] = scores.topk(min(CANDIDATES, len(scores))).indices.tolist()
        return ids

    def gap(self, token: int) -> float | None:
        """How far the token lies below the highest score that is surely let in; None for one that is not let in."""
        if not (0 <= token < len(self._scores) and self._possible[token]):
            return None
        return max(0.0, float(self._scores[self._sure].max() - self._scores[token]))


def audit(
    model: Model, vocabulary: Vocabulary, questions: Sequence[Question], max_sessions: int = 32
) -> Iterator[tuple[int, AnswerVerdict]]:
    """Yield (index of the question, the verdict) in the order in which they are known.

    `model` needs pages for at least one whole context.
    """
    engine = PlainDecoding(model, vocabulary, max_sessions)
    waiting = iter(enumerate(questions))
    running: dict[int, int] = {}
    output: dict[int, list[int]] = {}
    while True:
        while len(running) < max_sessions and (entry := next(waiting, None)) is not None:
            index, question = entry
            if question.expected.over(()):
                yield index, _empty(question.expected)
                continue
            try:
                [number] = engine.open([_plain(question.request)])
            except InvalidRequest as error:
                yield index, AnswerVerdict((), complaint=str(error), skipped=True)
                continue
            running[number], output[number] = index, []
            engine.expected[number], engine.differences[number] = question.expected, []
        if not running:
            return
        runs = engine.step()
        for number, failure in engine.failures():
            yield running.pop(number), AnswerVerdict(tuple(output.pop(number)), complaint=str(failure), skipped=True)
        for number, run in runs:
            output[number] += run.tokens
            verdict = _verdict(engine, number, output[number], run)
            if verdict is not None:
                engine.close(number)
                del output[number]
                yield running.pop(number), verdict


def _verdict(engine: PlainDecoding, number: int, tokens: Sequence[int], run: Run) -> AnswerVerdict | None:
    """What is known of an answer after a run; None if it has to go on."""
    expected, differences = engine.expected[number], tuple(engine.differences[number])
    if differences and not differences[-1].near:
        return AnswerVerdict(tuple(tokens), differences)
    if run.finish_reason is None and not expected.over(tokens):
        return None
    return AnswerVerdict(tuple(tokens), differences, expected.complaint(tokens, run.finish_reason))


def _empty(expected: ExpectedAnswer) -> AnswerVerdict:
    """Of an answer without a token, which plain decoding never gives."""
    complaint = expected.complaint((), None)
    return AnswerVerdict((), complaint=complaint or "it was cut before its first token", skipped=not complaint)


def _plain(request: GenerationRequest) -> GenerationRequest:
    """The same without what changes no token."""
    params = msgspec.structs.replace(request.params, logprobs=None, prompt_logprobs=None)
    return msgspec.structs.replace(
        request, params=params, num_speculative_tokens=0, always_draft=False, prediction=(), owner=None
    )


def _shifted(params: SamplingParams, by: int) -> dict[str, Any]:
    """The filters, letting in a little more or less."""
    return {
        "top_k": max(1, params.top_k + by) if params.top_k else 0,
        "top_p": min(1.0, max(EDGE, params.top_p + by * EDGE)) if params.top_p < 1.0 else 1.0,
        "min_p": params.min_p * (1.0 - by * EDGE),
    }
