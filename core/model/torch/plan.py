"""The plan of a pass: the tensors that torch's decoder reads beside the weights, moved to the device in one copy.

A `Layout` says how rows attend to the pages of their sessions. attention.py has that of CPUs, paged.py that of GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, Protocol

import torch

from core.model.pages import PAGE_SIZE, Span


class Layout(Protocol):
    """The keys that each row of a pass attends over, and the way to read them."""

    def attend(self, query: torch.Tensor, cache: torch.Tensor, window: int | None, scale: float) -> torch.Tensor:
        """Causal attention of `query` [rows, heads, head_dim] over one layer's `cache` -> [rows, heads * head_dim].

        `cache`: [2 * kv heads, pages, PAGE_SIZE * head_dim], the keys' heads before the values'. A row sees the last
        `window` tokens, or all with None. Scores are multiplied by `scale`.
        """

    def tensors(self) -> Iterator[torch.Tensor]: ...

    def with_tensors(self, tensors: Iterator[torch.Tensor]) -> Layout:
        """The same layout over the next of `tensors`, which have the same shapes."""


class Laid(NamedTuple):
    """A layout whose integers are not yet on the device."""

    lists: Sequence[list[int]]
    made_of: Callable[[Sequence[torch.Tensor]], Layout]


class Layouts(Protocol):
    """Makes the layouts of the passes of one model."""

    def lay(self, spans: Sequence[Span], num_rows: int) -> Laid:
        """Lay out a pass; `num_rows` includes the padding rows behind the last span."""


class Plan(NamedTuple):
    """`tokens` and `positions` are [rows]; `slots` [stored rows] says where each key is stored."""

    tokens: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    layout: Layout


class Planner:
    """Makes the plans of one model's passes over a cache of `num_pages` pages and a spare one behind them.

    If plans are `replayed`, padding rows are stored in the spare page. Then a plan's shapes say all but its values.
    """

    def __init__(self, layouts: Layouts, num_pages: int, device: torch.device, *, replayed: bool = False) -> None:
        self._layouts = layouts
        self._num_pages = num_pages
        self._device = device
        self._replayed = replayed

    def plan(self, tokens: Sequence[int], spans: Sequence[Span], num_rows: int) -> Plan:
        """Plan a pass; `num_rows` includes the padding rows behind the last span, which belong to no session."""
        padding = [0] * (num_rows - len(tokens))
        positions = [position for span in spans for position in range(span.start, span.start + span.length)]
        slots = [slot for span in spans for slot in _slots(span)]
        if self._replayed:
            slots += [self._num_pages * PAGE_SIZE] * len(padding)
        laid = self._layouts.lay(spans, num_rows)
        lists = ([*tokens, *padding], [*positions, *padding], slots, *laid.lists)
        together = torch.tensor(list(chain.from_iterable(lists)), dtype=torch.int64, device=self._device)
        at_tokens, at_positions, stores, *rest = torch.split(together, [len(values) for values in lists])
        return Plan(at_tokens, at_positions, stores, laid.made_of(rest))


def _slots(span: Span) -> list[int]:
    positions = range(span.start, span.start + span.length)
    return [span.pages[position // PAGE_SIZE] * PAGE_SIZE + position % PAGE_SIZE for position in positions]
