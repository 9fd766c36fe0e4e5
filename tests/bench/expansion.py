"""Embeds a small trained LLaMA in a larger LLaMA geometry that computes the same function at the larger cost.

In: a Hugging Face directory and a geometry. Out: another directory whose logits are the source's (to 1e-5 in fp32).
For measuring only: the added weights work and change nothing, so nobody should take the result for a better model.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from transformers import AutoConfig, LlamaConfig, LlamaForCausalLM

_FILL = 0.02


@dataclass(frozen=True, slots=True)
class Geometry:
    """The sizes of a LLaMA; `ffn` is the width of its gated MLP."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int

    @classmethod
    def of(cls, config: LlamaConfig) -> Geometry:
        """The geometry a config describes."""
        heads = int(config.num_attention_heads or 0)
        return cls(
            hidden=config.hidden_size,
            layers=config.num_hidden_layers,
            heads=heads,
            kv_heads=int(config.num_key_value_heads or heads),
            head_dim=int(config.head_dim or config.hidden_size // heads),
            ffn=config.intermediate_size,
        )


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the source's rows lie in the larger matrices: int64 indices of query, key/value and MLP rows."""

    query: torch.Tensor
    key_value: torch.Tensor
    key_value_source: torch.Tensor
    ffn: torch.Tensor


def _head_rows(head: int, old: int, new: int) -> torch.Tensor:
    """Rows of one head: rotary pair (i, i + old/2) goes to the pair of the same frequency, (i*m, i*m + new/2)."""
    pairs = torch.arange(old // 2) * (new // old)
    return head * new + torch.cat([pairs, pairs + new // 2])


def _places(old: Geometry, new: Geometry) -> _Places:
    """A key/value head is repeated where the larger model shares each among fewer queries.

    Raises ValueError, naming the size, where the source does not fit.
    """
    group, new_group = old.heads // old.kv_heads, new.heads // new.kv_heads
    copies = math.ceil(group / new_group)
    smaller = [name for name, size in asdict(old).items() if asdict(new)[name] < size]
    if smaller or copies * old.kv_heads > new.kv_heads or new.heads % new.kv_heads or new.head_dim % old.head_dim:
        raise ValueError(f"{old} does not fit into {new}: check {', '.join(smaller) or 'heads, kv_heads and head_dim'}")
    homes = [(j * copies + r // new_group, r % new_group) for j in range(old.kv_heads) for r in range(group)]
    kept = [(j, j * copies + c) for j in range(old.kv_heads) for c in range(copies)]
    source = [torch.arange(j * old.head_dim, (j + 1) * old.head_dim) for j, _ in kept]
    return _Places(
        query=torch.cat([_head_rows(kv * new_group + slot, old.head_dim, new.head_dim) for kv, slot in homes]),
        key_value=torch.cat([_head_rows(home, old.head_dim, new.head_dim) for _, home in kept]),
        key_value_source=torch.cat(source),
        ffn=torch.arange(old.ffn),
    )


class _Expander:
    """Makes the larger tensors one by one in the wanted dtype; what does not matter is filled with small noise."""

    def __init__(self, old: Geometry, new: Geometry, dtype: torch.dtype, seed: int) -> None:
        self._old, self._new, self._dtype = old, new, dtype
        self._noise = torch.Generator().manual_seed(seed)
        self._at = _places(old, new)

    def norm(self, weight: torch.Tensor) -> torch.Tensor:
        """The mean square is taken over more numbers, all zero: sqrt(old / new) makes up for it."""
        scaled = torch.ones(self._new.hidden)
        scaled[: self._old.hidden] = weight * math.sqrt(self._old.hidden / self._new.hidden)
        return scaled.to(self._dtype)

    def embedding(self, weight: torch.Tensor) -> torch.Tensor:
        """[vocab, new hidden]: the added part of the residual stream starts, and stays, zero."""
        wide = torch.zeros(len(weight), self._new.hidden)
        wide[:, : self._old.hidden] = weight
        return wide.to(self._dtype)

    def _reading(self, rows: int, weight: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        """A matrix that reads the stream: noise where nothing depends on it."""
        wide = torch.empty(rows, self._new.hidden).normal_(0, _FILL, generator=self._noise)
        wide[at] = 0
        wide[at, : self._old.hidden] = weight
        return wide.to(self._dtype)

    def _writing(self, columns: int, weight: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        """A matrix that writes the stream: zero for everything added."""
        wide = torch.zeros(self._new.hidden, columns)
        wide[: self._old.hidden, at] = weight
        return wide.to(self._dtype)

    def layer(self, source: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The tensors of one layer, by their names inside it."""
        old, new, at = self._old, self._new, self._at
        heads, pairs = new.heads * new.head_dim, new.kv_heads * new.head_dim
        query = source["self_attn.q_proj.weight"] * math.sqrt(new.head_dim / old.head_dim)
        key, value = (source[f"self_attn.{name}_proj.weight"][at.key_value_source] for name in "kv")
        wide = {
            "self_attn.q_proj.weight": self._reading(heads, query, at.query),
            "self_attn.k_proj.weight": self._reading(pairs, key, at.key_value),
            "self_attn.v_proj.weight": self._reading(pairs, value, at.key_value),
            "self_attn.o_proj.weight": self._writing(heads, source["self_attn.o_proj.weight"], at.query),
            "mlp.gate_proj.weight": self._reading(new.ffn, source["mlp.gate_proj.weight"], at.ffn),
            "mlp.up_proj.weight": self._reading(new.ffn, source["mlp.up_proj.weight"], at.ffn),
            "mlp.down_proj.weight": self._writing(new.ffn, source["mlp.down_proj.weight"], at.ffn),
        }
        # A key meets only the added half of its query where that query is zero.
        wide["self_attn.q_proj.weight"][self._added_rows(at.query)] = 0
        return wide | {name: self.norm(weight) for name, weight in source.items() if name.endswith("norm.weight")}

    def _added_rows(self, at: torch.Tensor) -> torch.Tensor:
        """Rows added inside heads that the source uses."""
        inside = torch.isin(torch.arange(self._new.heads), at // self._new.head_dim)
        added = inside.repeat_interleave(self._new.head_dim)
        added[at] = False
        return added


def _layer_tensors(state: dict[str, torch.Tensor], layer: int) -> dict[str, torch.Tensor]:
    prefix = f"model.layers.{layer}."
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}


def _layers(
    expander: _Expander, state: dict[str, torch.Tensor], used: int, wanted: int
) -> Iterator[dict[str, torch.Tensor]]:
    """The source's layers, enlarged, and idle ones behind them: copies of one, for their noise takes long to draw."""
    for layer in range(used):
        yield expander.layer(_layer_tensors(state, layer))
    if wanted > used:
        idle = expander.layer({name: torch.zeros_like(tensor) for name, tensor in _layer_tensors(state, 0).items()})
        for _ in range(used, wanted):
            yield {name: tensor.clone() for name, tensor in idle.items()}


def _larger_config(config: LlamaConfig, geometry: Geometry, dtype: torch.dtype) -> LlamaConfig:
    changed = {
        "hidden_size": geometry.hidden,
        "num_hidden_layers": geometry.layers,
        "num_attention_heads": geometry.heads,
        "num_key_value_heads": geometry.kv_heads,
        "head_dim": geometry.head_dim,
        "intermediate_size": geometry.ffn,
        "rms_norm_eps": config.rms_norm_eps * config.hidden_size / geometry.hidden,
        "dtype": dtype,
    }
    return LlamaConfig(**(config.to_dict() | changed))


def expand(
    source: Path, destination: Path, geometry: Geometry, dtype: torch.dtype = torch.bfloat16, seed: int = 0
) -> Path:
    """Write the expansion of `source` to `destination` and return it.

    Raises ValueError where the source is no plain LLaMA (biases) or does not fit into the geometry.
    """
    config = AutoConfig.from_pretrained(source)
    if not isinstance(config, LlamaConfig) or config.attention_bias or config.mlp_bias:
        raise ValueError(f"{source} is not a LLaMA without biases")
    small = LlamaForCausalLM.from_pretrained(source, dtype=torch.float32)
    state: dict[str, torch.Tensor] = small.state_dict()
    expander = _Expander(Geometry.of(config), geometry, dtype, seed)
    large = {
        "model.embed_tokens.weight": expander.embedding(state["model.embed_tokens.weight"]),
        "lm_head.weight": expander.embedding(state["lm_head.weight"]),
        "model.norm.weight": expander.norm(state["model.norm.weight"]),
    }
    for layer, tensors in enumerate(_layers(expander, state, config.num_hidden_layers, geometry.layers)):
        large |= {f"model.layers.{layer}.{name}": tensor for name, tensor in tensors.items()}
    with torch.device("meta"):
        model = LlamaForCausalLM(_larger_config(config, geometry, dtype))
    model.load_state_dict(large, assign=True)
    model.tie_weights()
    model.save_pretrained(destination)
    for name in ("generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if (source / name).exists():
            shutil.copy(source / name, destination / name)
    return destination
