"""`Decoder`, the backend that computes a model's passes and owns its KV cache; and `DECODERS`, by name.

`CausalLM` is its one caller. It keeps the sessions and their page tables; a decoder knows neither.

To add a decoder:

1. Write a class with the members of `Decoder`: core/model/NAME.py, or a room of that name.
2. Write a function here that loads one for an `OpenedModel`. Import the room within it: a process loads one decoder.
3. Add it to `DECODERS` with the features of `ModelConfig.features` that it has.
4. Run tests/core/model/test_parity.py and test_row_invariance.py, which take every decoder that runs on CPUs.

A configuration then chooses it by `decoder: NAME`.

`vllm` is a decoder, too, and none of `DECODERS`: it loads models by itself, of any architecture (core/model/vllm).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from core.arrays import Array, Device, on_cpu
from core.errors import ConfigError, UnsupportedArchitecture
from core.model.bfloat16 import Dtype
from core.model.config import ModelConfig
from core.model.draft_tokens import DraftToken, StopRule
from core.model.model_files import OpenedModel
from core.model.pages import PageCopy, Span

if TYPE_CHECKING:
    import torch


class Decoder(Protocol[Array]):
    """Computes passes over a KV cache of its own, which is divided into `num_pages` pages of PAGE_SIZE tokens.

    Its caller allocates: a `Span` names the pages of its session, which have room for all tokens of the call. The
    decoder writes the keys and values of a pass's rows there, reads those of the tokens before them, and changes no
    other page. Calls come one at a time. Where numerics are exact, the logits of a row are a function of its session's
    tokens up to it, bit for bit: neither the other rows of a pass nor how the tokens were cut into passes enters them.
    """

    num_pages: int
    device: Device  # of the arrays that it takes and gives
    dtype: Dtype  # of weights, keys and values
    head_ids: Array | None  # ids of the logits' columns: int64, ascending; None where it has logits of all ids
    draws: bool  # whether it implements `draw`; else its caller runs a pass for each token
    loops: bool  # whether `draw` always draws all steps

    def __call__(self, tokens: Sequence[int], spans: Sequence[Span], logit_rows: Sequence[int]) -> Array:
        """Run a pass over the rows of `spans`, in their order; returns the fp32 logits [logit rows, ids]."""

    def draw(
        self,
        tokens: Sequence[int],
        spans: Sequence[Span],
        steps: int,
        num_ids: int,
        noise: Array | None,
        ending: StopRule,
    ) -> list[list[DraftToken]]:
        """Draw as `Model.draw` does, a line per span; the pages have room for all steps.

        A decoder that does not draw inherits this.
        """
        raise TypeError(f"{type(self).__name__} does not draw: its caller runs a pass for each token")

    def copy_pages(self, copies: Sequence[PageCopy]) -> None:
        """Copy the keys and values of whole pages in all layers, before a session writes into its copy."""


class DecoderOptions(NamedTuple):
    """What a decoder is loaded for. Without `exact` a row's bits may depend on other rows."""

    num_pages: int
    dtype: Dtype
    device: torch.device
    exact: bool


class DecoderKind(NamedTuple):
    """One entry of the registry; `features` are those of `ModelConfig.features` that it computes."""

    features: frozenset[str]
    load: Callable[[OpenedModel, DecoderOptions], Decoder]


def _compiled(opened: OpenedModel, options: DecoderOptions) -> Decoder:
    import torch

    from core.model.cpu.decoder import CompiledDecoder  # which may run a compiler
    from core.model.tensor_views import TensorDecoder

    if not on_cpu(options.device):
        raise ConfigError(f"the compiled decoder runs on CPUs, not on {options.device}; write decoder: torch")
    threads = torch.get_num_threads()
    return TensorDecoder(CompiledDecoder(opened.config, opened.tensors, options.num_pages, options.dtype, threads))


def _torch(opened: OpenedModel, options: DecoderOptions) -> Decoder:
    from core.model.torch.decoder import TorchDecoder

    return TorchDecoder.load(opened.config, opened.tensors, options)


_LAYERS = frozenset(
    {"the activation gelu_tanh", "sliding windows", "rotary embeddings by layer", "norms behind attention and MLP"}
)
VLLM = "vllm"
AUTO = "auto"  # whichever computes fastest here and has what the model needs
DECODERS: dict[str, DecoderKind] = {
    "compiled": DecoderKind(_LAYERS, _compiled),
    "torch": DecoderKind(_LAYERS | {"logit softcapping"}, _torch),
}


def check_name(name: str) -> None:
    """Raises `ConfigError` if no decoder has this name."""
    names = AUTO, *DECODERS, VLLM
    if name not in names:
        raise ConfigError(f"decoder: there is none called {name!r}; write one of {', '.join(names)}")


def decoder_kind(name: str, config: ModelConfig, device: torch.device) -> DecoderKind:
    """The decoder of this name. With `auto`, on a CPU that lacks something, it is one that has it."""
    check_name(name)
    if name == AUTO:
        name = "compiled" if on_cpu(device) and not _missing("compiled", config) else "torch"
    check_features(name, config)
    return DECODERS[name]


def check_features(name: str, config: ModelConfig) -> None:
    """Raises `ConfigError` if this decoder lacks what the model needs, with one to choose instead.

    If no decoder has it, it raises `UnsupportedArchitecture`.
    """
    missing = _missing(name, config)
    if not missing:
        return
    lacks = f"the {name} decoder has no {' and no '.join(missing)}"
    if other := next((other for other in DECODERS if not _missing(other, config)), None):
        raise ConfigError(f"{lacks}; write decoder: {other}")
    raise UnsupportedArchitecture(f"{lacks}, nor has another decoder")


def _missing(name: str, config: ModelConfig) -> list[str]:
    return sorted(config.features - DECODERS[name].features)
