"""What every configuration says alike of its target, and how the target is loaded by that."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from core.errors import ConfigError
from core.model import decoder as decoders
from core.model.config import ModelConfig
from core.model.decoder import VLLM
from core.model.loader import resolve
from core.model.pages import pages_for
from core.model.vllm import options as vllm_options
from core.model_names import locate
from core.settings import Section

if TYPE_CHECKING:
    from core.model.causal_lm import CausalLM


class TargetModel(Section):
    """A target and what computes its passes."""

    model: str = Field(description="directory, hub id, or family:target")
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    device: str = "cpu"
    decoder: str = Field(
        decoders.AUTO,
        description="computes the passes: kernels compiled for this CPU, torch, or vllm for models that neither "
        "knows; auto: compiled on a CPU, torch elsewhere",
    )
    vllm: dict[str, Any] = Field(
        default_factory=dict,
        description="with decoder: vllm, arguments of its EngineArgs, as {tensor_parallel_size: 2, quantization: fp8}",
    )

    @model_validator(mode="after")
    def _has_a_decoder(self) -> Self:
        try:
            decoders.check_name(self.decoder)
            vllm_options.check_options(self.vllm)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        if self.vllm and self.decoder != VLLM:
            raise ValueError(f"vllm: only read with decoder: {VLLM}")
        return self

    @property
    def directory(self) -> Path:
        """Where it lies; a model of the hub is downloaded once."""
        return resolve(locate(self.model))

    @property
    def context(self) -> int:
        """The most tokens of a prompt with its answer, read from `config.json`."""
        if self.decoder == VLLM:
            return vllm_options.context_of(self.directory, self.vllm)
        return ModelConfig.load(self.directory).context


def load_target(
    target: TargetModel, sessions: int, *, prefill_chunk: int = 256, cache_tokens: int | None = None, exact: bool = True
) -> CausalLM:
    """Load the target, with a cache of `cache_tokens`, or of a whole context for each of `sessions`.

    `prefill_chunk` are the most tokens of prompts in a pass. In vLLM on a GPU the cache is by default as large as vLLM
    makes it. Raises `ConfigError` and `UnsupportedArchitecture`.
    """
    import torch

    context = target.context
    if cache_tokens is not None and cache_tokens < context:
        raise ConfigError(
            f"target.cache_tokens: {cache_tokens} is less than one whole context of {target.model}.\n"
            f"Write {context} or more, or omit it for {sessions} whole contexts."
        )
    pages = sessions * pages_for(context) if cache_tokens is None else pages_for(cache_tokens)
    if target.decoder != VLLM:
        from core.model.causal_lm import load_model

        dtype = getattr(torch, target.dtype)
        return load_model(
            target.directory, dtype=dtype, device=target.device, num_pages=pages, decoder=target.decoder, exact=exact
        )
    from core.model.vllm.loading import load_model as load_into_vllm

    in_vllm = vllm_options.VllmOptions(
        target.dtype,
        target.device,
        exact,
        max_sessions=sessions,
        prefill_chunk=prefill_chunk,
        num_pages=None if cache_tokens is None and target.device != "cpu" else pages,
        engine=target.vllm,
    )
    return load_into_vllm(target.directory, in_vllm)
