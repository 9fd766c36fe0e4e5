"""The decoder in torch: runs passes on GPUs, or on CPUs without compiled kernels.

A row's bits are its own: linear layers are probed for kernels with independent rows (linear.py), attention goes over a
session's pages in an order that depends on the position only (on CPUs attention.py, on GPUs paged.py), and everything
else works row by row. Passes are padded to row counts that the linear layers prefer. On a GPU small passes are replayed
from recordings (graphs.py), and padded so that few recordings suffice. A draft draws tokens one after another without
waiting for the device: each pass reads what the one before it drew there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F  # noqa: N812

from core.model.bfloat16 import Dtype, Weight
from core.model.config import LayerPlan, ModelConfig
from core.model.decoder import DecoderOptions
from core.model.draft_tokens import DraftToken, StopRule, draft_tokens
from core.model.pages import PAGE_SIZE, PageCopy, Span
from core.model.tensor_views import as_tensor
from core.model.tensors import LayerTensors, Matrix, Tensors
from core.model.torch.attention import TileLayouts
from core.model.torch.graphs import Graphs, PlannedPass, Recorder, Run, cuda_recorder
from core.model.torch.linear import Linear, padded
from core.model.torch.paged import BlockLayouts
from core.model.torch.plan import Layouts, Plan, Planner
from core.model.torch.transformer import Layer, Transformer, by_rows

_ROW_STEP = 4  # rows of replayed passes are a multiple of it; more rows cost nothing while passes wait for weights


class TorchDecoder:
    """Computes in the dtype of its weights; `cache` is [layers, 2 * kv heads, num_pages + 1, PAGE_SIZE * head_dim].

    The last page is a spare one, for padding rows. With `record` passes are replayed, and `draw` draws all tokens of a
    proposal at once; without it the decoder does not draw. `layouts` say how attention reads the pages, by default in
    tiles.
    """

    def __init__(
        self,
        config: ModelConfig,
        transformer: Transformer,
        head: Linear,
        num_pages: int,
        record: Recorder | None = None,
        layouts: Layouts | None = None,
        head_ids: torch.Tensor | None = None,
    ) -> None:
        self.draws = self.loops = record is not None
        self.num_pages, self.head_ids = num_pages, head_ids
        self.device, dtype = transformer.device, transformer.dtype
        self.dtype: Dtype = "bfloat16" if dtype == torch.bfloat16 else "float32"
        shape = config.num_layers, 2 * config.num_kv_heads, num_pages + 1, PAGE_SIZE * config.head_dim
        self._cache = torch.zeros(shape, dtype=dtype, device=self.device)
        self._num_logits = config.vocab_size if head_ids is None else len(head_ids)
        self._softcap = config.logit_softcap
        self._transformer = transformer
        self._head = head
        layouts = layouts or _tiles(config, self._cache)
        self._planner = Planner(layouts, num_pages, self.device, replayed=record is not None)
        self._run: Run = self._launch if record is None else Graphs(self._launch, record)
        self._row_step = 1 if record is None else _ROW_STEP

    @classmethod
    @torch.inference_mode()
    def load(cls, config: ModelConfig, tensors: Tensors, options: DecoderOptions) -> TorchDecoder:
        def there(array: Weight) -> torch.Tensor:
            return as_tensor(array).to(options.device)

        layers = [
            _layer(plan, layer, there, exact=options.exact)
            for plan, layer in zip(config.layers, tensors.layers(), strict=True)
        ]
        transformer = Transformer(config, there(tensors.embedding), layers, there(tensors.norm))
        head, ids = _linear(tensors.head, there, exact=options.exact), tensors.head_ids
        on_gpu = options.device.type == "cuda"
        layouts = BlockLayouts(config.num_heads // config.num_kv_heads) if on_gpu else None
        record = cuda_recorder() if on_gpu else None
        return cls(config, transformer, head, options.num_pages, record, layouts, None if ids is None else there(ids))

    @torch.inference_mode()
    def copy_pages(self, copies: Sequence[PageCopy]) -> None:
        for source, target in copies:
            self._cache[:, :, target] = self._cache[:, :, source]

    @torch.inference_mode()
    def __call__(self, tokens: Sequence[int], spans: Sequence[Span], logit_rows: Sequence[int]) -> torch.Tensor:
        plan, count = self._plan(tokens, spans), len(logit_rows)
        if not logit_rows:
            self._transformer(plan, self._cache)
            return torch.empty(0, self._num_logits, device=self.device)
        return self._run(PlannedPass(plan, self._logit_rows(logit_rows)))[:count].float()

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
            later = [
                span._replace(first_row=row, start=span.start + span.length + step, length=1)
                for row, span in enumerate(spans)
            ]
            plans.append(self._plan([0] * len(spans), later))
        noises: Sequence[torch.Tensor | None] = [None] * steps if noise is None else noise.unbind()
        rows = self._logit_rows(range(len(spans)))  # before the first pass, as what moves to a device waits for it
        last_rows = self._logit_rows([span.first_row + span.length - 1 for span in spans])
        scores = [self._scores(PlannedPass(plans[0], last_rows), len(spans), num_ids, noises[0])]
        for plan, more in zip(plans[1:], noises[1:], strict=True):
            following = plan._replace(tokens=self._drawn(scores[-1], len(plan.tokens)))
            scores.append(self._scores(PlannedPass(following, rows), len(spans), num_ids, more))
        tokens_drawn = draft_tokens(torch.cat(scores), self.head_ids)
        return [tokens_drawn[index :: len(spans)] for index in range(len(spans))]

    def _scores(self, request: PlannedPass, sessions: int, num_ids: int, noise: torch.Tensor | None) -> torch.Tensor:
        """The logits of the first rows and ids that were asked for, with their noise: [sessions, ids]."""
        logits = self._run(request)[:sessions, :num_ids].float()
        return logits if noise is None else logits + noise

    def _drawn(self, scores: torch.Tensor, num_rows: int) -> torch.Tensor:
        """The tokens of the highest scores, on the device, and padding rows."""
        columns = scores.argmax(-1)
        ids = columns if self.head_ids is None else self.head_ids[columns]
        return F.pad(ids, (0, num_rows - len(ids)))

    def _launch(self, request: PlannedPass) -> torch.Tensor:
        """The logits of the asked rows."""
        return self._logits(self._transformer(request.plan, self._cache).index_select(0, request.logit_rows))

    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        logits, cap = self._head(hidden), self._softcap
        return logits if cap is None else by_rows(lambda row: torch.tanh(row / cap) * cap, logits)

    def _plan(self, tokens: Sequence[int], spans: Sequence[Span]) -> Plan:
        return self._planner.plan(tokens, spans, self._stepped(self._transformer.padded(len(tokens))))

    def _stepped(self, rows: int) -> int:
        return -(-rows // self._row_step) * self._row_step

    def _logit_rows(self, rows: Sequence[int]) -> torch.Tensor:
        """The rows on the device, the last of them again as padding."""
        padding = [rows[-1]] * (self._stepped(padded(len(rows), self._head.sizes)) - len(rows))
        return torch.tensor([*rows, *padding], dtype=torch.int64, device=self.device)


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
