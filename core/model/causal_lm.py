"""`CausalLM`: a LLaMA-family model with a paged cache per session, the one implementation of `Model`.

But for light models, a token's logits are a function of its own prefix, bit for bit, on one machine with one thread
count: linear layers are probed for it when loaded (linear.py), attention is laid into tiles that depend on the position
only (attention.py), and everything else works row by row. Passes are padded to the rows that the linear layers want. On
a GPU small passes are replayed from recordings (graphs.py), and padded so that few of them do; tokens that a draft
draws one after another are one recording.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812

from core.guess import Ending, Guess, guesses
from core.model.attention import Plan, Planner, Span
from core.model.base import Model, Rows, one_by_one
from core.model.config import ModelConfig
from core.model.graphs import Graphs, Passes, Recorder, Run, cuda_recorder
from core.model.linear import Linear, activation_dtype, padded
from core.model.loader import Weights, resolve
from core.model.pages import PAGE_SIZE, PageCopy, PagePool
from core.model.transformer import Layer, Transformer

if TYPE_CHECKING:
    from core.model.light import LightDecoder

_MOST_LIGHT = 1 << 24  # weights, which are held twice; a pass over more takes far longer than torch's calls
_ROW_STEP = 4  # rows of replayed passes are a multiple of it: a few more cost nothing where the weights are waited for


class CausalLM(Model):
    """A model whose sessions share a pool of pages of 64 tokens: all of `cache` but one.

    `record` replays passes; `light` computes those of a few rows, whose bits then may depend on one another.
    """

    def __init__(
        self,
        config: ModelConfig,
        transformer: Transformer,
        head: Linear,
        cache: torch.Tensor,
        record: Recorder | None = None,
        light: LightDecoder | None = None,
    ) -> None:
        self.vocab_size = config.vocab_size
        self.context = config.context
        self.device = cache.device
        self._transformer = transformer
        self._head = head
        self._cache = cache  # [layers, 2 * kv heads, pages and a spare one, PAGE_SIZE * head_dim]
        self._pool = PagePool(cache.shape[2] - 1)
        self._planner = Planner(
            config.num_heads // config.num_kv_heads,
            config.context,
            self._pool.num_pages,
            cache[0, :, 0].nbytes,
            cache.dtype,
            cache.device,
            replayed=record is not None,
        )
        self.loops = record is not None
        self._light = light
        self._run: Run = self._launch if record is None else Graphs(self._launch, record)
        self._row_step = 1 if record is None else _ROW_STEP

    @property
    def num_used_pages(self) -> int:
        return self._pool.num_pages - self._pool.num_free

    @property
    def num_free_pages(self) -> int:
        return self._pool.num_free

    @property
    def num_remembered_pages(self) -> int:
        return self._pool.num_remembered

    def open(self, session: int) -> None:
        self._pool.open(session)

    def fork(self, source: int, session: int) -> None:
        self._pool.fork(source, session)

    def num_cached(self, session: int) -> int:
        return self._pool.length(session)

    def remember(self, session: int, tokens: Sequence[int]) -> None:
        self._pool.remember(session, tokens)

    def recall(self, session: int, tokens: Sequence[int]) -> int:
        return self._pool.recall(session, tokens)

    def rollback(self, session: int, length: int) -> None:
        self._pool.rollback(session, length)

    def close(self, session: int) -> None:
        self._pool.close(session)

    @torch.inference_mode()
    def forward(self, batch: Sequence[Rows]) -> torch.Tensor:
        self._check(batch, 0)
        spans = self._make_room(batch)
        wanted = _wanted(batch, spans)
        if self._light is not None and wanted and sum(span.length for span in spans) <= self._light.most_rows:
            return torch.from_numpy(self._light([token for rows in batch for token in rows.tokens], spans, wanted))
        plan = self._plan(batch, spans)
        if not wanted:
            hidden = self._transformer(plan, self._cache)
            return hidden.new_empty(0, self.vocab_size, dtype=torch.float32)
        padding = [wanted[-1]] * (self._stepped(padded(len(wanted), self._head.sizes)) - len(wanted))
        return self._run(Passes([plan], self._tensor(wanted + padding)))[: len(wanted)].float()

    def draw(
        self, batch: Sequence[Rows], steps: int, num_ids: int, noise: torch.Tensor | None, ending: Ending
    ) -> list[list[Guess]]:
        self._check(batch, steps - 1)
        if self.loops:
            drawn = guesses(self._drawn(batch, steps, num_ids, noise).flatten(0, 1))
            return [drawn[index :: len(batch)] for index in range(len(batch))]
        if self._light is not None and sum(len(rows.tokens) for rows in batch) <= self._light.most_rows:
            return self._drawn_lightly(self._light, batch, steps, num_ids, noise, ending)
        return one_by_one(self, batch, steps, num_ids, noise, ending)

    def _drawn_lightly(
        self,
        light: LightDecoder,
        batch: Sequence[Rows],
        steps: int,
        num_ids: int,
        noise: torch.Tensor | None,
        ending: Ending,
    ) -> list[list[Guess]]:
        """There is room for all steps; what was not drawn is forgotten."""
        spans = self._make_room(batch, drawn=steps - 1)
        tokens = [token for rows in batch for token in rows.tokens]
        drawn = light.draw(tokens, spans, steps, num_ids, noise, ending)
        if (taken := len(drawn[0])) < steps:
            for rows, span in zip(batch, spans, strict=True):
                self._pool.rollback(rows.session, span.start + span.length + taken - 1)
        return drawn

    @torch.inference_mode()
    def _drawn(self, batch: Sequence[Rows], steps: int, num_ids: int, noise: torch.Tensor | None) -> torch.Tensor:
        """The scores of all steps, [steps, sessions, ids], in one go."""
        first = self._make_room(batch, drawn=steps - 1)
        plans = [self._plan(batch, first)]
        for step in range(steps - 1):
            spans = [Span(row, span.start + span.length + step, 1, span.pages) for row, span in enumerate(first)]
            plans.append(self._plan([Rows(rows.session, [0], 1) for rows in batch], spans))
        ends = [span.first_row + span.length - 1 for span in first]
        if noise is None:
            noise = torch.zeros(steps, len(batch), num_ids, device=self.device)
        return self._run(Passes(plans, self._tensor(ends), noise))

    def _launch(self, passes: Passes) -> torch.Tensor:
        """Logits of the `wanted` rows of a pass, or scores [passes, sessions, ids] of several."""
        plan, *plans = passes.plans
        logits = self._head(self._transformer(plan, self._cache).index_select(0, passes.wanted))
        if passes.noise is None:
            return logits
        scores = [_scored(logits, passes.noise[0])]
        for plan, noise in zip(plans, passes.noise[1:], strict=True):
            drawn = F.pad(scores[-1].argmax(-1), (0, len(plan.tokens) - len(noise)))
            hidden = self._transformer(plan._replace(tokens=drawn), self._cache)
            scores.append(_scored(self._head(hidden), noise))
        return torch.stack(scores)

    def _plan(self, batch: Sequence[Rows], spans: Sequence[Span]) -> Plan:
        tokens = [token for rows in batch for token in rows.tokens]
        return self._planner.plan(tokens, spans, self._stepped(self._transformer.padded(len(tokens))))

    def _stepped(self, rows: int) -> int:
        return -(-rows // self._row_step) * self._row_step

    def _make_room(self, batch: Sequence[Rows], drawn: int = 0) -> list[Span]:
        """Give every session its pages, for so many more tokens too, and say where its rows of the first pass go."""
        starts = [self._pool.length(rows.session) for rows in batch]
        copies = self._pool.extend([(rows.session, len(rows.tokens) + drawn) for rows in batch])
        if copies:
            self._copy(copies)
        spans, first_row = [], 0
        for rows, start in zip(batch, starts, strict=True):
            spans.append(Span(first_row, start, len(rows.tokens), self._pool.pages(rows.session)))
            first_row += len(rows.tokens)
        return spans

    @torch.inference_mode()
    def _copy(self, pages: Sequence[PageCopy]) -> None:
        for source, target in pages:
            self._cache[:, :, target] = self._cache[:, :, source]

    def _check(self, batch: Sequence[Rows], drawn: int) -> None:
        if len({rows.session for rows in batch}) != len(batch):
            raise ValueError("a session may appear once in a pass")
        for rows in batch:
            if not 0 <= rows.num_logits <= len(rows.tokens) or not rows.tokens:
                raise ValueError(f"session {rows.session}: {rows.num_logits} logits of {len(rows.tokens)} tokens")
            if self._pool.length(rows.session) + len(rows.tokens) + drawn > self.context:
                raise ValueError(f"session {rows.session} would exceed the context of {self.context} tokens")

    def _tensor(self, values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.device)


def _scored(logits: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Scores of as many rows and ids as `noise` has."""
    rows, ids = noise.shape
    return logits[:rows, :ids].float() + noise


