"""Passes launched as one: on a GPU, launching the kernels of a small pass one by one takes longer than they do.

Enters: a pass as a function of tensors. Leaves: the same function, which records a pass whose shapes come up again as a
CUDA graph, and from then on copies its arguments to where the recorded kernels read, and replays them.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from core.model.attention import Plan

MOST_ROWS = 64  # larger passes keep a GPU busy for longer than their launches take
MOST_GRAPHS = 128  # each holds some megabytes of the device; the least recent gives way
SIGHTINGS = 2  # of the same shapes before recording pays
MOST_MET = 1024  # shapes whose sightings are counted at a time

Pass = Callable[[Plan, torch.Tensor], torch.Tensor]
Recorded = tuple[torch.Tensor, Callable[[], None]]  # where the result lies, and how to make it anew
Recorder = Callable[[Callable[[], torch.Tensor]], Recorded]
Shapes = tuple[tuple[int, ...], ...]


class _Graph(NamedTuple):
    """`arguments` are where the recorded kernels read."""

    arguments: list[torch.Tensor]
    result: torch.Tensor
    replay: Callable[[], None]


class Graphs:
    """`run`, recorded by shapes."""

    def __init__(self, run: Pass, record: Recorder) -> None:
        self._run = run
        self._record = record
        self._met: Counter[Shapes] = Counter()
        self._graphs: OrderedDict[Shapes, _Graph] = OrderedDict()

    def __call__(self, plan: Plan, wanted: torch.Tensor) -> torch.Tensor:
        if plan.tokens.shape[0] > MOST_ROWS:
            return self._run(plan, wanted)
        arguments = _arguments(plan, wanted)
        shapes = tuple(tuple(tensor.shape) for tensor in arguments)
        if shapes not in self._graphs:
            if len(self._met) > MOST_MET:
                self._met.clear()
            self._met[shapes] += 1
            if self._met[shapes] <= SIGHTINGS:
                return self._run(plan, wanted)
            self._add(shapes, plan, wanted)
        self._graphs.move_to_end(shapes)
        graph = self._graphs[shapes]
        torch._foreach_copy_(graph.arguments, arguments)  # one launch for all of them (private, used here only)
        graph.replay()
        return graph.result.clone()

    def _add(self, shapes: Shapes, plan: Plan, wanted: torch.Tensor) -> None:
        own = _with(plan, [tensor.clone() for tensor in _arguments(plan, wanted)[:-1]])
        own_wanted = wanted.clone()
        result, replay = self._record(lambda: self._run(own, own_wanted))
        self._graphs[shapes] = _Graph(_arguments(own, own_wanted), result, replay)
        while len(self._graphs) > MOST_GRAPHS:
            self._graphs.popitem(last=False)


def cuda_recorder() -> Recorder:
    """Records CUDA graphs that share their memory: one of them runs at a time."""
    pool = torch.cuda.graph_pool_handle()

    def record(run: Callable[[], torch.Tensor]) -> Recorded:
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            result = run()
        return result, graph.replay

    return record


def _arguments(plan: Plan, wanted: torch.Tensor) -> list[torch.Tensor]:
    """Every tensor of a pass; the pages of its groups must be tensors, not parts of the cache."""
    by_group: list[torch.Tensor] = []
    for group in plan.groups:
        assert isinstance(group.pages, torch.Tensor)
        by_group += [group.pages, group.mask]
    return [plan.tokens, plan.positions, plan.row_of_place, plan.place_of_row, plan.slots, *by_group, wanted]


def _with(plan: Plan, tensors: Sequence[torch.Tensor]) -> Plan:
    """The plan with other tensors of the same shapes, as `_arguments` has them."""
    tokens, positions, row_of_place, place_of_row, slots, *by_group = tensors
    of_groups = zip(plan.groups, by_group[::2], by_group[1::2], strict=True)
    groups = [group._replace(pages=pages, mask=mask) for group, pages, mask in of_groups]
    return Plan(tokens, positions, row_of_place, place_of_row, slots, groups)
