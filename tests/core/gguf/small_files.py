"""Small GGUF files of random models, written as llama.cpp's converter writes them, and the same models as oracles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import torch
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFWriter
from transformers import PreTrainedModel

from core.text.tokenizer import _BYTE_OF as BYTE_OF
from tests.core.model.random_models import make_model

GEOMETRY: dict[str, object] = {"hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 2, "vocab_size": 300}
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
_FROM_HUGGING_FACE = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
# Where in a block of these types its scales lie, which are float16; the rest of a block may be any bytes.
_SCALES = {
    Kind.Q2_K: (80, 82),
    Kind.Q3_K: (108,),
    Kind.Q4_K: (0, 2),
    Kind.Q5_K: (0, 2),
    Kind.Q6_K: (208,),
    Kind.IQ4_NL: (0,),
    Kind.IQ4_XS: (0,),
}
WRITABLE = (Kind.F32, Kind.F16, Kind.BF16, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1, Kind.Q8_0)
KINDS = (*WRITABLE, *_SCALES)


def llama_cpp_order(rows: npt.NDArray[Any], num_heads: int) -> npt.NDArray[Any]:
    """The rows of queries or keys as llama.cpp's converter orders them (`LlamaModel.permute`)."""
    split = rows.reshape(num_heads, 2, rows.shape[0] // num_heads // 2, *rows.shape[1:])
    return split.swapaxes(1, 2).reshape(rows.shape)


def small_model(model_type: str = "llama", **changes: object) -> PreTrainedModel:
    return make_model(model_type, **(GEOMETRY | changes))


def blocks(weight: npt.NDArray[np.float32], kind: Kind, seed: int) -> npt.NDArray[Any]:
    """A matrix in the blocks of a type: quantised if the library can do it, else random blocks of its shape."""
    if kind in WRITABLE:
        return gguf.quantize(weight, kind)
    generator, (per_block, size) = np.random.default_rng(seed), gguf.GGML_QUANT_SIZES[kind]
    made = generator.integers(0, 256, (weight.shape[0], weight.shape[1] // per_block, size), np.uint8)
    spread = gguf.dequantize(_with_scales(made, kind, 1.0).reshape(len(made), -1), kind).std()
    return _with_scales(made, kind, 0.05 / float(spread)).reshape(len(made), -1)


def _with_scales(made: npt.NDArray[np.uint8], kind: Kind, scale: float) -> npt.NDArray[np.uint8]:
    made = made.copy()
    for place in _SCALES[kind]:
        made[..., place : place + 2] = np.array([scale], np.float16).view(np.uint8)
    return made


def write(path: Path, model: PreTrainedModel, kind: Kind = Kind.F32, **metadata: Any) -> None:
    """Write a model's file, and give the model the numbers that its matrices have in the file.

    `metadata` replaces what the file would say, its dots written as two underscores; None leaves a key out.
    """
    config = model.config
    architecture = metadata.pop("architecture", config.model_type)
    writer = GGUFWriter(path, architecture)
    for key, value in (
        _geometry(config) | _tokenizer() | {k.replace("__", "."): v for k, v in metadata.items()}
    ).items():
        _add(writer, architecture, key, value)
    state = model.state_dict()
    for number, (name, tensor) in enumerate(state.items()):
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = tensor.float().numpy()
        of_file = kind if values.ndim == 2 else Kind.F32
        data = blocks(values, of_file, seed=number)
        tensor.copy_(torch.from_numpy(gguf.dequantize(data, of_file).reshape(values.shape).copy()))
        if config.model_type == "llama" and "q_proj" in name:
            data = llama_cpp_order(data, config.num_attention_heads)
        if config.model_type == "llama" and "k_proj" in name:
            data = llama_cpp_order(data, config.num_key_value_heads)
        writer.add_tensor(file_name(name), np.ascontiguousarray(data), raw_dtype=of_file)
    close(writer)


def close(writer: GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def file_name(name: str) -> str:
    """The name in a GGUF file of a tensor of transformers."""
    module, kind = name.rsplit(".", 1)
    if not module.startswith("model.layers."):
        return f"{_FROM_HUGGING_FACE[module]}.{kind}"
    number, of_layer = module.removeprefix("model.layers.").split(".", 1)
    return f"blk.{number}.{_FROM_HUGGING_FACE[of_layer]}.{kind}"


def _geometry(config: Any) -> dict[str, Any]:
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": head_dim,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "rope.freq_base": config.rope_parameters["rope_theta"],
    }


def vocabulary() -> tuple[list[str], list[int], list[str]]:
    """Tokens, their types and the merges of a byte-level vocabulary with words of letters and digits."""
    char_of = {byte[0]: char for char, byte in BYTE_OF.items()}
    merges = [("Ġ", "t"), ("h", "e"), ("1", "2"), ("Ġt", "he"), ("Ġ", "Ġ"), ("12", "3"), ("i", "n"), ("Ċ", "Ċ")]
    merges += [(char_of[0xC3], char_of[0xA9]), ("'", "s"), ("Ġ", "a"), ("l", "l"), ("in", "g"), ("Ġ", "1")]
    learnt = ["".join(merge) for merge in merges]
    tokens = [*SPECIALS, *(char_of[byte] for byte in range(256)), *learnt, "<think>"]
    types = [3] * len(SPECIALS) + [1] * (256 + len(learnt)) + [4]
    padding = [f"[PAD{number}]" for number in range(len(tokens), 300)]
    return [*tokens, *padding], types + [5] * len(padding), [" ".join(merge) for merge in merges]


def _tokenizer() -> dict[str, Any]:
    tokens, types, merges = vocabulary()
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
    }


def _add(writer: GGUFWriter, architecture: str, key: str, value: object) -> None:
    full = key if key.startswith(("tokenizer", "split")) else f"{architecture}.{key}"
    if isinstance(value, bool):
        writer.add_bool(full, value)
    elif isinstance(value, int):
        writer.add_uint32(full, value)
    elif isinstance(value, float):
        writer.add_float32(full, value)
    elif isinstance(value, str):
        writer.add_string(full, value)
    elif isinstance(value, Sequence):
        writer.add_array(full, value)
