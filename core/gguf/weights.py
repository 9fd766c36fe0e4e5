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

if TYPE_CHECKING:
    from gguf import ReaderTensor

_KEPT = {"F16": ("F16", 2), "BF16": ("BF16", 2)}  # GGUF's name: safetensors' name, bytes per number
_WIDE = ("F32", 4)
_DTYPES = {"F16": "float16", "BF16": "bfloat16", "F32": "float32"}


class _Wanted(NamedTuple):
    """A tensor that the model needs: its name in the Hugging Face directory, and its shape."""

    name: str
    shape: tuple[int, ...]


def write_weights(file: GgufFile, config: dict[str, Any], target: Path) -> None:
    """Write all tensors of the model. Raises `ConfigError` if one is missing, unknown or of an unknown type."""
    wanted = _wanted(config)
    _check_complete(file, wanted)
    with target.open("wb") as out:
        out.write(_header(file, wanted))
        for name in wanted:
            out.write(_numbers(file, name, config).data)


def dtype(file: GgufFile) -> str:
    """The type that holds every matrix exactly, as config.json names it."""
    kinds = {_kind(tensor)[0] for tensor in file.tensors.values() if len(tensor.shape) > 1}
    return _DTYPES[kinds.pop()] if len(kinds) == 1 else "float32"


def _wanted(config: dict[str, Any]) -> dict[str, _Wanted]:
    """The tensors by their names in the file, in the order of the layers."""
    table = (config["vocab_size"], config["hidden_size"])
    wanted = {"token_embd.weight": _Wanted("model.embed_tokens.weight", table)}
    layer = dict(_layer(config))
    for number in range(config["num_hidden_layers"]):
        for name, (of_layer, shape) in layer.items():
            wanted[f"blk.{number}.{name}"] = _Wanted(f"model.layers.{number}.{of_layer}", shape)
    wanted["output_norm.weight"] = _Wanted("model.norm.weight", table[1:])
    if not config["tie_word_embeddings"]:
        wanted["output.weight"] = _Wanted("lm_head.weight", table)
    return wanted


def _layer(config: dict[str, Any]) -> Iterator[tuple[str, _Wanted]]:
    hidden, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    yield "attn_norm.weight", _Wanted("input_layernorm.weight", (hidden,))
    for name, rows in (("q", queries), ("k", keys), ("v", keys)):
        yield f"attn_{name}.weight", _Wanted(f"self_attn.{name}_proj.weight", (rows, hidden))
        if config["model_type"] == "qwen2":
            yield f"attn_{name}.bias", _Wanted(f"self_attn.{name}_proj.bias", (rows,))
        if config["model_type"] == "qwen3" and name != "v":
            yield f"attn_{name}_norm.weight", _Wanted(f"self_attn.{name}_norm.weight", (head,))
    yield "attn_output.weight", _Wanted("self_attn.o_proj.weight", (hidden, queries))
    yield "ffn_norm.weight", _Wanted("post_attention_layernorm.weight", (hidden,))
    yield "ffn_gate.weight", _Wanted("mlp.gate_proj.weight", (inner, hidden))
    yield "ffn_up.weight", _Wanted("mlp.up_proj.weight", (inner, hidden))
    yield "ffn_down.weight", _Wanted("mlp.down_proj.weight", (hidden, inner))


def _check_complete(file: GgufFile, wanted: dict[str, _Wanted]) -> None:
    if missing := wanted.keys() - file.tensors.keys():
        raise ConfigError(f"{file.path}: no tensor {min(missing)!r}; download the file again, or use another")
    if unknown := file.tensors.keys() - wanted.keys() - {ROPE_FACTORS}:
        raise ConfigError(
            f"{file.path}: a variant of {file.architecture} that is not supported, with a tensor {min(unknown)!r}"
        )
    for name, (_, shape) in wanted.items():
        found = tuple(reversed(file.tensors[name].shape.tolist()))
        if found != shape:
            raise ConfigError(f"{file.path}: {name} is {[*found]}, and by its metadata it must be {[*shape]}")


def _kind(tensor: ReaderTensor) -> tuple[str, int]:
    """The type in which a tensor is written, and its bytes per number."""
    return _KEPT.get(tensor.tensor_type.name, _WIDE)


def _header(file: GgufFile, wanted: dict[str, _Wanted]) -> bytes:
    """The length of a JSON object and the object: type, shape and place of each tensor."""
    entries, end = dict[str, Any](), 0
    for name, (written, shape) in wanted.items():
        kind, width = _kind(file.tensors[name])
        begin, end = end, end + width * file.tensors[name].n_elements
        entries[written] = {"dtype": kind, "shape": shape, "data_offsets": (begin, end)}
    text = json.dumps({"__metadata__": {"format": "pt"}, **entries}).encode()
    text = text.ljust(-(-len(text) // 8) * 8)  # so that the numbers begin at a multiple of 8
    return len(text).to_bytes(8, "little") + text


def _numbers(file: GgufFile, name: str, config: dict[str, Any]) -> npt.NDArray[Any]:
    """A tensor as it is written, in one piece."""
    from gguf import dequantize

    tensor = file.tensors[name]
    data = tensor.data
    if config["model_type"] == "llama" and name.endswith(("attn_q.weight", "attn_k.weight")):
        data = _halves_together(data, config["head_dim"])
    if tensor.tensor_type.name in _KEPT:
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
