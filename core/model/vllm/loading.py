"""Loads a target into vLLM, all ranks of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import torch

from core.errors import ConfigError
from core.generation import MAX_SPECULATIVE_TOKENS
from core.model.causal_lm import CausalLM
from core.model.pages import PAGE_SIZE
from core.model.vllm.decoder import Cache, VllmDecoder
from core.model.vllm.options import RESERVED, VERSION, VllmOptions, check_options, context_of

_ATTENTION = ("FullAttentionSpec", "SlidingWindowSpec", "MLAAttentionSpec")
_FEWEST_ROWS = 256  # of the largest pass; checks at start take as many
_BATCH_INVARIANT = (9, 0)  # the compute capability from which vLLM has kernels whose bits no batch changes


def load_model(path: str | Path, options: VllmOptions) -> CausalLM:
    """Load a model's directory into vLLM, with all ranks.

    Raises `ConfigError` where vLLM is not installed, in vLLM's words for what it refuses, and by name for a model whose
    cache is other than one group of attention layers.
    """
    check_options(options.engine)
    _set_environment()
    try:
        from vllm import platforms
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.engine.core import EngineCore
        from vllm.version import __version__ as found
    except ImportError as error:
        raise ConfigError(f"target.decoder: vllm: {error}; serve_app/serving.md says how to install it") from error
    if not found.startswith(f"{VERSION}."):
        raise ConfigError(f"target.decoder: vllm {found} is installed, and this drives {VERSION}; install that")
    _check_device(options.device, platforms.current_platform.device_type)
    os.environ["VLLM_BATCH_INVARIANT"] = str(int(options.exact and _has_invariant_kernels(options.device)))
    from core.model.vllm.ranks import LocalRanks

    arguments = {**_arguments(Path(path), options), "distributed_executor_backend": LocalRanks, **options.engine}
    try:
        config = EngineArgs(**arguments).create_engine_config()
        engine = EngineCore(config, LocalRanks, log_stats=False)
    except (TypeError, ValueError, NotImplementedError) as error:  # what vLLM refuses arguments and models with
        raise ConfigError(f"target.vllm: {_words(error)}") from error
    try:
        cache: Cache = engine.collective_rpc("begin_passes")[0]
        _check_cache(cache)
    except BaseException:
        engine.shutdown()
        raise
    model, on_cpu = config.model_config, options.device == "cpu"
    num_ids = model.get_vocab_size()
    decoder = VllmDecoder(engine, cache, num_ids, options.dtype, torch.device(options.device), doubles=on_cpu)
    return CausalLM(num_ids, model.max_model_len, decoder)


def _arguments(path: Path, options: VllmOptions) -> dict[str, Any]:
    rows = options.prefill_chunk + options.max_sessions * (1 + MAX_SPECULATIVE_TOKENS)
    return {
        "model": str(path),
        "dtype": options.dtype,
        "skip_tokenizer_init": True,
        "generation_config": "vllm",
        "max_num_seqs": options.max_sessions + 1,  # one beside a lone row
        "max_num_batched_tokens": max(_FEWEST_ROWS, rows) + 1,
        "max_model_len": context_of(path, options.engine),
        **_cache_size(options),
        "block_size": PAGE_SIZE,
        "enable_prefix_caching": False,
        "async_scheduling": False,
        "disable_hybrid_kv_cache_manager": True,  # one group of layers, one page table; windows only save memory
        "worker_extension_cls": "core.model.vllm.passes.PassWorker",
    }


def _set_environment() -> None:
    """vLLM reads some of its settings nowhere else."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # its engine lives in this process
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0"  # passes.py drives the other one
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")


def _check_device(device: str, of_vllm: str) -> None:
    """vLLM computes on what its package is built for, and begins with the first device that it sees."""
    place = torch.device(device)
    if place.type != of_vllm:
        raise ConfigError(
            f"target.device: {device}, and the vLLM that is installed here computes on {of_vllm}; write that"
        )
    if place.index:
        raise ConfigError(f"target.device: write {place.type}; with vllm CUDA_VISIBLE_DEVICES says which")


def _has_invariant_kernels(device: str) -> bool:
    return device != "cpu" and torch.cuda.get_device_capability() >= _BATCH_INVARIANT


def _cache_size(options: VllmOptions) -> dict[str, Any]:
    if options.num_pages is None:
        return {}
    # Without a size vLLM takes all of a CPU's memory; with a number of blocks it only asks whether that is less.
    memory = {"kv_cache_memory_bytes": psutil.virtual_memory().available // 2} if options.device == "cpu" else {}
    return {"num_gpu_blocks_override": options.num_pages + RESERVED, **memory}


def _words(error: Exception) -> str:
    """What vLLM says; pydantic adds all arguments to that."""
    errors = getattr(error, "errors", None)
    return "; ".join(fault["msg"] for fault in errors()) if errors else str(error)


def _check_cache(cache: Cache) -> None:
    if cache.block_size != PAGE_SIZE:
        raise ConfigError(
            f"target.decoder: vllm's kernels for this model want blocks of {cache.block_size} tokens, not {PAGE_SIZE}"
        )
    if len(cache.kinds) != 1 or cache.kinds[0] not in _ATTENTION:
        kinds = " and ".join(cache.kinds) or "none"
        raise ConfigError(
            f"target.decoder: with vllm the cache is of one kind, {' or '.join(_ATTENTION)}; this model's is of {kinds}"
        )
