"""Baselines for the router, and the timing of classifiers: a small BERT, and the partition's nearest centroid.

To add a baseline: a network here that is called as `Network` is, and its entry in `train_jobs.stages.router`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
import torch
from torch import nn

from core.tasks.classifier import LONGEST, ClassifierConfig
from core.tasks.clustering import TaskPartition
from core.tasks.embedding import Encode

BERT_LEARNING_RATE = 5e-4  # the router's own rate is too high for BERT
_WARM_UP = 3
_Prompt = TypeVar("_Prompt")


class BertMini(nn.Module):
    """A BERT of 4 layers, 256 wide, randomly initialised; called as the router's network is."""

    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        self.bert = BertModel(
            BertConfig(
                vocab_size=config.vocab_size,
                hidden_size=256,
                num_hidden_layers=4,
                num_attention_heads=4,
                intermediate_size=1024,
                max_position_embeddings=LONGEST,
            ),
            add_pooling_layer=False,
        )
        self.head = nn.Linear(256, len(config.tasks) + 1)

    def forward(self, tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Logits [n, tasks + 1] of `tokens` [n, longest], padded on the right beyond `lengths` [n]."""
        inside = torch.arange(tokens.shape[1]) < lengths[:, None]
        states = self.bert(tokens, attention_mask=inside.long()).last_hidden_state
        logits: torch.Tensor = self.head((states * inside[:, :, None]).sum(1) / lengths[:, None])
        return logits


class NearestCentroid:
    """The partition's own assignment: a sentence encoder and the nearest centroid."""

    def __init__(self, encode: Encode, partition: TaskPartition) -> None:
        self._encode = encode
        self._partition = partition

    def __call__(self, text: str) -> str:
        """The task's name."""
        return self.names([text])[0]

    def names(self, texts: Sequence[str]) -> list[str]:
        """The task of each text, encoded together."""
        labels = self._partition.assign(texts, self._encode(texts)).tolist()
        return [self._partition.names[label] for label in labels]


def milliseconds(classify: Callable[[_Prompt], object], prompts: Sequence[_Prompt]) -> tuple[float, float]:
    """p50 and p99 of the time per prompt, on one thread, one prompt per call."""
    with _one_thread():
        for prompt in prompts[:_WARM_UP]:
            classify(prompt)
        taken = [_taken(classify, prompt) for prompt in prompts]
    p50, p99 = np.percentile(taken, (50, 99)).tolist()
    return p50, p99


def _taken(classify: Callable[[_Prompt], object], prompt: _Prompt) -> float:
    began = time.perf_counter()
    classify(prompt)
    return 1e3 * (time.perf_counter() - began)


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
