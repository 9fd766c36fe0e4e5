"""The two models of a retraining, as its configuration names them: directories, contexts, tokenizer, identity."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from core.bundle.store import Bundle, open_live
from core.model.config import ModelConfig
from core.model.loader import public_name, resolve
from core.model_names import locate
from core.replay.replay import NUM_SPECULATIVE_TOKENS, Terms
from core.text.tokenizer import Tokenizer, load_tokenizer
from core.text.vocabulary import digest, same_id_map
from train_jobs.config import RetrainConfig


class ModelPair(NamedTuple):
    """A bundle's `target`, `draft` and `id_map`: public names, and the digest of the shared token ids."""

    target: str
    draft: str
    id_map: str


def model_directory(name: str) -> Path:
    """The directory of a model given by directory, hub id or `family:` name; a hub model is downloaded once."""
    return resolve(locate(name))


def context(name: str) -> int:
    """The longest sequence a model takes, in tokens."""
    return ModelConfig.load(model_directory(name)).context


def target_tokenizer(config: RetrainConfig) -> Tokenizer:
    return load_tokenizer(locate(config.target.model))


def model_pair(config: RetrainConfig) -> ModelPair:
    return ModelPair(public_name(config.target.model), public_name(config.draft), digest(locate(config.target.model)))


def live_bundle(config: RetrainConfig) -> Bundle | None:
    """The bundle that is live, if it is for these two models."""
    bundle = open_live(config.bundles).bundle
    if bundle is None:
        return None
    manifest = bundle.manifest
    return bundle if (manifest.target, manifest.draft, manifest.id_map) == model_pair(config) else None


def replay_terms(config: RetrainConfig) -> Terms:
    """The limits under which drafts are compared."""
    num_valid = same_id_map(locate(config.target.model), locate(config.draft))
    return Terms(NUM_SPECULATIVE_TOKENS, num_valid, config.target.context)
