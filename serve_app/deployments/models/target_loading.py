"""Loads the target with the KV cache, threads and numerics of the configuration."""

from __future__ import annotations

import logging
import os

import torch

from core import target as targets
from core.errors import ConfigError
from core.model.causal_lm import CausalLM
from core.model.cpu.threads import choose_threads
from core.model.decoder import VLLM
from core.model.invariance import differing
from core.model.loader import public_name
from serve_app.config import Target

_log = logging.getLogger("ray.serve")  # into the log of the replica


def load_target(target: Target) -> CausalLM:
    """Load the target, and on a CPU set the number of torch's threads.

    Raises `ConfigError` if `cache_tokens` is less than a context, or if the device does not keep `numerics: exact`.
    """
    if target.device == "cpu":
        torch.set_num_threads(target.threads or _threads(target))
    exact = target.numerics == "exact"
    model = targets.load_target(
        target,
        target.max_sessions,
        prefill_chunk=target.prefill_chunk,
        cache_tokens=target.cache_tokens,
        exact=exact,
    )
    if exact:
        _check_exact(model, target.device)
    return model


def _threads(target: Target) -> int:
    if target.decoder == VLLM:
        if target.numerics == "exact":
            return 1  # with more, how vLLM deals a product out to them depends on its rows
        return max(1, (len(os.sched_getaffinity(0)) - 1) // int(target.vllm.get("tensor_parallel_size", 1)))
    threads = choose_threads(target.directory, getattr(torch, target.dtype), decoder=target.decoder)
    _log.info("%s computes on %d threads", public_name(target.model), threads)
    return threads


def _check_exact(model: CausalLM, device: str) -> None:
    report = differing(model)
    if report.differing:
        raise ConfigError(
            f"target.numerics: exact does not hold on {device}: at {report.differing} of {report.positions} positions "
            "the logits depend on what else is in the pass.\nWrite numerics: fast; /v1/models reports it."
        )
