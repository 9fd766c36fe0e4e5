"""CUDA graphs of small passes: on a GPU, launching their kernels one by one takes longer than running them.

`Graphs` wraps a function of tensors. It records a CUDA graph of passes whose shapes recur. From then on it copies the
arguments to the tensors that the recorded kernels read, and replays the graph.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from core.model.torch.plan import Plan

MOST_ROWS = 64  # larger passes run longer than their launches take
MOST_GRAPHS = 128  # each holds some megabytes of the device; the least recently used is dropped
SIGHTINGS = 2  # of the same shapes, before they are recorded
MOST_MET = 1024  # shapes whose sightings are counted

Recorded = tuple[torch.Tensor, Callable[[], None]]  # the result, and the call that computes it anew
Recorder = Callable[[Callable[[], torch.Tensor]], Recorded]
Shapes = tuple[tuple[int, ...], ...]


class PlannedPass(NamedTuple):
    """The plan of a pass, and the rows whose logits are asked for."""

    plan: Plan
    logit_rows: torch.Tensor


Run = Callable[[PlannedPass], torch.Tensor]


class _Graph(NamedTuple):
    """A recording; its kernels read from `arguments`."""

    arguments: list[torch.Tensor]
    result: torch.Tensor
    replay: Callable[[], None]


class Graphs:
    """The function `run`, recorded by shapes."""

    def __init__(self, run: Run, record: Recorder) -> None:
        self._run = run
        self._record = record
        self._met: Counter[Shapes] = Counter()
        self._graphs: OrderedDict[Shapes, _Graph] = OrderedDict()

    def __call__(self, request: PlannedPass) -> torch.Tensor:
        if request.plan.tokens.shape[0] > MOST_ROWS:
            return self._run(request)
        arguments = _arguments(request)
        shapes = tuple(tuple(tensor.shape) for tensor in arguments)
        if shapes not in self._graphs:
            if len(self._met) > MOST_MET:
                self._met.clear()
            self._met[shapes] += 1
            if self._met[shapes] <= SIGHTINGS:
                return self._run(request)
            self._add(shapes, request)
        self._graphs.move_to_end(shapes)
        graph = self._graphs[shapes]
        torch._foreach_copy_(graph.arguments, arguments)  # one launch for all of them (private, used here only)
        graph.replay()
        return graph.result.clone()

    def _add(self, shapes: Shapes, request: PlannedPass) -> None:
        own = _with(request, [tensor.clone() for tensor in _arguments(request)])
        result, replay = self._record(lambda: self._run(own))
        self._graphs[shapes] = _Graph(_arguments(own), result, replay)
        while len(self._graphs) > MOST_GRAPHS:
            self._graphs.popitem(last=False)


def cuda_recorder() -> Recorder:
    """A recorder of CUDA graphs, which share their memory because one runs at a time."""
    pool = torch.cuda.graph_pool_handle()

    def record(run: Callable[[], torch.Tensor]) -> Recorded:
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            result = run()
        return result, graph.replay

    return record


def _arguments(request: PlannedPass) -> list[torch.Tensor]:
    """All tensors of a pass."""
    plan = request.plan
    return [plan.tokens, plan.positions, plan.slots, *plan.layout.tensors(), request.logit_rows]


def _with(request: PlannedPass, tensors: Sequence[torch.Tensor]) -> PlannedPass:
    """The pass with other tensors of the same shapes, in the order of `_arguments`."""
    rest = iter(tensors)
    plan = Plan(next(rest), next(rest), next(rest), request.plan.layout.with_tensors(rest))
    return PlannedPass(plan, next(rest))