def _wanted(batch: Sequence[Rows], spans: Sequence[Span]) -> list[int]:
    """Rows of the pass whose logits are wanted."""
    wanted: list[int] = []
    for rows, span in zip(batch, spans, strict=True):
        end = span.first_row + span.length
        wanted += range(end - rows.num_logits, end)
    return wanted


def load_model(
    path: str | Path,
    *,
    dtype: torch.dtype,
    num_pages: int,
    device: str | torch.device = "cpu",
    adapter: str | Path | None = None,
    light: bool = False,
) -> CausalLM:
    """Load a model directory or hub id, with a peft LoRA adapter merged where one is given.

    A `light` one leaves passes of a few rows to compiled loops, for small models several times as quick, and a row's
    last bits then depend on what else is in the pass: drafts may. Others are left as they are.

    Raises `UnsupportedArchitecture` and `ConfigError`, each saying what would do instead.
    """
    directory, device = resolve(path), torch.device(device)
    config = ModelConfig.load(directory)
    weights = Weights(directory, resolve(adapter) if adapter else None, dtype, device)
    light = light and device.type == "cpu" and dtype == torch.float32 and config.num_weights <= _MOST_LIGHT
    with torch.inference_mode():
        embedding = weights.tensor("model.embed_tokens.weight")
        layers = [_layer(weights, config, f"model.layers.{index}", light) for index in range(config.num_layers)]
        norm = weights.tensor("model.norm.weight")
        transformer = Transformer(config, embedding, layers, norm)
        head = Linear(weights.matrix("lm_head", source="model.embed_tokens" if config.tied else None), keep=light)
        shape = (config.num_layers, 2 * config.num_kv_heads, num_pages + 1, PAGE_SIZE * config.head_dim)
        cache = torch.zeros(shape, dtype=activation_dtype(dtype, device), device=device)
    weights.check_all_merged()
    if light:
        from core.model.light import LightDecoder  # which loads a compiler

        return CausalLM(
            config,
            transformer,
            head,
            cache,
            light=LightDecoder(config, embedding, layers, norm, head, transformer.rotary, cache),
        )
    return CausalLM(config, transformer, head, cache, cuda_recorder() if device.type == "cuda" else None)


