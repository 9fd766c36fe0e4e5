"""The target of `many_answers`: it answers prompts in large batches, and writes prompts of its own."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import torch

from core.distill.dataset import DistillationSet
from tests.bench.batched_answers import Batch, Llama

WIDTHS = (64, 96, 128, 256, 512)  # tokens of prompts that are answered together
NEWS = 3.0  # seconds between two lines about progress
_LEAST_WRITTEN, _MOST_WRITTEN = 6, 96  # tokens of a prompt that the target writes
_TRIES = 3  # for each prompt that is wanted


class Request(NamedTuple):
    """A prompt, and the temperature that it is answered at."""

    prompt: tuple[int, ...]
    temperature: float


class Target:
    """The target, in bf16 on a GPU. Of what was `chosen` it takes `batch`, `max_tokens` and `graph`."""

    def __init__(
        self, directory: Path, device: torch.device, eos_ids: Sequence[int], chosen: argparse.Namespace
    ) -> None:
        self._chosen, self._eos_ids = chosen, eos_ids
        self._llama = Llama(directory, torch.bfloat16 if device.type == "cuda" else torch.float32, device)
        self._graph = device.type == "cuda" and chosen.graph

    def answer(self, requests: Sequence[Request], head_ids: Sequence[int] | None, until: float) -> DistillationSet:
        """The answers in the order of their requests; where time is short, of those that were answered."""
        answered: list[int] = []
        sets: list[DistillationSet] = []
        batches: dict[int, Batch] = {}
        news = News("answers", len(requests))
        for width, some in _grouped(requests, self._chosen.batch):
            if time.time() > until:
                break
            if width not in batches:
                batches[width] = self._batch(width, self._chosen.max_tokens, head_ids)
            chosen = [requests[number] for number in some]
            sets.append(batches[width]([one.prompt for one in chosen], [one.temperature for one in chosen]))
            answered += some
            news.tell(len(some), int((sets[-1].lengths - sets[-1].prompt_lengths).sum()))
        if not sets:
            raise SystemExit("--answer-seconds: nothing was answered in time")
        order = sorted(range(len(answered)), key=answered.__getitem__)
        return DistillationSet.join(sets).take(order)

    def write(self, given: Sequence[tuple[int, ...]], taken: set[tuple[int, ...]], count: int) -> list[tuple[int, ...]]:
        """At most `count` new prompts: what the target writes between the beginning and the end that all prompts share.

        It tries at most `_TRIES` times as often.
        """
        begin, end = _shared(given, self._eos_ids)
        rows, width = self._chosen.batch, -(-len(begin) // 8) * 8
        batch = self._batch(width, _MOST_WRITTEN, None)
        written: dict[tuple[int, ...], None] = {}
        news = News("prompts", count)
        for _ in range(-(-_TRIES * count // rows)):
            if len(written) >= count:
                break
            drawn = batch([begin] * rows, [1.0] * rows)
            texts = [tuple(part.tolist()[len(begin) :]) for part in drawn.tokens.split(drawn.lengths.tolist())]
            closed = [text[:-1] for text in texts if text[-1] == end[0] and len(text) > _LEAST_WRITTEN]
            before = len(written)
            written |= dict.fromkeys(prompt for text in closed if (prompt := begin + text + end) not in taken)
            news.tell(len(written) - before, sum(map(len, texts)))
        return list(written)[:count]

    def _batch(self, width: int, steps: int, head_ids: Sequence[int] | None) -> Batch:
        return Batch(self._llama, self._chosen.batch, width, steps, self._eos_ids, head_ids, graph=self._graph)


class News:
    """Prints every few seconds how much is done."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total = what, total
        self._done = self._tokens = 0
        self._began = self._told = time.time()

    def tell(self, done: int, tokens: int) -> None:
        self._done += done
        self._tokens += tokens
        now = time.time()
        if now - self._told > NEWS or self._done >= self._total:
            rate = self._tokens / (now - self._began)
            print(f"  {self._done} of {self._total} {self._what}, {rate:,.0f} tokens/s", flush=True)
            self._told = now


def _grouped(requests: Sequence[Request], most: int) -> Iterator[tuple[int, list[int]]]:
    """The numbers of requests with prompts of like width, at most so many together, about in their order."""
    waiting: dict[int, list[int]] = {width: [] for width in WIDTHS}
    for number, request in enumerate(requests):
        width = next(width for width in WIDTHS if len(request.prompt) <= width)
        waiting[width].append(number)
        if len(waiting[width]) == most:
            yield width, waiting[width]
            waiting[width] = []
    yield from ((width, rest) for width, rest in waiting.items() if rest)


def _shared(prompts: Sequence[tuple[int, ...]], eos_ids: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The beginning of all prompts, and their end from where a message ends."""
    begin, end = _beginning(prompts), _beginning([prompt[::-1] for prompt in prompts])[::-1]
    return begin, end[next(place for place, token in enumerate(end) if token in eos_ids) :]


def _beginning(prompts: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(tokens[0] for tokens in takewhile(lambda tokens: len(set(tokens)) == 1, zip(*prompts, strict=False)))
