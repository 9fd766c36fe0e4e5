"""Tokenizers of converted files against a slow one in plain Python; which ids end an answer; chat templates."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedModel

from core.gguf.conversion import converted
from core.text.tokenizer import Tokenizer, load_tokenizer
from core.text.vocabulary import same_id_map
from tests.core.gguf.slow_bpe import PATTERNS, SlowBpe, texts
from tests.core.gguf.small_files import SPECIALS, small_model, vocabulary, write

ADDED = [*SPECIALS, "<think>"]


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return small_model(num_hidden_layers=1)


def tokenizer_of(path: Path, model: PreTrainedModel, **metadata: Any) -> Tokenizer:
    write(path, model, **metadata)
    return load_tokenizer(converted(path))


@pytest.mark.parametrize("pre", PATTERNS)
def test_every_pre_tokenizer(pre: str, tmp_path: Path, model: PreTrainedModel) -> None:
    tokenizer = tokenizer_of(
        tmp_path / "model.gguf", model, tokenizer__ggml__pre=pre, tokenizer__ggml__add_bos_token=False
    )
    tokens, _, merges = vocabulary()
    slow = SlowBpe(tokens, merges, ADDED, pre, whole_pieces=pre == "llama-bpe")
    for text in texts(300):
        seen = unicodedata.normalize("NFC", text) if pre == "qwen2" else text
        expected = slow.encode(seen)
        assert tokenizer.encode_text(text) == expected, text
        assert b"".join(map(tokenizer.token_bytes, expected)).decode() == seen


def test_digits_stand_alone_and_apart_from_a_space_before_them(tmp_path: Path, model: PreTrainedModel) -> None:
    """Both 1 with 2 and a space with 1 have merges here, which another way of cutting would reach."""
    tokenizer = tokenizer_of(tmp_path / "model.gguf", model)
    assert [tokenizer.token_text(number) for number in tokenizer.encode_text("a 123")] == ["a", " ", "1", "2", "3"]
    other = tokenizer_of(tmp_path / "other.gguf", model, tokenizer__ggml__pre="gpt-2")
    assert [other.token_text(number) for number in other.encode_text("a 123 12")] == ["a", " ", "123", " ", "12"]


@pytest.mark.parametrize(
    ("pre", "said", "begins"),
    [("smollm", None, False), ("smollm", True, True), ("llama-bpe", None, True), ("llama-bpe", False, False)],
)
def test_a_prompt_begins_with_bos_as_the_file_says(
    pre: str, said: bool | None, begins: bool, tmp_path: Path, model: PreTrainedModel
) -> None:
    metadata = {"tokenizer__ggml__pre": pre, "tokenizer__ggml__add_bos_token": said}
    tokenizer = tokenizer_of(tmp_path / "model.gguf", model, **metadata)
    plain = tokenizer.encode_answer("the")
    assert tokenizer.encode_text("the") == [1] * begins + plain


def test_unused_tokens_at_the_end_are_no_tokens(tmp_path: Path, model: PreTrainedModel) -> None:
    tokenizer = tokenizer_of(tmp_path / "model.gguf", model)
    assert tokenizer.num_valid == 300 - vocabulary()[1].count(5)
    assert tokenizer.token_bytes(299) == b""


def test_an_answer_ends_at_eos_and_at_tokens_with_such_names(tmp_path: Path, model: PreTrainedModel) -> None:
    roles = {"tokenizer__ggml__eos_token_id": 5, "tokenizer__ggml__eot_token_id": 7}
    assert tokenizer_of(tmp_path / "model.gguf", model, **roles).eos_ids == [5, 7, 2, 0]


def test_control_tokens_are_special_and_user_defined_ones_are_not(tmp_path: Path, model: PreTrainedModel) -> None:
    tokenizer = tokenizer_of(tmp_path / "model.gguf", model)
    ids = tokenizer.encode_text("<|im_start|>the<think>")
    assert [tokenizer.token_text(number) for number in ids] == ["<|im_start|>", "t", "he", "<think>"]
    assert tokenizer.raw.decode(ids) == "the<think>"


def test_the_chat_template(tmp_path: Path, model: PreTrainedModel) -> None:
    template = "{{ bos_token }}{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}{{ eos_token }}{% endfor %}"
    tokenizer = tokenizer_of(tmp_path / "model.gguf", model, tokenizer__chat_template=template)
    expected = tokenizer.encode_text("<|im_start|>user: the 1<|im_end|>")
    assert tokenizer.encode_chat([{"role": "user", "content": "the 1"}]) == expected


def test_two_files_with_one_vocabulary_fit_each_other(tmp_path: Path, model: PreTrainedModel) -> None:
    write(tmp_path / "target.gguf", model)
    write(tmp_path / "draft.gguf", small_model(num_hidden_layers=1, tie_word_embeddings=True))
    target, draft = converted(tmp_path / "target.gguf"), converted(tmp_path / "draft.gguf")
    assert target != draft
    assert same_id_map(target, draft) == len(json.loads((target / "tokenizer.json").read_text())["model"]["vocab"])
