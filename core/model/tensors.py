"""A model's tensors by their role, for every decoder; matrices over the same input are stacked into one.

They are NumPy arrays of the type that the model computes with (`core.model.bfloat16.Weight`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from core.errors import ConfigError
from core.model.bfloat16 import Weight
from core.model.config import ModelConfig
from core.model.loader import EMBEDDING, Weights


class Matrix(NamedTuple):
    """The operands of a product: weight [outs, ins] and bias [outs]."""

    weight: Weight
    bias: Weight | None


class LayerTensors(NamedTuple):
    """The tensors of one layer. `qk_norm` [heads + kv heads, head_dim] is the norm weight of query and key heads."""

    norm: Weight
    qkv: Matrix
    qk_norm: Weight | None
    out: Matrix
    mlp_norm: Weight
    gate_up: Matrix
    down: Matrix


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
        return _shaped(EMBEDDING, self._weights.embedding(), self._config.vocab_size, self._config.hidden_size)

    @property
    def norm(self) -> Weight:
        return self._tensor("model.norm.weight", self._config.hidden_size)

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
        config, attention, mlp = self._config, f"{prefix}.self_attn", f"{prefix}.mlp"
        hidden, gates, queries = config.hidden_size, config.intermediate_size, config.num_heads * config.head_dim
        keys = config.num_kv_heads * config.head_dim
        projections = {
            f"{attention}.{name}_proj": outs for name, outs in zip("qkv", (queries, keys, keys), strict=True)
        }
        return LayerTensors(
            norm=self._tensor(f"{prefix}.input_layernorm.weight", hidden),
            qkv=self._matrix(projections, hidden, config.qkv_bias),
            qk_norm=self._qk_norm(attention) if config.qk_norm else None,
            out=self._matrix({f"{attention}.o_proj": hidden}, queries, config.out_bias),
            mlp_norm=self._tensor(f"{prefix}.post_attention_layernorm.weight", hidden),
            gate_up=self._matrix({f"{mlp}.gate_proj": gates, f"{mlp}.up_proj": gates}, hidden, config.mlp_bias),
            down=self._matrix({f"{mlp}.down_proj": hidden}, gates, config.mlp_bias),
        )

    def _matrix(self, modules: Mapping[str, int], ins: int, has_bias: bool) -> Matrix:
        """The stacked matrix of modules, given with their number of outputs."""
        weights = [_shaped(module, self._weights.matrix(module), outs, ins) for module, outs in modules.items()]
        biases = [self._tensor(f"{module}.bias", outs) for module, outs in modules.items()] if has_bias else None
        return Matrix(np.concatenate(weights), np.concatenate(biases) if biases else None)

    def _qk_norm(self, attention: str) -> Weight:
        config = self._config
        heads = {"q_norm": config.num_heads, "k_norm": config.num_kv_heads}
        norms = [self._tensor(f"{attention}.{norm}.weight", config.head_dim) for norm in heads]
        return np.repeat(norms, [*heads.values()], axis=0)

    def _tensor(self, name: str, *shape: int) -> Weight:
        return _shaped(name, self._weights.tensor(name), *shape)


def _shaped(name: str, tensor: Weight, *shape: int) -> Weight:
    """The tensor itself, if its shape is right: compiled kernels would read beyond the end of a smaller one."""
    if tensor.shape != shape:
        raise ConfigError(f"{name} is {[*tensor.shape]}, but config.json says {[*shape]}")
    return tensor
