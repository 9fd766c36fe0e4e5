"""The check that draft and target give every token the same id.

It compares the tokenizers' maps, because the models' vocabulary sizes are padded.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
from huggingface_hub import hf_hub_download
from tokenizers import Tokenizer

from core.errors import ConfigError


def same_id_map(target: str | Path, draft: str | Path) -> int:
    """The number of ids that both tokenizers share. `ConfigError` names the first token that differs."""
    theirs, ours = _id_map(target), _id_map(draft)
    if theirs != ours:
        token, number = min(theirs.items() ^ ours.items(), key=lambda pair: (pair[1], pair[0]))
        raise ConfigError(
            f"draft {draft} and target {target} number their tokens differently, first at {token!r} ({number}); "
            "use a draft with the target's tokenizer"
        )
    return max(theirs.values()) + 1


def digest(model: str | Path) -> str:
    """SHA-256 of the map from tokens to ids, in hex; equal if and only if the maps are equal."""
    return hashlib.sha256(msgspec.json.encode(_id_map(model), order="sorted")).hexdigest()


def _id_map(model: str | Path) -> dict[str, int]:
    file = Path(model) / "tokenizer.json"
    if not Path(model).is_dir():
        file = Path(hf_hub_download(str(model), "tokenizer.json"))
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # tokenizers raises no narrower one
        raise ConfigError(f"{file} is no tokenizer that can be read: {error}") from error
    return tokenizer.get_vocab(with_added_tokens=True)
