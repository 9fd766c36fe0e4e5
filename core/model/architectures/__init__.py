"""The architectures that can run, one file each: what a Hugging Face config.json means as a plan of layers.

A plan (`core.model.config.ModelConfig`) says all that loading and the decoders need. They know no architecture by name,
and a decoder refuses a plan with a feature that it lacks (`core.model.decoder`).

To add an architecture:

1. Write NAME.py here with an `ARCHITECTURE`. Begin with `plan_like_llama`, and give it what differs.
2. Add it to `ARCHITECTURES` below.
3. If a tensor has another name, or several are stored as one, say so in `WeightNames`.
4. If a layer computes something that no plan can say yet, give `ModelConfig` a field for it with Llama's value as its
   default, name it in `ModelConfig.features`, and write it in the decoders, generically.
5. Add a variant to tests/core/model/test_parity.py, which compares logits with transformers.
6. For GGUF files, give `ARCHITECTURE` their name of it.
"""

from __future__ import annotations

from core.errors import UnsupportedArchitecture
from core.model.architectures import gemma3, llama, mistral, phi3, qwen2, qwen3
from core.model.architectures.common import Architecture, Raw
from core.model.config import ModelConfig

ARCHITECTURES: dict[str, Architecture] = {
    module.ARCHITECTURE.name: module.ARCHITECTURE for module in (gemma3, llama, mistral, phi3, qwen2, qwen3)
}


def architecture_of(raw: Raw) -> Architecture:
    """The architecture that a config.json names. Raises `UnsupportedArchitecture` with the list of known ones."""
    names = [str(name) for name in raw.get("architectures") or []]
    if len(names) != 1 or names[0] not in ARCHITECTURES:
        raise UnsupportedArchitecture(f"{', '.join(names) or 'no architecture'}; known: {', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[names[0]]


def plan(raw: Raw) -> ModelConfig:
    """The plan of a model by its config.json. Raises as `ModelConfig.from_dict` says."""
    return architecture_of(raw).plan(raw)
