"""The target's tokenizer: the ids transformers gives, the bytes behind each id, the ends of an answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as RawTokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from core.errors import ConfigError, InvalidRequest
from core.family import TARGET_DIR
from core.text.tokenizer import Tokenizer, load_tokenizer
from tests.core.toy_tokenizer import EOS, byte_fallback, byte_level

TEXTS = ["", "12 + 7 = ", "  def f(x):\n\treturn x", "化学反应 H2O", "naïve 🙂</s>"]
ROLES = ("system", "user", "assistant")


@pytest.fixture(scope="module")
def target() -> Tokenizer:
    return load_tokenizer(TARGET_DIR)


def wrapped(raw: object) -> Tokenizer:
    return Tokenizer(PreTrainedTokenizerFast(tokenizer_object=raw, eos_token=EOS), [0])


BYTE_LEVEL = wrapped(byte_level())


@pytest.mark.parametrize("text", TEXTS)
def test_text_is_tokenised_as_transformers_does(target: Tokenizer, text: str) -> None:
    assert target.encode_text(text) == AutoTokenizer.from_pretrained(TARGET_DIR)(text).input_ids


def test_chat_is_tokenised_as_transformers_does_with_one_bos(target: Tokenizer) -> None:
    hf = AutoTokenizer.from_pretrained(TARGET_DIR)
    messages = [{"role": role, "content": text} for role, text in zip(ROLES, TEXTS[1:4], strict=True)]
    tokens = target.encode_chat(messages)
    assert tokens == hf.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert tokens.count(hf.bos_token_id) == 1


def test_the_prompts_text_is_what_the_user_wrote(target: Tokenizer) -> None:
    for text in ("12 + 7 =", "def f(x):\n\treturn x", "化学反应 H2O", "naïve 🙂"):
        assert target.prompt_text(target.encode_chat([{"role": "user", "content": text}])) == text
        assert target.prompt_text(target.encode_text(text)) == text
    turns = [{"role": role, "content": text} for role, text in zip(ROLES, ("Be brief.", "Hi!", "Ho!"), strict=True)]
    assert target.prompt_text(target.encode_chat(turns)) == "Be brief.\nHi!\nHo!"


def test_the_templates_own_words_are_no_part_of_the_prompts_text() -> None:
    hf = PreTrainedTokenizerFast(tokenizer_object=byte_level(), eos_token=EOS)
    hf.chat_template = "{% for m in messages %}[INST] {{ m['content'] }} [/INST]{% endfor %}"
    tokenizer = Tokenizer(hf, [0])
    assert (
        tokenizer.prompt_text(tokenizer.encode_chat([{"role": "user", "content": "What is [INST]?"}]))
        == "What is [INST]?"
    )


def test_ends_and_sizes_are_the_models_own(target: Tokenizer) -> None:
    named = json.loads((TARGET_DIR / "generation_config.json").read_text())["eos_token_id"]
    assert target.eos_ids == (named if isinstance(named, list) else [named])
    assert target.num_valid == len(AutoTokenizer.from_pretrained(TARGET_DIR))
    assert target.longest == max(len(target.token_bytes(token)) for token in range(target.num_valid))


@given(st.text())
def test_the_bytes_of_byte_level_tokens_join_to_the_text(text: str) -> None:
    assert b"".join(map(BYTE_LEVEL.token_bytes, BYTE_LEVEL.encode_text(text))) == text.encode()


def test_bytes_of_byte_fallback_tokens() -> None:
    tokenizer = wrapped(byte_fallback())
    vocab = byte_fallback().get_vocab()
    pieces = ["▁stop", "a", "中", "<0xE4>", EOS]
    assert [tokenizer.token_bytes(vocab[piece]) for piece in pieces] == [
        b" stop",
        b"a",
        "中".encode(),
        b"\xe4",
        EOS.encode(),
    ]


def test_ids_beyond_the_tokenizer_have_no_bytes(target: Tokenizer) -> None:
    assert target.token_bytes(target.num_valid + 7) == b""


def test_a_token_that_is_no_text_is_shown_as_its_bytes() -> None:
    tokenizer = wrapped(byte_fallback())
    assert tokenizer.token_text(0xE4) == "bytes:\\xe4"
    assert tokenizer.token_text(0x41) == "A"


def test_a_truncating_tokenizer_file_does_not_cut_prompts() -> None:
    raw = RawTokenizer.from_str(byte_level().to_str())
    raw.enable_truncation(2)
    assert len(wrapped(raw).encode_text("the end of the story")) > 2


@pytest.mark.parametrize(
    ("generation_config", "config", "expected"),
    [
        ({"eos_token_id": [5, 6]}, {"eos_token_id": 7}, [5, 6]),
        ({"eos_token_id": 5}, {"eos_token_id": 7}, [5]),
        (None, {"eos_token_id": 7}, [7]),
        (None, {}, [0]),
        (None, None, [0]),
    ],
)
def test_the_generation_config_says_how_answers_end_then_the_config_then_the_tokenizer(
    tmp_path: Path, generation_config: dict[str, object] | None, config: dict[str, object] | None, expected: list[int]
) -> None:
    PreTrainedTokenizerFast(tokenizer_object=byte_level(), eos_token=EOS).save_pretrained(tmp_path)
    for name, content in (("generation_config.json", generation_config), ("config.json", config)):
        if content is not None:
            (tmp_path / name).write_text(json.dumps({"model_type": "llama", **content}))
    assert load_tokenizer(tmp_path).eos_ids == expected


def test_a_model_without_an_end_is_refused(tmp_path: Path) -> None:
    PreTrainedTokenizerFast(tokenizer_object=byte_level()).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="eos_token_id"):
        load_tokenizer(tmp_path)


def test_a_directory_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no tokenizer"):
        load_tokenizer(tmp_path)


def test_chat_without_a_template_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="no chat template") as refusal:
        wrapped(byte_level()).encode_chat([{"role": "user", "content": "a"}])
    assert refusal.value.field == "messages"


def test_messages_that_the_template_refuses_are_the_clients_fault(target: Tokenizer) -> None:
    with pytest.raises(InvalidRequest, match="unknown role pirate") as refusal:
        target.encode_chat([{"role": "pirate", "content": "a"}])
    assert refusal.value.field == "messages"
