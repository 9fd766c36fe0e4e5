"""Speed: the tokens a second that a draft brings, in times plain decoding, for one answer at a time.

A replay counts exactly how many passes an answer takes and how many tokens are drafted for it, whatever number of
tokens is drafted for a pass. With the costs of both this is a time, and over any answers

    speedup = tokens x seconds of a plain pass / the least time of all numbers of tokens drafted

The number is one for all these answers, the one that suits them best, as a service finds it by itself. At least one
token is drafted for every pass, so that drafts which slow the target down can be compared, too.

Left out is the trip to the draft, which costs every pass that is drafted for about as much, half a millisecond on one
machine; so a speedup is more than a service with a quick target sees. Of a token there is one cost, that of a sampled
one, which is a little dearer than a greedy one.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Self

from core.bundle.manifest import MeasuredCosts
from core.generation import MAX_SPECULATIVE_TOKENS
from core.model.config import ModelConfig
from core.model.draft_vocabulary import DraftVocabulary
from core.model.model_files import DraftFiles

MOST_ROWS = MAX_SPECULATIVE_TOKENS + 1  # of a pass, the most


class DraftCosts(NamedTuple):
    """Of a drafted token, and of target passes over 2, 3, ... rows, in plain passes, which are over one row."""

    token: float
    passes: tuple[float, ...]

    @classmethod
    def of(cls, costs: MeasuredCosts, shape: str) -> Self:
        """Those of a draft of this shape, which must have been measured."""
        plain, *larger = costs.passes
        return cls(costs.tokens[shape] / plain, tuple(seconds / plain for seconds in larger))

    def time(self, length: int, passes: int, drafted: int) -> float:
        """Of so many passes with `length` tokens drafted for each, fewer at the end of an answer; `drafted` in all."""
        return passes * self.passes[length - 1] + drafted * self.token


def draft_shape(directory: Path | None, draft: str | Path, vocabulary: DraftVocabulary | None = None) -> str:
    """What the cost of a token depends on, in words; the arguments are those of `load_draft_model`.

    Drafts of one shape cost the same. They must not differ by the noise of two measurements.
    """
    files = DraftFiles.of(directory, draft)
    config, own = ModelConfig.load(files.path), vocabulary or files.vocabulary
    ids = config.vocab_size if own is None else len(own.ids)
    heads = f"{config.num_heads} and {config.num_kv_heads} heads of {config.head_dim}"
    return f"{config.num_layers} layers of {config.hidden_size}, {heads}, MLP of {config.intermediate_size}, {ids} ids"
