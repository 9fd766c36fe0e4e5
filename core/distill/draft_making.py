"""A draft for any target, made from the target itself: a few of its layers, or a narrow copy, with a head cut to size.

The draft is a Hugging Face directory. It stores what it does not share with its target: layers, final norm, the rows of
the head that its vocabulary has. The embedding is read from the target, and by a narrow draft through a projection, the
best of its width (a singular value decomposition). Before it is aligned (`core.distill.alignment`) it guesses badly.

`config.json` says in the block `speculators_config` whose draft this is, as other servers read it.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from core.atomic_files import ASIDE, grant
from core.errors import ConfigError
from core.model.config import ModelConfig, read_config
from core.model.draft_vocabulary import DraftVocabulary
from core.model.loader import EMBEDDING, PROJECTION, public_name
from core.model.tensor_views import TensorCheckpoint

CONTEXT = 2048  # tokens that a draft sees at most; a longer context only takes memory of every session
_HEAD_DIM = 64  # of a narrow draft
_ALGORITHM = "draft_model"  # in the words of vLLM's speculators
_SPREAD = 0.02  # of the first weights of a narrow draft
_FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")


def evenly(num_layers: int, count: int) -> list[int]:
    """Numbers of `count` layers, the first and the last among them; of one, the first."""
    if not 1 <= count <= num_layers:
        raise ConfigError(f"a draft keeps 1 to {num_layers} of its target's layers, not {count}")
    return [round(index * (num_layers - 1) / max(1, count - 1)) for index in range(count)]


def make_from_layers(target: Path, name: str, layers: Sequence[int], ids: Sequence[int], destination: Path) -> None:
    """Write a draft of these layers at the target's width, whose head has the rows of `ids`.

    `name` is what the target is called in the draft's `config.json`.
    """
    checkpoint, config = TensorCheckpoint(target), ModelConfig.load(target)
    head = checkpoint[EMBEDDING if config.tied else "lm_head.weight"]
    tensors = {"model.norm.weight": checkpoint["model.norm.weight"], "lm_head.weight": head[torch.tensor(ids)]}
    for place, layer in enumerate(layers):
        old, new = f"model.layers.{layer}.", f"model.layers.{place}."
        names = (tensor for tensor in checkpoint.names() if tensor.startswith(old))
        tensors |= {new + tensor.removeprefix(old): checkpoint[tensor] for tensor in names}
    changes: dict[str, Any] = {"num_hidden_layers": len(layers)}
    if types := _layer_types(target, config):
        changes["layer_types"] = [types[layer] for layer in layers]
    _write(target, name, changes, tensors, DraftVocabulary.from_ids(ids, config.vocab_size), destination)


def check_narrow(target: ModelConfig, width: int) -> None:
    """Raises `ConfigError` if a target cannot have a narrow draft of this width."""
    if target.features or target.norm_offset or target.layers[0].rope.type == "longrope":
        raise ConfigError("a narrow draft is a Llama, and this target is not like one; leave the width out")
    if width % _HEAD_DIM or not 0 < width < target.hidden_size:
        raise ConfigError(f"the width of a narrow draft is a multiple of {_HEAD_DIM} below its target's, not {width}")


def make_narrow(target: Path, name: str, layers: int, width: int, ids: Sequence[int], destination: Path) -> None:
    """Write a draft of so many layers of `width`, begun at random, whose head has the rows of `ids`."""
    config = ModelConfig.load(target)
    check_narrow(config, width)
    checkpoint = TensorCheckpoint(target)
    table = checkpoint[EMBEDDING].float()
    projection = torch.linalg.eigh(table.T @ table).eigenvectors[:, -width:]  # the right singular vectors
    head = checkpoint[EMBEDDING if config.tied else "lm_head.weight"].float()[torch.tensor(ids)]
    gates = 8 * width // 3 // _HEAD_DIM * _HEAD_DIM
    random = torch.Generator().manual_seed(0)
    tensors = {"model.norm.weight": torch.ones(width), "lm_head.weight": head @ projection, PROJECTION: projection}
    for place in range(layers):
        tensors |= _first_weights(f"model.layers.{place}", width, gates, math.sqrt(2 * layers), random)
    heads = width // _HEAD_DIM
    changes = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": layers,
        "hidden_size": width,
        "intermediate_size": gates,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "head_dim": _HEAD_DIM,
        "attention_bias": False,
    }
    _write(target, name, changes, tensors, DraftVocabulary.from_ids(ids, config.vocab_size), destination)


def made_for(draft: Path) -> str | None:
    """What the target is called that the draft in this directory was made for; None if it is no such draft."""
    if not (draft / "config.json").exists() or DraftVocabulary.find(draft) is None:
        return None
    note: Mapping[str, Any] = read_config(draft).get("speculators_config", {})
    return note.get("verifier", {}).get("name_or_path") if note.get("algorithm") == _ALGORITHM else None


def _layer_types(target: Path, config: ModelConfig) -> list[str] | None:
    """What the target's `config.json` calls its layers; in an older form it names them only by a pattern."""
    if types := read_config(target).get("layer_types"):
        return list(types)
    if len(set(config.layers)) == 1:
        return None
    return ["full_attention" if layer.window is None else "sliding_attention" for layer in config.layers]


