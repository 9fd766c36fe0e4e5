"""What a target in vLLM is loaded for; read without vLLM and torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from core.errors import ConfigError
from core.model.bfloat16 import Dtype
from core.model.config import read_config
from core.model.pages import PAGE_SIZE

VERSION = "0.32"  # what core/model/vllm/__init__.py says of vLLM holds for it
RESERVED = 2  # blocks without a session: vLLM never writes to the first, and a row beside a lone one to the last
_OURS = {
    "model": "write target.model",
    "dtype": "write target.dtype",
    "max_num_seqs": "write target.max_sessions",
    "max_num_batched_tokens": "write target.prefill_chunk",
    "num_gpu_blocks_override": "write target.cache_tokens",
    "speculative_config": "TaskSpec drafts",
    "block_size": f"a page is {PAGE_SIZE} tokens",
    "enable_prefix_caching": "TaskSpec caches prefixes",
    "pipeline_parallel_size": "ranks share every layer; write tensor_parallel_size",
    "data_parallel_size": "write target.actors.replicas",
    "kv_cache_memory_bytes": "write target.cache_tokens",
    **dict.fromkeys(
        (
            "async_scheduling",
            "disable_hybrid_kv_cache_manager",
            "distributed_executor_backend",
            "enable_prompt_embeds",
            "generation_config",
            "skip_tokenizer_init",
            "worker_cls",
            "worker_extension_cls",
        ),
        "TaskSpec's way of driving vLLM depends on it",
    ),
}
"""Arguments of vLLM that are not the user's, and what to write instead or why."""


class VllmOptions(NamedTuple):
    """What vLLM is loaded for: passes of at most `max_sessions`, which read at most `prefill_chunk` tokens of prompts.

    `num_pages` None leaves the size of the cache to vLLM. `engine` has further arguments of vLLM's `EngineArgs`.
    """

    dtype: Dtype
    device: str
    exact: bool
    max_sessions: int
    prefill_chunk: int = 256
    num_pages: int | None = None
    engine: Mapping[str, Any] = {}


def context_of(directory: Path, engine: Mapping[str, Any]) -> int:
    """The most tokens of a session: `max_model_len`, or else what the model's `config.json` says."""
    raw = read_config(directory)
    longest = {**raw, **(raw.get("text_config") or {})}.get("max_position_embeddings")
    tokens = engine.get("max_model_len", longest)
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1:
        raise ConfigError(
            f"{directory}: the longest context is {tokens!r} by target.vllm.max_model_len or else "
            "max_position_embeddings of config.json; write a number of tokens as the former"
        )
    return tokens


def check_options(engine: Mapping[str, Any]) -> None:
    """Raises `ConfigError` for an argument that TaskSpec gives itself, with what to write instead."""
    if ours := next((key for key in engine if key in _OURS), None):
        raise ConfigError(f"target.vllm.{ours} is not for you to set: {_OURS[ours]}")
