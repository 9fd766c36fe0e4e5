"""Loads target and drafts as a service needs them: with as large a cache as its configuration says."""

from __future__ import annotations

import logging
from pathlib import Path

import torch

from core.errors import ConfigError
from core.family import locate
from core.model.causal_lm import CausalLM, load_model
from core.model.config import ModelConfig
from core.model.invariance import differing
from core.model.loader import public_name, resolve
from core.model.pages import pages_for
from core.model.threads import choose_threads
from serve_app.config import Draft, Target

_log = logging.getLogger("ray.serve")  # into the log of the replica


def load_target(target: Target) -> CausalLM:
    """The target, as its configuration says; on a CPU, torch then has as many threads as it computes on.

    Raises `ConfigError` where `cache_tokens` is less than a context, or `numerics` more than the device keeps.
    """
    path, exact = resolve(locate(target.model)), target.numerics == "exact"
    pages = _target_pages(target, path)
    if target.device == "cpu":
        _set_threads(target, path)
    model = _load(path, target.dtype, target.device, pages, exact=exact, compiled=target.compiled)
    if exact:
        _check_exact(model, target.device)
    return model


def load_draft(draft: Draft, directory: str | None) -> CausalLM:
    """What a pool serves: the draft with the PEFT adapter of `directory` merged, or the whole model that lies there.

    Its cache holds a whole context for every session: a draft can neither preempt one nor let it wait.
    """
    model = draft_model(draft, directory)
    path = resolve(model)
    num_pages = draft.max_sessions * pages_for(ModelConfig.load(path).context)
    adapter = None if model == directory else directory
    return _load(path, draft.dtype, draft.device, num_pages, exact=False, adapter=adapter)


def draft_model(draft: Draft, directory: str | None) -> str:
    """The model that a pool's tokenizer and its weights, but for an adapter's, come from."""
    if directory is None or (Path(directory) / "adapter_config.json").is_file():
        return locate(draft.model)
    return directory


def _set_threads(target: Target, path: Path) -> None:
    if target.threads is not None:
        torch.set_num_threads(target.threads)
        return
    threads = choose_threads(path, getattr(torch, target.dtype), compiled=target.compiled)
    _log.info("of this machine's cores %s computes on %d", public_name(target.model), threads)


def _target_pages(target: Target, path: Path) -> int:
    context = ModelConfig.load(path).context
    if target.cache_tokens is None:
        return target.max_sessions * pages_for(context)
    if target.cache_tokens < context:
        raise ConfigError(
            f"target.cache_tokens: {target.cache_tokens} is less than one whole context of {target.model}.\n"
            f"Write {context} or more, or leave it out for {target.max_sessions} whole contexts."
        )
    return pages_for(target.cache_tokens)


def _check_exact(model: CausalLM, device: str) -> None:
    found = differing(model)
    if found.differing:
        raise ConfigError(
            f"target.numerics: exact does not hold on {device}: at {found.differing} of {found.positions} positions "
            "the logits hang on the pass they come out of.\nWrite numerics: fast, which /v1/models then tells."
        )


def _load(
    path: Path,
    dtype: str,
    device: str,
    num_pages: int,
    *,
    exact: bool,
    adapter: str | None = None,
    compiled: bool | None = None,
) -> CausalLM:
    return load_model(
        path,
        dtype=getattr(torch, dtype),
        device=device,
        num_pages=num_pages,
        adapter=adapter,
        compiled=compiled,
        exact=exact,
    )
