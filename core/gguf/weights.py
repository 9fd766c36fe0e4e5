"""Writes the tensors of a GGUF file as model.safetensors, one after the other, so that memory holds one at a time.

Nothing is rounded. A tensor of F16 or BF16 keeps its type. A quantised one becomes float32, because none of the
narrower types holds its scale times its number exactly. What is served in bfloat16 is rounded once, when it is loaded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from core.errors import ConfigError
from core.gguf.config import ROPE_FACTORS
from core.gguf.reading import GgufFile
from core.model.architectures import architecture_of
from core.model.config import ModelConfig

if TYPE_CHECKING:
    from gguf import ReaderTensor

_UNCHANGED = {"F16": ("F16", 2), "BF16": ("BF16", 2)}  # GGUF's name: safetensors' name, bytes per number
_WIDE = ("F32", 4)
_DTYPES = {"F16": "float16", "BF16": "bfloat16", "F32": "float32"}


class _Tensor(NamedTuple):
    """A tensor that the model needs: its name in the Hugging Face directory, and its shape."""

    name: str
    shape: tuple[int, ...]


def write_weights(file: GgufFile, config: dict[str, Any], target: Path) -> None:
    """Write all tensors of the model. Raises `ConfigError` if one is missing, unknown or of an unknown type."""
    plan = ModelConfig.from_dict(config)
    tensors = _tensors(plan)
    _check_complete(file, tensors)
    pair_width = plan.head_dim if architecture_of(config).gguf_pairs else None
    with target.open("wb") as out:
        out.write(_header(file, tensors))
        for name in tensors:
            out.write(_numbers(file, name, pair_width).data)


def dtype(file: GgufFile) -> str:
    """The type that holds every matrix exactly, as config.json names it."""
    kinds = {_kind(tensor)[0] for tensor in file.tensors.values() if len(tensor.shape) > 1}
    return _DTYPES[kinds.pop()] if len(kinds) == 1 else "float32"


def _tensors(plan: ModelConfig) -> dict[str, _Tensor]:
    """The tensors of the plan by their names in the file, in the order of the layers."""
    table = (plan.vocab_size, plan.hidden_size)
    tensors = {"token_embd.weight": _Tensor("model.embed_tokens.weight", table)}
    layer = dict(_layer(plan))
    for number in range(plan.num_layers):
        for name, (of_layer, shape) in layer.items():
            tensors[f"blk.{number}.{name}"] = _Tensor(f"model.layers.{number}.{of_layer}", shape)
    tensors["output_norm.weight"] = _Tensor("model.norm.weight", table[1:])
    if not plan.tied:
        tensors["output.weight"] = _Tensor("lm_head.weight", table)
    return tensors


def _layer(plan: ModelConfig) -> Iterator[tuple[str, _Tensor]]:
    names, hidden, inner, head = plan.names, plan.hidden_size, plan.intermediate_size, plan.head_dim
    queries, keys = plan.num_heads * head, plan.num_kv_heads * head
    yield "attn_norm.weight", _Tensor(f"{names.norm}.weight", (hidden,))
    for name, module, rows in zip("qkv", names.qkv, (queries, keys, keys), strict=True):
        yield f"attn_{name}.weight", _Tensor(f"{module}.weight", (rows, hidden))
        if plan.qkv_bias:
            yield f"attn_{name}.bias", _Tensor(f"{module}.bias", (rows,))
    if plan.qk_norm:
        yield "attn_q_norm.weight", _Tensor(f"{names.q_norm}.weight", (head,))
        yield "attn_k_norm.weight", _Tensor(f"{names.k_norm}.weight", (head,))
    yield "attn_output.weight", _Tensor(f"{names.out}.weight", (hidden, queries))
    yield "ffn_norm.weight", _Tensor(f"{names.mlp_norm}.weight", (hidden,))
    for name, module in zip(("gate", "up"), names.gate_up, strict=True):
        yield f"ffn_{name}.weight", _Tensor(f"{module}.weight", (inner, hidden))
    yield "ffn_down.weight", _Tensor(f"{names.down}.weight", (hidden, inner))


def _check_complete(file: GgufFile, tensors: dict[str, _Tensor]) -> None:
    if missing := tensors.keys() - file.tensors.keys():
        raise ConfigError(f"{file.path}: no tensor {min(missing)!r}; download the file again, or use another")
    if unknown := file.tensors.keys() - tensors.keys() - {ROPE_FACTORS}:
        raise ConfigError(
            f"{file.path}: a variant of {file.architecture} that is not supported, with a tensor {min(unknown)!r}"
        )
    for name, (_, shape) in tensors.items():
        in_file = tuple(reversed(file.tensors[name].shape.tolist()))
        if in_file != shape:
            raise ConfigError(f"{file.path}: {name} is {[*in_file]}, and by its metadata it must be {[*shape]}")


def _kind(tensor: ReaderTensor) -> tuple[str, int]:
    """The type in which a tensor is written, and its bytes per number."""
    return _UNCHANGED.get(tensor.tensor_type.name, _WIDE)


def _header(file: GgufFile, tensors: dict[str, _Tensor]) -> bytes:
    """The length of a JSON object and the object: type, shape and place of each tensor."""
    entries, end = dict[str, Any](), 0
    for name, (written, shape) in tensors.items():
        kind, width = _kind(file.tensors[name])
        begin, end = end, end + width * file.tensors[name].n_elements
        entries[written] = {"dtype": kind, "shape": shape, "data_offsets": (begin, end)}
    text = json.dumps({"__metadata__": {"format": "pt"}, **entries}).encode()
    text = text.ljust(-(-len(text) // 8) * 8)  # so that the numbers begin at a multiple of 8
    return len(text).to_bytes(8, "little") + text


def _numbers(file: GgufFile, name: str, pair_width: int | None) -> npt.NDArray[Any]:
    """A tensor as it is written, in one piece; `pair_width` is that of heads whose rows lie in pairs, if they do."""
    from gguf import dequantize

    tensor = file.tensors[name]
    data = tensor.data
    if pair_width is not None and name.endswith(("attn_q.weight", "attn_k.weight")):
        data = _halves_together(data, pair_width)
    if tensor.tensor_type.name in _UNCHANGED:
        return np.ascontiguousarray(data)
    try:
        return np.ascontiguousarray(dequantize(data, tensor.tensor_type))
    except NotImplementedError as error:
        raise ConfigError(
            f"{file.path}: {name} is of the type {tensor.tensor_type.name}, which cannot be read; "
            "use a file of F16, Q8_0, Q4_K_M or another common type"
        ) from error


def _halves_together(rows: npt.NDArray[Any], head_dim: int) -> npt.NDArray[Any]:
    """The rows of queries or keys in Hugging Face's order: of each head first the even ones, then the odd ones.

    llama.cpp rotates neighbours together where transformers rotates the halves of a head, and stores the rows for it.
    """
    pairs = rows.reshape(-1, head_dim // 2, 2, rows.shape[1])
    return pairs.swapaxes(1, 2).reshape(rows.shape)
