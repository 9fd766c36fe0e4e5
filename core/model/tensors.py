"""A model's tensors by their role, for every decoder; matrices over the same input are stacked into one.

They are NumPy arrays of the type that the model computes with (`core.model.bfloat16.Weight`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from core.errors import ConfigError
from core.model.bfloat16 import Weight, scaled, widened
from core.model.config import ModelConfig
from core.model.loader import EMBEDDING, Weights


class Matrix(NamedTuple):
    """The operands of a product: weight [outs, ins] and bias [outs]."""

    weight: Weight
    bias: Weight | None


class LayerTensors(NamedTuple):
    """The tensors of one layer. `qk_norm` [heads + kv heads, head_dim] is the norm weight of query and key heads.

    `attention_out_norm` and `mlp_out_norm` are for what attention and MLP add; None where nothing norms that.
    """

    norm: Weight
    qkv: Matrix
    qk_norm: Weight | None
    out: Matrix
    attention_out_norm: Weight | None
    mlp_norm: Weight
    gate_up: Matrix
    down: Matrix
    mlp_out_norm: Weight | None


class Tensors:
    """The tensors of one checkpoint with its adapter; each is read on access and checked against the config.

    The head has the rows of `head_ids`, an int64 array, or all if that is None. In the file it has those
    of `stored_ids`, again all if None; they must include `head_ids`.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: Weights,
        head_ids: NDArray[np.int64] | None = None,
        stored_ids: NDArray[np.int64] | None = None,
    ) -> None:
        self.head_ids = head_ids
        self._stored_ids = stored_ids
        self._config = config
        self._weights = weights

    @property
    def embedding(self) -> Weight:
        """Scaled as the plan says, by a factor that is rounded to the model's type, as in transformers."""
        table = _shaped(EMBEDDING, self._weights.embedding(), self._config.vocab_size, self._config.hidden_size)
        return table if self._config.embedding_scale == 1.0 else scaled(table, self._config.embedding_scale)

    @property
    def norm(self) -> Weight:
        return self._norm("model.norm", self._config.hidden_size)

    @property
    def head(self) -> Matrix:
        source = "model.embed_tokens" if self._config.tied else None
        weight = self._weights.matrix("lm_head", source)
        num_stored = self._config.vocab_size if self._stored_ids is None else len(self._stored_ids)
        stored = _shaped("lm_head", weight, num_stored, self._config.hidden_size)
        return Matrix(stored if self.head_ids is None else stored[self._rows(self.head_ids)], None)

    def _rows(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of the stored head that are of these ids."""
        if self._stored_ids is None:
            return ids
        rows = np.searchsorted(self._stored_ids, ids).clip(max=len(self._stored_ids) - 1)
        if not np.array_equal(self._stored_ids[rows], ids):
            raise ConfigError("a draft vocabulary has ids that the draft's head in its file lacks")
        return rows

    def layers(self) -> Iterator[LayerTensors]:
        return (self._layer(f"model.layers.{index}") for index in range(self._config.num_layers))

    def _layer(self, prefix: str) -> LayerTensors:
        config, names = self._config, self._config.names
        hidden, gates, queries = config.hidden_size, config.intermediate_size, config.num_heads * config.head_dim
        keys = config.num_kv_heads * config.head_dim
        qkv = _rows_by_module(names.qkv, (queries, keys, keys))
        gate_up = _rows_by_module(names.gate_up, (gates, gates))

        def norm(name: str) -> Weight:
            return self._norm(f"{prefix}.{name}", hidden)

        def matrix(modules: Mapping[str, int], ins: int, has_bias: bool) -> Matrix:
            return self._matrix({f"{prefix}.{module}": outs for module, outs in modules.items()}, ins, has_bias)

        return LayerTensors(
            norm=norm(names.norm),
            qkv=matrix(qkv, hidden, config.qkv_bias),
            qk_norm=self._qk_norm(prefix) if config.qk_norm else None,
            out=matrix({names.out: hidden}, queries, config.out_bias),
            attention_out_norm=norm(names.attention_out_norm) if names.attention_out_norm else None,
            mlp_norm=norm(names.mlp_norm),
            gate_up=matrix(gate_up, hidden, config.mlp_bias),
            down=matrix({names.down: hidden}, gates, config.mlp_bias),
            mlp_out_norm=norm(names.mlp_out_norm) if names.mlp_out_norm else None,
        )

    def _matrix(self, modules: Mapping[str, int], ins: int, has_bias: bool) -> Matrix:
        """The stacked matrix of modules, given with their number of outputs."""
        weights = [_shaped(module, self._weights.matrix(module), outs, ins) for module, outs in modules.items()]
        biases = [self._tensor(f"{module}.bias", outs) for module, outs in modules.items()] if has_bias else None
        return Matrix(np.concatenate(weights), np.concatenate(biases) if biases else None)

    def _qk_norm(self, prefix: str) -> Weight:
        config, names = self._config, self._config.names
        heads = {names.q_norm: config.num_heads, names.k_norm: config.num_kv_heads}
        norms = [self._norm(f"{prefix}.{norm}", config.head_dim) for norm in heads]
        return np.repeat(norms, [*heads.values()], axis=0)

    def _norm(self, module: str, size: int) -> Weight:
        """The weight of a norm; in float32 where the plan's offset is added, as transformers does."""
        weight = self._tensor(f"{module}.weight", size)
        return widened(weight) + np.float32(self._config.norm_offset) if self._config.norm_offset else weight

    def _tensor(self, name: str, *shape: int) -> Weight:
        return _shaped(name, self._weights.tensor(name), *shape)


def _shaped(name: str, tensor: Weight, *shape: int) -> Weight:
    """The tensor itself, if its shape is right: compiled kernels would read beyond the end of a smaller one."""
    if tensor.shape != shape:
        raise ConfigError(f"{name} is {[*tensor.shape]}, but config.json says {[*shape]}")
    return tensor


def _rows_by_module(modules: tuple[str, ...], rows: tuple[int, ...]) -> dict[str, int]:
    """The outputs of each module of a stacked matrix; one module has all of them."""
    return {modules[0]: sum(rows)} if len(modules) == 1 else dict(zip(modules, rows, strict=True))