def _layer(weights: Weights, config: ModelConfig, prefix: str, keep: bool) -> Layer:
    attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
    qkv = [f"{attention}.{name}_proj" for name in "qkv"]
    return Layer(
        input_norm=weights.tensor(f"{prefix}.input_layernorm.weight"),
        qkv=_linear(weights, qkv, config.qkv_bias, keep),
        qk_norm=_qk_norm(weights, config, attention) if config.qk_norm else None,
        out=_linear(weights, [f"{attention}.o_proj"], config.out_bias, keep),
        mlp_norm=weights.tensor(f"{prefix}.post_attention_layernorm.weight"),
        gate_up=_linear(weights, [f"{mlp}.gate_proj", f"{mlp}.up_proj"], config.mlp_bias, keep),
        down=_linear(weights, [f"{mlp}.down_proj"], config.mlp_bias, keep),
    )


def _linear(weights: Weights, modules: list[str], bias: bool, keep: bool) -> Linear:
    """One product in place of several over the same input."""
    weight = torch.cat([weights.matrix(module) for module in modules])
    biases = torch.cat([weights.tensor(f"{module}.bias") for module in modules]) if bias else None
    return Linear(weight, biases, keep=keep)


def _qk_norm(weights: Weights, config: ModelConfig, attention: str) -> torch.Tensor:
    query = weights.tensor(f"{attention}.q_norm.weight").expand(config.num_heads, -1)
    return torch.cat([query, weights.tensor(f"{attention}.k_norm.weight").expand(config.num_kv_heads, -1)])
