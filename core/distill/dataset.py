"""The training set of a draft: records with the target's log-probabilities, computed once by teacher forcing.

Only the target's `top` most likely tokens are kept at each position, 6 bytes each: 64 take 400 bytes, where all 32,000
tokens of a vocabulary in float32 take 128 KB. The file of a set holds the same flat tensors as the set in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from random import Random

import torch
from safetensors.torch import load_file, save

from core.atomic_files import replace
from core.model.base import Model
from core.replay.replay import session_forward
from core.traces.record import Record

_SORTED_BATCHES = 48  # rows of similar length are grouped within this many batches


@dataclass(frozen=True, slots=True)
class DistillationSet:
    """`tokens` int32 [all tokens]; `lengths` and `prompt_lengths` int64 [records].

    `ids` int32 and `logprobs` float16 [all output tokens, top] are the target's most likely tokens at the position of
    each output token, and their log_softmax of its raw logits.
    """

    tokens: torch.Tensor
    lengths: torch.Tensor
    prompt_lengths: torch.Tensor
    ids: torch.Tensor
    logprobs: torch.Tensor

    def save(self, file: Path) -> None:
        """Write one safetensors file, by one rename."""
        replace(file, save({name: getattr(self, name) for name in self.__slots__}))

    @classmethod
    def load(cls, file: Path) -> DistillationSet:
        return cls(**load_file(file))

    @classmethod
    def join(cls, sets: Sequence[DistillationSet]) -> DistillationSet:
        """All records of several sets, in order."""
        return cls(*(torch.cat([getattr(data, name) for data in sets]) for name in cls.__slots__))

    def take(self, records: Sequence[int]) -> DistillationSet:
        """These records, in this order."""
        outputs = self.lengths - self.prompt_lengths
        tokens = _pieces(self.lengths, records)
        positions = _pieces(outputs, records)
        return DistillationSet(
            self.tokens[tokens],
            self.lengths[list(records)],
            self.prompt_lengths[list(records)],
            self.ids[positions],
            self.logprobs[positions],
        )


@dataclass(frozen=True, slots=True)
class DistillationBatch:
    """`tokens` int64 [rows, length], padded on the right.

    `predicts_output` bool of that shape says where the next token is output. `ids` int64 and `logprobs` float32
    [positions, top] are the target's most likely tokens at these positions.
    """

    tokens: torch.Tensor
    predicts_output: torch.Tensor
    ids: torch.Tensor
    logprobs: torch.Tensor


@torch.inference_mode()
def distil(target: Model, records: Sequence[Record], top: int, context: int) -> DistillationSet:
    """One teacher-forced pass of the target over every record, cut after the draft's `context`.

    The target needs pages for one session of its context.
    """
    forward = session_forward(target)
    fitting = [record for record in records if record.prompt_length < context]
    tokens, ids, logprobs = [], [], []
    for record in fitting:
        sequence = record.tokens[: context + 1]
        logits = forward(sequence[:-1], len(sequence) - record.prompt_length)
        best = logits.log_softmax(-1).topk(min(top, target.vocab_size))
        tokens.append(torch.tensor(sequence, dtype=torch.int32))
        ids.append(best.indices.to("cpu", torch.int32))
        logprobs.append(best.values.to("cpu", torch.float16))
    lengths = torch.tensor([len(sequence) for sequence in tokens])
    prompts = torch.tensor([record.prompt_length for record in fitting])
    return DistillationSet(torch.cat(tokens), lengths, prompts, torch.cat(ids), torch.cat(logprobs))


def _pieces(lengths: torch.Tensor, records: Sequence[int]) -> torch.Tensor:
    """Indices of the pieces of `records` in a flat tensor whose pieces have these `lengths`."""
    ends = lengths.cumsum(0).tolist()
    return torch.cat([torch.arange(ends[record] - int(lengths[record]), ends[record]) for record in records])


class DistillationBatches:
    """Endless batches of at most `budget` padded tokens, shuffled in every epoch, with rows of similar length.

    A record longer than the budget is a batch of its own.
    """

    def __init__(self, data: DistillationSet, budget: int, seed: int) -> None:
        self._data = data
        self._budget = budget
        self._seed = seed
        self._lengths: list[int] = data.lengths.tolist()
        self._prompts: list[int] = data.prompt_lengths.tolist()
        self._first_token = [0, *accumulate(self._lengths)]
        outputs = (length - prompt for length, prompt in zip(self._lengths, self._prompts, strict=True))
        self._first_output = [0, *accumulate(outputs)]

    def __getitem__(self, chosen: Sequence[int]) -> DistillationBatch:
        """The records of these indices as one batch."""
        shape = (len(chosen), max(self._lengths[index] for index in chosen) - 1)
        tokens, predicts_output = torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.bool)
        for row, index in enumerate(chosen):
            first, length = self._first_token[index], self._lengths[index] - 1
            tokens[row, :length] = self._data.tokens[first : first + length]
            predicts_output[row, self._prompts[index] - 1 : length] = True
        positions = torch.cat([torch.arange(*self._first_output[index : index + 2]) for index in chosen])
        return DistillationBatch(
            tokens, predicts_output, self._data.ids[positions].long(), self._data.logprobs[positions].float()
        )

    def stream(self, done: int) -> Iterator[DistillationBatch]:
        """All batches after the first `done`."""
        for number, chosen in enumerate(self._order()):
            if number >= done:
                yield self[chosen]

    def _order(self) -> Iterator[list[int]]:
        average = sum(self._lengths) / len(self._lengths)
        block, epoch = max(1, int(_SORTED_BATCHES * self._budget / average)), 0
        while True:
            rng = Random(f"order/{self._seed}/{epoch}")
            order = rng.sample(range(len(self._lengths)), len(self._lengths))
            for start in range(0, len(order), block):
                by_length = sorted(order[start : start + block], key=lambda index: -self._lengths[index])
                cuts = list(self._cut(by_length))
                rng.shuffle(cuts)
                yield from cuts
            epoch += 1

    def _cut(self, longest_first: Sequence[int]) -> Iterator[list[int]]:
        rows: list[int] = []
        for index in longest_first:
            if rows and (len(rows) + 1) * (self._lengths[rows[0]] - 1) > self._budget:
                yield rows
                rows = []
            rows.append(index)
        yield rows
