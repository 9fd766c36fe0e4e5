"""Draft and target must number their tokens alike."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.errors import ConfigError
from core.family import DRAFT_DIR, TARGET_DIR
from core.text.vocabulary import same_id_map


def test_the_family_agrees() -> None:
    assert same_id_map(TARGET_DIR, DRAFT_DIR) == 2048


def test_one_renumbered_token_is_named(tmp_path: Path) -> None:
    content = json.loads((DRAFT_DIR / "tokenizer.json").read_text())
    vocab = content["model"]["vocab"]
    by_id = {number: token for token, number in vocab.items()}
    vocab[by_id[700]], vocab[by_id[701]] = 701, 700
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="700"):
        same_id_map(TARGET_DIR, tmp_path)
