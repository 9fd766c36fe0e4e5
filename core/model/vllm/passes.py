"""What a rank of vLLM does for TaskSpec: passes over rows and pages that its caller chose.

vLLM mixes `PassWorker` into the worker class of the platform. Its methods are called on every rank, as vLLM calls those
of a worker. vLLM's own scheduler and sampler are idle: a pass is a `SchedulerOutput` made here, and a request of the
runner is no more than a session's page table and position.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from vllm import SamplingParams
from vllm.v1.core.kv_cache_utils import KVCacheBlockCopy
from vllm.v1.core.sched.output import CachedRequestData, NewRequestData, SchedulerOutput

from core.model.pages import Span
from core.model.vllm.decoder import Cache, Pass

_FIRST_BLOCK = 1  # of page 0: vLLM's block 0 is for rows that are padding
_PROMPT = [0]  # of every request; the tokens of a pass are placed when it runs


class PassWorker:
    """The methods that vLLM's worker gains."""

    if TYPE_CHECKING:
        model_runner: Any

    def begin_passes(self) -> Cache:
        """Take over the runner, whose model is loaded and whose cache is allocated."""
        config = self.model_runner.kv_cache_config
        self.passes = RunnerPasses(self.model_runner)
        kinds = [type(group.kv_cache_spec).__name__ for group in config.kv_cache_groups]
        runner = self.model_runner
        return Cache(config.num_blocks, runner.cache_config.block_size, kinds, runner.max_num_tokens)

    def run_pass(self, ordered: Pass) -> torch.Tensor | None:
        """The fp32 logits [logit rows, ids], on rank 0; None on the others, and of no rows."""
        return self.passes.run(ordered)


class RunnerPasses:
    """Runs passes on a model runner, and remembers which page tables it has."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._pages: dict[str, list[int]] = {}  # of its requests, the one that ran last at the end
        self._max_requests: int = runner.input_batch.max_num_reqs
        self._ordered = Pass((), (), (), ())
        self._prepare_inputs = runner._prepare_inputs
        runner._prepare_inputs = self._place_tokens
        # The runner computes logits of the last row of each request. They are computed below, for the rows asked for.
        self._head = runner.model.compute_logits
        runner.model.compute_logits = _no_logits

    @torch.inference_mode()
    def run(self, ordered: Pass) -> torch.Tensor | None:
        runner, self._ordered = self._runner, ordered
        runner.execute_model(self._scheduled(ordered))
        hidden = runner.execute_model_state.hidden_states
        runner.execute_model_state = None  # nothing is sampled there
        if not ordered.logit_rows:
            return None
        begins, begin = {}, 0
        lengths = {_name(span): span.length for span in ordered.spans}
        for name in runner.input_batch.req_ids:  # in an order of its own
            begins[name] = begin
            begin += lengths[name]
        moves = [begins[_name(span)] - span.first_row for span in ordered.spans for _ in range(span.length)]
        rows = torch.tensor([row + moves[row] for row in ordered.logit_rows], device=hidden.device)
        logits: torch.Tensor | None = self._head(hidden[rows])
        return None if logits is None else logits.float()

    def _place_tokens(self, scheduled: SchedulerOutput, lengths: Any) -> Any:
        """Called by the runner when every request has its place in the batch, before its inputs are read from there."""
        batch, ordered = self._runner.input_batch, self._ordered
        for span in ordered.spans:
            tokens = ordered.tokens[span.first_row : span.first_row + span.length]
            batch.token_ids_cpu[batch.req_id_to_index[_name(span)], span.start : span.start + span.length] = tokens
        return self._prepare_inputs(scheduled, lengths)

    def _scheduled(self, ordered: Pass) -> SchedulerOutput:
        new, cached = [], CachedRequestData.make_empty()
        for span in ordered.spans:
            name, pages = _name(span), list(span.pages)
            before = self._pages.pop(name, None)
            self._pages[name] = pages
            if before is None:
                params = SamplingParams(temperature=0)
                new.append(NewRequestData(name, _PROMPT, [], params, None, (_blocks(pages),), span.start, None))
                continue
            grown = pages[: len(before)] == before
            if not grown:
                cached.resumed_req_ids.add(name)
            added = pages[len(before) :] if grown else pages
            cached.req_ids.append(name)
            cached.new_block_ids.append((_blocks(added),) if added or not grown else None)
            cached.num_computed_tokens.append(span.start)
            cached.num_output_tokens.append(0)
        output = SchedulerOutput.make_empty()
        output.scheduled_new_reqs, output.scheduled_cached_reqs = new, cached
        output.num_scheduled_tokens = {_name(span): span.length for span in ordered.spans}
        output.total_num_scheduled_tokens = len(ordered.tokens)
        output.finished_req_ids = self._forgotten(len(ordered.spans))
        output.kv_cache_block_copies = [
            KVCacheBlockCopy(source + _FIRST_BLOCK, target + _FIRST_BLOCK) for source, target in ordered.copies
        ]
        return output

    def _forgotten(self, num_running: int) -> set[str]:
        """The requests that have not run for longest, where there are more than the runner has places for."""
        names = list(self._pages)[: max(0, len(self._pages) - max(self._max_requests, num_running))]
        for name in names:
            del self._pages[name]
        return set(names)


def _no_logits(hidden: torch.Tensor) -> None:
    """In place of a model's head."""


def _name(span: Span) -> str:
    return str(span.session)


def _blocks(pages: Sequence[int]) -> list[int]:
    return [page + _FIRST_BLOCK for page in pages]
