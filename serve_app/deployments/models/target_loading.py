"""Loads the target with the KV cache, threads and numerics of the configuration."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import torch

from core.errors import ConfigError
from core.model.causal_lm import CausalLM, load_model
from core.model.config import ModelConfig
from core.model.cpu.threads import choose_threads
from core.model.decoder import VLLM
from core.model.invariance import differing
from core.model.loader import public_name, resolve
from core.model.pages import pages_for
from core.model.vllm.loading import load_model as load_into_vllm
from core.model.vllm.options import VllmOptions
from core.model_names import locate
from serve_app.config import Target

_log = logging.getLogger("ray.serve")  # into the log of the replica


def load_target(target: Target) -> CausalLM:
    """Load the target, and on a CPU set the number of torch's threads.

    Raises `ConfigError` if `cache_tokens` is less than a context, or if the device does not keep `numerics: exact`.
    """
    path, exact = resolve(locate(target.model)), target.numerics == "exact"
    if target.device == "cpu":
        _set_threads(target, path)
    if target.decoder == VLLM:
        options = VllmOptions(
            target.dtype,
            target.device,
            exact,
            target.max_sessions,
            target.prefill_chunk,
            target.cache_tokens,
            target.vllm,
        )
        model = load_into_vllm(path, options)
    else:
        model = load_model(
            path,
            dtype=getattr(torch, target.dtype),
            device=target.device,
            num_pages=_target_pages(target, path),
            decoder=target.decoder,
            exact=exact,
        )
    if exact:
        _check_exact(model, target.device)
    return model


def _set_threads(target: Target, path: Path) -> None:
    if target.threads is not None or target.decoder == VLLM:
        torch.set_num_threads(target.threads or max(1, len(os.sched_getaffinity(0)) - 1))
        return
    threads = choose_threads(path, getattr(torch, target.dtype), decoder=target.decoder)
    _log.info("%s computes on %d threads", public_name(target.model), threads)


def _target_pages(target: Target, path: Path) -> int:
    context = ModelConfig.load(path).context
    if target.cache_tokens is None:
        return target.max_sessions * pages_for(context)
    if target.cache_tokens < context:
        raise ConfigError(
            f"target.cache_tokens: {target.cache_tokens} is less than one whole context of {target.model}.\n"
            f"Write {context} or more, or omit it for {target.max_sessions} whole contexts."
        )
    return pages_for(target.cache_tokens)


def _check_exact(model: CausalLM, device: str) -> None:
    report = differing(model)
    if report.differing:
        raise ConfigError(
            f"target.numerics: exact does not hold on {device}: at {report.differing} of {report.positions} positions "
            "the logits depend on what else is in the pass.\nWrite numerics: fast; /v1/models reports it."
        )
