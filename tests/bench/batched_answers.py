"""Answers of a Llama in large batches on one device, with what a draft learns from them.

A service answers a request at a time, bit for bit the same wherever it runs. Here only the number counts: prompts of
like length go together, padded on the left, each step is one token of all, and on a GPU all steps replay one CUDA
graph. What is drawn follows the same law, but not with the same noise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812

from core.distill.dataset import DistillationSet
from core.errors import ConfigError
from core.model.config import ModelConfig, read_config
from core.model.loader import EMBEDDING
from core.model.rotary import Rotary
from core.model.tensor_views import TensorCheckpoint

TOP = 64  # most likely tokens that are kept at each position
_PREFILLED = 1 << 16  # tokens of prompts at once: more of them only take memory
_LEAST = 1e-30  # of an exponential number: the logarithm of 0 is not finite, and times a temperature of 0 not a number

# (layer, query [rows, length, heads, size], keys and values [rows, length, kv heads, size]) -> [rows, length, hidden]
Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class Layer(NamedTuple):
    """The weights of one layer; `qkv` and `gate_up` are stacked."""

    norm: torch.Tensor
    qkv: torch.Tensor
    out: torch.Tensor
    mlp_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


class Llama:
    """A Llama that computes whole batches; who attends to what is for its caller to say."""

    def __init__(self, directory: Path, dtype: torch.dtype, device: torch.device) -> None:
        self.config = config = ModelConfig.load(directory)
        if read_config(directory)["model_type"] != "llama":
            raise ConfigError(f"{directory}: batched answers are those of a Llama")
        checkpoint, names = TensorCheckpoint(directory), config.names

        def there(*stacked: str) -> torch.Tensor:
            return torch.cat([checkpoint[name] for name in stacked]).to(device, dtype)

        def layer(number: int) -> Layer:
            matrices = (names.norm,), names.qkv, (names.out,), (names.mlp_norm,), names.gate_up, (names.down,)
            return Layer(*(there(*(f"model.layers.{number}.{name}.weight" for name in each)) for each in matrices))

        self.dtype, self.device = dtype, device
        self._layers = [layer(number) for number in range(config.num_layers)]
        self._embedding, self._norm = there(EMBEDDING), there("model.norm.weight")
        self._head = self._embedding if config.tied else there("lm_head.weight")
        rotary = Rotary(config.layers[0].rope, config.context, config.head_dim)
        self._cos, self._sin = (torch.from_numpy(table).to(device, dtype) for table in (rotary.cos, rotary.sin))

    def __call__(self, tokens: torch.Tensor, positions: torch.Tensor, attend: Attend) -> torch.Tensor:
        """The last hidden states [rows, length, hidden] of tokens at their positions, both [rows, length]."""
        config, cos, sin = self.config, self._cos[positions], self._sin[positions]
        hidden, parts = F.embedding(tokens, self._embedding), (config.num_heads, *(2 * [config.num_kv_heads]))
        for number, layer in enumerate(self._layers):
            heads = F.linear(self._normed(hidden, layer.norm), layer.qkv).unflatten(-1, (-1, config.head_dim))
            query, key, value = heads.split(parts, dim=2)
            seen = attend(number, _turned(query, cos, sin), _turned(key, cos, sin), value)
            hidden = hidden + F.linear(seen, layer.out)
            gate, up = F.linear(self._normed(hidden, layer.mlp_norm), layer.gate_up).chunk(2, -1)
            hidden = hidden + F.linear(F.silu(gate) * up, layer.down)
        return hidden

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """float32 [rows, ids] of hidden states [rows, hidden]."""
        return F.linear(self._normed(hidden, self._norm), self._head).float()

    def _normed(self, hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(hidden, weight.shape, weight, self.config.norm_eps)


class Batch:
    """Draws answers of `steps` tokens to at most `rows` prompts of at most `width` tokens, as often as it is called.

    With `head_ids` it keeps the most likely tokens among these ids at every step. With `graph` the steps are replayed,
    which takes a GPU. An answer ends with its first token of `eos_ids`.
    """

    @torch.inference_mode()
    def __init__(
        self,
        model: Llama,
        rows: int,
        width: int,
        steps: int,
        eos_ids: Collection[int],
        head_ids: Sequence[int] | None = None,
        *,
        graph: bool = False,
    ) -> None:
        config, device = model.config, model.device
        self._model, self._rows, self._width, self._steps = model, rows, width, steps
        self._eos = torch.tensor(sorted(eos_ids), device=device)
        self._head_ids = None if head_ids is None else torch.tensor(head_ids, device=device)
        cached = config.num_layers, rows, config.num_kv_heads, width + steps, config.head_dim
        self._keys = torch.zeros(cached, dtype=model.dtype, device=device)
        self._values = torch.zeros_like(self._keys)
        self._places = torch.arange(width + steps, device=device)
        self._first = torch.zeros(rows, 1, dtype=torch.int64, device=device)  # place of each prompt's first token
        self._place = torch.zeros(1, dtype=torch.int64, device=device)  # of the next token
        self._step = torch.zeros(1, dtype=torch.int64, device=device)
        self._temperatures = torch.zeros(rows, 1, device=device)
        self._logits = torch.zeros(rows, config.vocab_size, device=device)
        self._tokens = torch.zeros(steps, rows, dtype=torch.int64, device=device)
        kept = steps, rows, 0 if head_ids is None else min(TOP, len(head_ids))
        self._ids = torch.zeros(kept, dtype=torch.int32, device=device)
        self._logprobs = torch.zeros(kept, dtype=torch.float16, device=device)
        self._graph = self._recorded() if graph else None

    @torch.inference_mode()
    def __call__(self, prompts: Sequence[Sequence[int]], temperatures: Sequence[float]) -> DistillationSet:
        """An answer to each prompt at its temperature, in order; of `ids` and `logprobs` none without `head_ids`."""
        count = len(prompts)
        missing = self._rows - count  # rows of the batch repeat the last prompt, and are dropped
        self._prefill([*prompts, *(prompts[-1:] * missing)], [*temperatures, *([0.0] * missing)])
        for _ in range(self._steps):
            self._draw() if self._graph is None else self._graph.replay()
        tokens = self._tokens.T[:count]
        ends = torch.isin(tokens, self._eos)
        lengths = torch.where(ends.any(1), ends.int().argmax(1) + 1, self._steps)
        kept = self._places[: self._steps] < lengths[:, None]
        answers = zip(prompts, tokens.tolist(), lengths.tolist(), strict=True)
        whole = [[*prompt, *answer[:length]] for prompt, answer, length in answers]
        return DistillationSet(
            torch.tensor([token for one in whole for token in one], dtype=torch.int32),
            torch.tensor([len(one) for one in whole]),
            torch.tensor([len(prompt) for prompt in prompts]),
            self._ids.transpose(0, 1)[:count][kept].cpu(),
            self._logprobs.transpose(0, 1)[:count][kept].cpu(),
        )

    def _start(self) -> None:
        self._place.fill_(self._width)
        self._step.zero_()

    def _prefill(self, prompts: Sequence[Sequence[int]], temperatures: Sequence[float]) -> None:
        device, width = self._model.device, self._width
        padded = torch.tensor([[*([0] * (width - len(prompt))), *prompt] for prompt in prompts], device=device)
        self._first.copy_(torch.tensor([[width - len(prompt)] for prompt in prompts]))
        self._temperatures.copy_(torch.tensor(temperatures)[:, None])
        places = self._places[:width]
        at_once = max(1, _PREFILLED // width)
        for start in range(0, self._rows, at_once):
            part = slice(start, start + at_once)
            positions = (places - self._first[part]).clamp(min=0)
            hidden = self._model(padded[part], positions, self._prompts_attend(part))
            self._logits[part] = self._model.logits(hidden[:, -1])
        self._start()

    def _prompts_attend(self, part: slice) -> Attend:
        """How the prompts of these rows attend. Padding sees itself: what sees nothing is not a number."""
        width, config = self._width, self._model.config
        places, group = self._places[:width], config.num_heads // config.num_kv_heads
        visible = (places <= places[:, None]) & (places >= self._first[part, :, None])
        mask = (visible | (places == places[:, None]))[:, None]

        def attend(layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            query, key, value = (heads.transpose(1, 2) for heads in (query, key, value))
            self._keys[layer, part, :, :width] = key
            self._values[layer, part, :, :width] = value
            keys, values = (heads.repeat_interleave(group, 1) for heads in (key, value))
            return F.scaled_dot_product_attention(query, keys, values, mask).transpose(1, 2).flatten(2)

        return attend

    def _draw(self) -> None:
        """One token of every answer; it reads and writes only tensors that stay, so that it can be recorded."""
        logits = self._logits
        scores = torch.empty_like(logits).exponential_().clamp_(min=_LEAST).log_().neg_()  # Gumbel noise
        drawn = scores.mul_(self._temperatures).add_(logits).argmax(-1)
        self._tokens.index_copy_(0, self._step, drawn[None])
        if self._head_ids is not None:
            logprobs = logits.index_select(1, self._head_ids) - logits.logsumexp(-1, keepdim=True)
            best = logprobs.topk(self._ids.shape[-1])
            self._ids.index_copy_(0, self._step, self._head_ids[best.indices].int()[None])
            self._logprobs.index_copy_(0, self._step, best.values.half()[None])
        hidden = self._model(drawn[:, None], self._place - self._first, self._answers_attend())
        logits.copy_(self._model.logits(hidden[:, 0]))
        self._place.add_(1)
        self._step.add_(1)

    def _answers_attend(self) -> Attend:
        config = self._model.config
        rows, kv_heads, size = self._rows, config.num_kv_heads, config.head_dim
        mask = ((self._places < self._first) | (self._places > self._place))[:, None]  # [rows, 1, places]

        def attend(layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            self._keys[layer].index_copy_(2, self._place, key.transpose(1, 2))
            self._values[layer].index_copy_(2, self._place, value.transpose(1, 2))
            keys, values = (cache[layer].flatten(0, 1) for cache in (self._keys, self._values))
            grouped = query.reshape(rows * kv_heads, -1, size)  # the queries that share a head of keys
            scores = (torch.bmm(grouped, keys.transpose(1, 2)).float() * size**-0.5).view(rows, -1, len(self._places))
            shares = scores.masked_fill_(mask, -torch.inf).softmax(-1).to(values.dtype)
            return torch.bmm(shares.view(rows * kv_heads, -1, len(self._places)), values).view(rows, 1, -1)

        return attend

    def _recorded(self) -> torch.cuda.CUDAGraph | None:
        """`_draw` as a graph, or None where it cannot be recorded."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # libraries prepare themselves, which a recording forbids
            for _ in range(2):
                self._start()
                self._draw()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self._draw()
        except RuntimeError as error:
            print(f"  not recorded, so slower: {error}", flush=True)
            return None
        return graph


def _turned(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary embedding; the first half of the table of sines is negative."""
    return heads * cos + heads.roll(heads.shape[-1] // 2, -1) * sin
