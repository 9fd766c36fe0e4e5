"""The decoder in torch: runs passes on GPUs, or on CPUs without compiled kernels.

A row's bits are its own: linear layers are probed for kernels with independent rows (linear.py), attention is laid into
tiles that depend on the position only (attention.py), and everything else works row by row. On a GPU with fast numerics
attention may use FlashAttention instead (flash.py). Passes are padded to row counts that the linear layers prefer. On a
GPU small passes are replayed from recordings (graphs.py), and padded so that few recordings suffice. The tokens that a
draft draws one after another are one recording.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F  # noqa: N812

from core.model.bfloat16 import Weight
from core.model.config import LayerPlan, ModelConfig
from core.model.draft_tokens import DraftToken, StopRule, draft_tokens
from core.model.pages import Span
from core.model.tensor_views import as_tensor
from core.model.tensors import LayerTensors, Matrix, Tensors
from core.model.torch.attention import TileLayouts
from core.model.torch.flash import PageTableLayouts, installed
from core.model.torch.graphs import Graphs, Passes, Recorder, Run
from core.model.torch.linear import Linear, padded
from core.model.torch.plan import Layouts, Plan, Planner
from core.model.torch.transformer import Layer, Transformer

_ROW_STEP = 4  # rows of replayed passes are a multiple of it; more rows cost nothing while passes wait for weights


class TorchDecoder:
    """Computes in the dtype of its weights over a `cache` [layers, 2 * kv heads, num_pages + 1, ...].

    With `record` passes are replayed, and `draw` draws all tokens of a proposal at once; without it the decoder does
    not draw. With `flash` attention reads pages in place, and a row's bits may depend on other rows.
    """

    def __init__(
        self,
        config: ModelConfig,
        transformer: Transformer,
        head: Linear,
        cache: torch.Tensor,
        record: Recorder | None = None,
        flash: bool = False,
        head_ids: torch.Tensor | None = None,
    ) -> None:
        self.draws = self.loops = record is not None
        self._num_logits = config.vocab_size if head_ids is None else len(head_ids)
        self._head_ids = head_ids
        self._transformer = transformer
        self._head = head
        self._cache = cache
        num_pages, replayed = cache.shape[2] - 1, record is not None
        layouts = PageTableLayouts(num_pages) if flash else _tiles(config, cache)
        self._planner = Planner(layouts, num_pages, cache.device, replayed=replayed)
        self._run: Run = self._launch if record is None else Graphs(self._launch, record)
        self._row_step = 1 if record is None else _ROW_STEP

    @classmethod
    @torch.inference_mode()
    def load(
        cls, config: ModelConfig, tensors: Tensors, cache: torch.Tensor, record: Recorder | None, *, exact: bool
    ) -> TorchDecoder:
        def there(array: Weight) -> torch.Tensor:
            return as_tensor(array).to(cache.device)

        layers = [
            _layer(plan, layer, there, exact=exact) for plan, layer in zip(config.layers, tensors.layers(), strict=True)
        ]
        transformer = Transformer(config, there(tensors.embedding), layers, there(tensors.norm))
        head, ids = _linear(tensors.head, there, exact=exact), tensors.head_ids
        flash = not exact and cache.device.type == "cuda" and installed(config, cache.dtype, cache.device) is not None
        return cls(config, transformer, head, cache, record, flash, None if ids is None else there(ids))

    @torch.inference_mode()
    def __call__(self, tokens: Sequence[int], spans: Sequence[Span], wanted: Sequence[int]) -> torch.Tensor:
        plan = self._plan(tokens, spans)
        if not wanted:
            self._transformer(plan, self._cache)
            return torch.empty(0, self._num_logits, device=self._cache.device)
        padding = [wanted[-1]] * (self._stepped(padded(len(wanted), self._head.sizes)) - len(wanted))
        return self._run(Passes([plan], self._tensor([*wanted, *padding])))[: len(wanted)].float()

    @torch.inference_mode()
    def draw(
        self,
        tokens: Sequence[int],
        spans: Sequence[Span],
        steps: int,
        num_ids: int,
        noise: torch.Tensor | None,
        ending: StopRule,  # noqa: ARG002 (drawing all takes no longer)
    ) -> list[list[DraftToken]]:
        plans = [self._plan(tokens, spans)]
        for step in range(steps - 1):
            later = [Span(row, span.start + span.length + step, 1, span.pages) for row, span in enumerate(spans)]
            plans.append(self._plan([0] * len(spans), later))
        ends = [span.first_row + span.length - 1 for span in spans]
        if noise is None:
            noise = torch.zeros(steps, len(spans), num_ids, device=self._cache.device)
        drawn = draft_tokens(self._run(Passes(plans, self._tensor(ends), noise)).flatten(0, 1), self._head_ids)
        return [drawn[index :: len(spans)] for index in range(len(spans))]

    def _launch(self, passes: Passes) -> torch.Tensor:
        """The logits of the `wanted` rows of one pass, or the scores [passes, sessions, ids] of several."""
        plan, *plans = passes.plans
        logits = self._head(self._transformer(plan, self._cache).index_select(0, passes.wanted))
        if passes.noise is None:
            return logits
        scores = [_scored(logits, passes.noise[0])]
        for plan, noise in zip(plans, passes.noise[1:], strict=True):
            columns = scores[-1].argmax(-1)
            drawn = columns if self._head_ids is None else self._head_ids[columns]
            tokens = F.pad(drawn, (0, len(plan.tokens) - len(noise)))
            hidden = self._transformer(plan._replace(tokens=tokens), self._cache)
            scores.append(_scored(self._head(hidden), noise))
        return torch.stack(scores)

    def _plan(self, tokens: Sequence[int], spans: Sequence[Span]) -> Plan:
        return self._planner.plan(tokens, spans, self._stepped(self._transformer.padded(len(tokens))))

    def _stepped(self, rows: int) -> int:
        return -(-rows // self._row_step) * self._row_step

    def _tensor(self, values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._cache.device)


def _scored(logits: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """The scores of as many rows and ids as `noise` has."""
    rows, ids = noise.shape
    return logits[:rows, :ids].float() + noise


def _tiles(config: ModelConfig, cache: torch.Tensor) -> Layouts:
    windows = dict.fromkeys(layer.window for layer in config.layers)
    return TileLayouts(config.num_heads // config.num_kv_heads, config.context, windows, cache.dtype, cache.device)


def _layer(plan: LayerPlan, layer: LayerTensors, there: Callable[[Weight], torch.Tensor], *, exact: bool) -> Layer:
    """`there` brings what NumPy holds to the device."""

    def there_or_none(weight: Weight | None) -> torch.Tensor | None:
        return None if weight is None else there(weight)

    return Layer(
        plan=plan,
        norm=there(layer.norm),
        qkv=_linear(layer.qkv, there, exact=exact),
        qk_norm=there_or_none(layer.qk_norm),
        out=_linear(layer.out, there, exact=exact),
        attention_out_norm=there_or_none(layer.attention_out_norm),
        mlp_norm=there(layer.mlp_norm),
        gate_up=_linear(layer.gate_up, there, exact=exact),
        down=_linear(layer.down, there, exact=exact),
        mlp_out_norm=there_or_none(layer.mlp_out_norm),
    )


def _linear(matrix: Matrix, there: Callable[[Weight], torch.Tensor], *, exact: bool) -> Linear:
    bias = None if matrix.bias is None else there(matrix.bias)
    return Linear(there(matrix.weight), bias, exact=exact)
