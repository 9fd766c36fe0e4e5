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
        is_driver_worker: bool

    def begin_passes(self) -> Cache:
        """Take over the runner, whose model is loaded and whose cache is allocated."""
        runner = self.model_runner
        config, batch = runner.kv_cache_config, runner.input_batch
        self.passes = RunnerPasses(runner)
        kinds = [type(group.kv_cache_spec).__name__ for group in config.kv_cache_groups]
        return Cache(
            config.num_blocks, runner.cache_config.block_size, kinds, runner.max_num_tokens, batch.max_num_reqs
        )

    def run_pass(self, ordered: Pass) -> torch.Tensor | None:
        """The fp32 logits [logit rows, ids], on rank 0; None on the others, and of no rows."""
        logits = self.passes.run(ordered)
        return logits if self.is_driver_worker else None  # vLLM gathers them on every rank


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
        logits: torch.Tensor | None = None
        if ordered.logit_rows:
            rows = self._rows_of(ordered)
            alone = ordered.doubled and len(rows) == 1
            logits = self._head(hidden[torch.tensor(rows * 2 if alone else rows, device=hidden.device)])
            logits = None if logits is None else logits[: len(rows)].float()
        if hidden.is_cuda:  # the next pass writes into the buffers that this one's inputs are copied from
            torch.cuda.current_stream(hidden.device).synchronize()
        return logits

    def _rows_of(self, ordered: Pass) -> list[int]:
        """Where the runner, whose batch has an order of its own, has the rows whose logits are asked for."""
        lengths = {_name(span): span.length for span in ordered.spans}
        begins, begin = {}, 0
        for name in self._runner.input_batch.req_ids:
            begins[name] = begin
            begin += lengths[name]
        moves = [begins[_name(span)] - span.first_row for span in ordered.spans for _ in range(span.length)]
        return [row + moves[row] for row in ordered.logit_rows]

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
                new.append(_request(name, pages, span.start))
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
        output.finished_req_ids = self._forgotten()
        output.kv_cache_block_copies = [
            KVCacheBlockCopy(source + _FIRST_BLOCK, target + _FIRST_BLOCK) for source, target in ordered.copies
        ]
        return output

    def _forgotten(self) -> set[str]:
        """The requests that have not run for longest, where there are more than the runner has places for."""
        names = list(self._pages)[: max(0, len(self._pages) - self._max_requests)]
        for name in names:
            del self._pages[name]
        return set(names)


def _request(name: str, pages: Sequence[int], start: int) -> NewRequestData:
    return NewRequestData(
        req_id=name,
        prompt_token_ids=_PROMPT,
        mm_features=[],
        sampling_params=SamplingParams(temperature=0),
        pooling_params=None,
        block_ids=(_blocks(pages),),
        num_computed_tokens=start,
        lora_request=None,
    )


def _no_logits(hidden: torch.Tensor) -> None:
    """In place of a model's head."""


def _name(span: Span) -> str:
    return str(span.session)


def _blocks(pages: Sequence[int]) -> list[int]:
    return [page + _FIRST_BLOCK for page in pages]
