"""The files that a model is loaded from, opened: its geometry and its tensors by role, before any decoder has them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from core.errors import ConfigError
from core.model.bfloat16 import Dtype
from core.model.config import ModelConfig
from core.model.draft_vocabulary import DraftVocabulary
from core.model.loader import Weights, adapted_model, is_adapter, resolve
from core.model.pages import pages_for
from core.model.tensors import Tensors


class DraftFiles(NamedTuple):
    """What a draft is loaded from: a model's directory, the adapter that is merged into it, and its own vocabulary."""

    path: Path
    adapter: Path | None
    vocabulary: DraftVocabulary | None

    @classmethod
    def of(cls, directory: str | Path | None, draft: str | Path) -> DraftFiles:
        """Of a directory: an adapter with the model that it is for, a whole model, or None for `draft`."""
        path = resolve(adapted_model(directory, str(draft)))
        adapter = Path(directory) if directory is not None and is_adapter(directory) else None
        return cls(path, adapter, DraftVocabulary.find(adapter or path))

    def pages(self, sessions: int) -> int:
        """Pages for a whole context of each session."""
        return sessions * pages_for(ModelConfig.load(self.path).context)


class OpenedModel(NamedTuple):
    """What a decoder is made of. One that reads weights by itself has the `directory`."""

    directory: Path
    config: ModelConfig
    weights: Weights
    tensors: Tensors


def open_model(
    path: str | Path,
    dtype: Dtype,
    adapter: str | Path | None,
    vocabulary: DraftVocabulary | None,
    target: str | Path | None,
    num_layers: int | None = None,
) -> OpenedModel:
    """Open a directory or hub id; the arguments are those of `core.model.causal_lm.load_model`."""
    directory = resolve(path)
    config = ModelConfig.load(directory)
    if num_layers is not None:
        config = replace(config, layers=config.layers[:num_layers])
    stored = DraftVocabulary.of_stored_head(directory)
    stored_ids, head_ids = (_head_ids(ids, config) for ids in (stored, vocabulary or stored))
    weights = Weights(directory, resolve(adapter) if adapter else None, dtype, target)
    return OpenedModel(directory, config, weights, Tensors(config, weights, head_ids, stored_ids))


def _head_ids(vocabulary: DraftVocabulary | None, config: ModelConfig) -> NDArray[np.int64] | None:
    if vocabulary is None:
        return None
    if vocabulary.target_size != config.vocab_size:
        raise ConfigError(
            f"a draft vocabulary of {vocabulary.target_size} ids is not of this model, whose vocab_size is"
            f" {config.vocab_size}"
        )
    return vocabulary.ids