def _first_weights(
    layer: str, width: int, gates: int, depth: float, random: torch.Generator
) -> dict[str, torch.Tensor]:
    """Those of one layer; what it adds to the stream begins smaller, the deeper the model is."""

    def drawn(outs: int, ins: int, scale: float = 1.0) -> torch.Tensor:
        return torch.randn(outs, ins, generator=random) * (_SPREAD * scale)

    attention = {f"{layer}.self_attn.{name}_proj.weight": drawn(width, width) for name in "qkv"}
    return attention | {
        f"{layer}.self_attn.o_proj.weight": drawn(width, width, 1 / depth),
        f"{layer}.mlp.gate_proj.weight": drawn(gates, width),
        f"{layer}.mlp.up_proj.weight": drawn(gates, width),
        f"{layer}.mlp.down_proj.weight": drawn(width, gates, 1 / depth),
        f"{layer}.input_layernorm.weight": torch.ones(width),
        f"{layer}.post_attention_layernorm.weight": torch.ones(width),
    }


def _write(
    target: Path,
    name: str,
    changes: Mapping[str, Any],
    tensors: Mapping[str, torch.Tensor],
    vocabulary: DraftVocabulary,
    destination: Path,
) -> None:
    """Write the directory by one rename, in place of what was there."""
    raw = read_config(target)
    aside = destination.with_name(ASIDE + destination.name)
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    config = {
        **raw,
        **changes,
        "max_position_embeddings": _positions(raw),
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
        "speculators_config": _speculators_config(name, raw),
    }
    (aside / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    stored = {tensor: weight.to(torch.bfloat16).contiguous() for tensor, weight in tensors.items()}
    save_file(stored, aside / "model.safetensors", {"format": "pt"})
    for file in _FILES:
        if (target / file).exists():
            shutil.copyfile(target / file, aside / file)
    vocabulary.save(aside)
    grant(aside)
    shutil.rmtree(destination, ignore_errors=True)
    aside.rename(destination)


def _positions(raw: Mapping[str, Any]) -> int:
    """Those of the draft. With LongRoPE they stay: it scales by how many more they are than the original context."""
    longest: int = raw["max_position_embeddings"]
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    return longest if "long_factor" in rope else min(CONTEXT, longest)


def _speculators_config(name: str, target: Mapping[str, Any]) -> dict[str, Any]:
    """What this draft is for, in the words of vLLM's speculators."""
    method = {"proposal_type": "greedy", "speculative_tokens": 4}
    return {
        "algorithm": _ALGORITHM,
        "proposal_methods": [method],
        "default_proposal_method": "greedy",
        "verifier": {"name_or_path": public_name(name), "architectures": target["architectures"]},
    }
