"""Files that cannot be converted: the error says what is wrong and what to do, and the cache stays empty."""

from __future__ import annotations

import contextlib
import math
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFWriter
from transformers import PreTrainedModel

from core.errors import ConfigError, TaskSpecError, UnsupportedArchitecture
from core.gguf.conversion import converted
from tests.core.gguf.small_files import small_model, vocabulary, write


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return small_model(num_hidden_layers=1, tie_word_embeddings=True)


@pytest.fixture
def file(tmp_path: Path, model: PreTrainedModel) -> Path:
    write(tmp_path / "model.gguf", model)
    return tmp_path / "model.gguf"


def check_refused(file: Path, cache: Path, message: str, error: type[TaskSpecError] = ConfigError) -> None:
    with pytest.raises(error, match=message):
        converted(file)
    left = [path.name for path in cache.iterdir()] if cache.exists() else []
    assert all(name.endswith(".lock") for name in left)


@pytest.mark.parametrize("kept", [0, 3, 7, 20, 100, 2000, 0.5, 0.9, -1])
def test_a_truncated_file(kept: float, file: Path, cache: Path) -> None:
    content = file.read_bytes()
    end = int(kept * len(content)) if isinstance(kept, float) else kept
    file.write_bytes(content[:end])
    check_refused(file, cache, "not a GGUF file|version|download the file again")


def test_a_file_of_another_kind(file: Path, cache: Path) -> None:
    file.write_bytes(b"PK\3\4" + file.read_bytes()[4:])
    check_refused(file, cache, "not a GGUF file; it begins with b'PK")


@pytest.mark.parametrize("version", [b"\1\0\0\0", b"\4\0\0\0", b"\0\0\0\3"])
def test_another_version(version: bytes, file: Path, cache: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[:4] + version + content[8:])
    check_refused(file, cache, r"version \d+ is not supported; known: \(2, 3\), little-endian")


def test_a_file_that_is_missing(tmp_path: Path, cache: Path) -> None:
    check_refused(tmp_path / "none.gguf", cache, "none.gguf: cannot be read")


def test_damaged_metadata_raises_nothing_else(file: Path, cache: Path) -> None:
    """Any byte of the metadata may be any other: the file is converted or refused."""
    generator, content = random.Random(0), file.read_bytes()
    end = content.index(b"blk.0.attn_norm") + 2000
    for _ in range(60):
        damaged = bytearray(content)
        damaged[generator.randrange(4, end)] ^= 1 << generator.randrange(8)
        file.write_bytes(damaged)
        with contextlib.suppress(TaskSpecError):
            converted(file, lambda _: None)
    assert all(path.suffix == ".lock" for path in cache.glob(".aside-*"))


def test_a_list_of_impossible_length(file: Path, cache: Path) -> None:
    content = bytearray(file.read_bytes())
    key = b"tokenizer.ggml.token_type"
    place = content.index(key) + len(key) + 8  # the types of the value and of its elements
    assert content[place : place + 8] == (300).to_bytes(8, "little")
    content[place + 5] = 1
    file.write_bytes(content)
    check_refused(file, cache, "a list of 1099511628076 values.*download the file again")


METADATA: dict[str, tuple[dict[str, Any], str]] = {
    "pre-tokenizer": (
        {"tokenizer__ggml__pre": "novel"},
        "the pre-tokenizer 'novel' is not supported; known: default, gpt-2, llama-bpe, .*smollm",
    ),
    "no pre-tokenizer": ({"tokenizer__ggml__pre": None}, "the pre-tokenizer None is not supported"),
    "tokenizer": ({"tokenizer__ggml__model": "llama"}, "a tokenizer of the kind 'llama' is not supported; known: gpt2"),
    "no tokens": ({"tokenizer__ggml__tokens": None}, "no tokenizer.ggml.tokens in its metadata"),
    "types": ({"tokenizer__ggml__token_type": [1, 1]}, "300 tokens with 2 types"),
    "merges": ({"tokenizer__ggml__merges": ["x yz"]}, "its merges do not fit its tokens"),
    "equal tokens": ({"tokenizer__ggml__tokens": ["a"] * 300}, "two of its tokens are the same"),
    "no eps": ({"attention__layer_norm_rms_epsilon": None}, "no llama.attention.layer_norm_rms_epsilon"),
    "no layers": ({"block_count": None}, "no llama.block_count in its metadata"),
    "heads by layer": ({"attention__head_count": [4, 4]}, r"head_count is \[4, 4\], and must be one whole number"),
    "heads beside the width": ({"attention__head_count": 6, "attention__key_length": None}, "6, and must divide 256"),
    "heads beside the keys": ({"attention__head_count_kv": 3}, "head_count is 4, and must be a multiple of 3, that of"),
    "more heads than width": (
        {"attention__head_count": 512, "attention__key_length": None},
        "512, and must divide 256",
    ),
    "odd heads": ({"attention__key_length": 63}, "a head is 63 wide, which must be even to be rotated"),
    "no heads": ({"attention__head_count": 0}, "llama.attention.head_count is 0, and must be from 1 to"),
    "layers without end": ({"block_count": 2**32 - 1}, "block_count is 4294967295, and must be from 1 to 11"),
    "context without end": (
        {"context_length": 2**32 - 1},
        "context_length is 4294967295, and must be from 1 to 16777216",
    ),
    "eps of nan": (
        {"attention__layer_norm_rms_epsilon": math.nan},
        "rms_epsilon is nan, and must be more than 0 and fin",
    ),
    "eps below 0": (
        {"attention__layer_norm_rms_epsilon": -1e-5},
        "rms_epsilon is -.*, and must be more than 0 and fin",
    ),
    "eps of 0": ({"attention__layer_norm_rms_epsilon": 0.0}, "rms_epsilon is 0.0, and must be more than 0 and fin"),
    "base of nan": ({"rope__freq_base": math.nan}, "llama.rope.freq_base is nan, and must be more than 0 and finite"),
    "base below 0": ({"rope__freq_base": -1.0}, "llama.rope.freq_base is -1.0, and must be more than 0 and finite"),
    "base without end": (
        {"rope__freq_base": math.inf},
        "llama.rope.freq_base is inf, and must be more than 0 and finite",
    ),
    "factor": (
        {"rope__scaling__type": "linear", "rope__scaling__factor": 0.0},
        "rope.scaling.factor is 0.0, and must be",
    ),
    "no factor": ({"rope__scaling__type": "linear"}, "no llama.rope.scaling.factor in its metadata"),
    "eos": ({"tokenizer__ggml__eos_token_id": 300}, "eos_token_id is 300, and must be an id of its 274 tokens"),
    "eos in the padding": ({"tokenizer__ggml__eos_token_id": 299}, "eos_token_id is 299, and must be an id of its 274"),
    "eot": ({"tokenizer__ggml__eot_token_id": 2**32 - 1}, "eot_token_id is 4294967295, and must be an id of its 274"),
    "bos": ({"tokenizer__ggml__bos_token_id": 300}, "bos_token_id is 300, and must be an id of its 274 tokens"),
    "more tokens": (
        {"tokenizer__ggml__tokens": [f"t{n}" for n in range(400)], "tokenizer__ggml__token_type": [1] * 400},
        "400 tokens, and embeddings of 300",
    ),
    "template of a number": ({"tokenizer__chat_template": 5}, "tokenizer.chat_template is 5, and must be a text"),
    "template": (
        {"tokenizer__chat_template": "{% if %}"},
        "template does not compile as a jinja template .Expected an",
    ),
    "filter": (
        {"tokenizer__chat_template": "{{ a | b }}"},
        "does not compile as a jinja template .No filter named 'b'",
    ),
    "template too deep": ({"tokenizer__chat_template": "{% if a %}" * 5000}, "does not compile as a jinja template"),
    "loops too deep": (
        {"tokenizer__chat_template": "{% for a in b %}" * 25 + "{% endfor %}" * 25},
        "does not compile as a jinja template .too many statically nested blocks",
    ),
    "number too long": ({"tokenizer__chat_template": "{{ 9**9999 }}"}, "does not compile as a jinja template .Exceeds"),
    "rotated part": ({"rope__dimension_count": 32}, "llama.rope.dimension_count must be 64"),
    "scaling": ({"rope__scaling__type": "yarn"}, "rotary scaling 'yarn' is not supported; known: none, linear"),
    "shape": ({"feed_forward_length": 512}, r"ffn_gate.weight is \[256, 256\], and by its metadata it must be \[512"),
    "fewer layers": ({"block_count": 2}, "no tensor 'blk.1.attn_k.weight'"),
    "parts": ({"split__count": 3}, "one of several parts; join them"),
}


@pytest.mark.parametrize("case", METADATA)
def test_metadata(case: str, tmp_path: Path, cache: Path, model: PreTrainedModel) -> None:
    metadata, message = METADATA[case]
    write(tmp_path / "model.gguf", model, **metadata)
    check_refused(tmp_path / "model.gguf", cache, message)


KINDS: dict[type, tuple[str, ...]] = {
    str: ("tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.chat_template", "rope.scaling.type"),
    int: (
        *("context_length", "embedding_length", "block_count", "feed_forward_length", "split.count"),
        *("attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length"),
        *("rope.dimension_count", "attention.sliding_window", "tokenizer.ggml.bos_token_id"),
        *(f"tokenizer.ggml.{role}_token_id" for role in ("eos", "eot", "eom", "unknown", "padding")),
    ),
    float: ("attention.layer_norm_rms_epsilon", "rope.freq_base", "rope.scaling.factor"),
    bool: ("tokenizer.ggml.add_bos_token",),
    list: ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges"),
}
OTHERS: dict[type, tuple[object, ...]] = {
    str: (5, True, [1]),
    int: (0.5, "x", True),
    float: (True, "x", [0.5]),
    bool: (1, "x"),
    list: (5, "x", [0.5]),
}


@pytest.mark.parametrize(("kind", "key"), [(kind, key) for kind, keys in KINDS.items() for key in keys])
def test_a_value_of_another_kind(kind: type, key: str, tmp_path: Path, cache: Path, model: PreTrainedModel) -> None:
    linear = {"rope__scaling__type": "linear"} if key == "rope.scaling.factor" else {}
    for value in OTHERS[kind]:
        write(tmp_path / "model.gguf", model, **linear | {key.replace(".", "__"): value})
        check_refused(tmp_path / "model.gguf", cache, rf"{key} is .*, and must be ")


def test_lists_within_lists(file: Path, cache: Path) -> None:
    """However deep: a reader that follows them needs as deep a stack."""
    content = file.read_bytes()
    head, rest = content[:16], content[24:]
    keys, name = int.from_bytes(content[16:24], "little"), b"deep"
    for depth in (2, 5000):
        value = struct.pack("<IQ", 9, 1) * (depth - 1) + struct.pack("<IQI", 4, 1, 7)
        deep = struct.pack("<Q", len(name)) + name + struct.pack("<I", 9) + value
        file.write_bytes(head + struct.pack("<Q", keys + 1) + deep + rest)
        check_refused(file, cache, "lists within lists in its metadata")


def test_an_id_that_nothing_needs_may_be_wrong(tmp_path: Path, cache: Path, model: PreTrainedModel) -> None:
    write(tmp_path / "model.gguf", model, tokenizer__ggml__padding_token_id=2**32 - 1)
    assert converted(tmp_path / "model.gguf").parent == cache


def test_no_token_ends_an_answer(tmp_path: Path, cache: Path, model: PreTrainedModel) -> None:
    tokens = [f"{token}x" if token.startswith("<|") else token for token in vocabulary()[0]]
    write(tmp_path / "model.gguf", model, tokenizer__ggml__tokens=tokens, tokenizer__ggml__eos_token_id=None)
    check_refused(tmp_path / "model.gguf", cache, "no token ends an answer")


def test_another_architecture(tmp_path: Path, cache: Path, model: PreTrainedModel) -> None:
    write(tmp_path / "model.gguf", model, architecture="mamba")
    check_refused(tmp_path / "model.gguf", cache, "'mamba'; known: llama, qwen2, qwen3", UnsupportedArchitecture)


Rename = Callable[[str], str | None]


def write_tensors(path: Path, model: PreTrainedModel, renamed: Rename, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a file with other names of tensors; None leaves one out."""
    add_tensor = GGUFWriter.add_tensor

    def add(writer: GGUFWriter, name: str, data: np.ndarray, raw_dtype: Kind) -> None:
        if new := renamed(name):
            add_tensor(writer, new, data, raw_dtype=raw_dtype)

    monkeypatch.setattr(GGUFWriter, "add_tensor", add)
    write(path, model)


@pytest.mark.parametrize("missing", ["token_embd.weight", "blk.0.attn_v.weight", "output_norm.weight"])
def test_a_missing_tensor(
    missing: str, tmp_path: Path, cache: Path, model: PreTrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tensors(tmp_path / "model.gguf", model, lambda name: None if name == missing else name, monkeypatch)
    check_refused(tmp_path / "model.gguf", cache, f"no tensor '{missing}'; download the file again")


def test_a_tensor_of_some_other_model(tmp_path: Path, cache: Path) -> None:
    write(tmp_path / "model.gguf", small_model("qwen2", num_hidden_layers=1), architecture="llama")
    check_refused(
        tmp_path / "model.gguf", cache, "a variant of llama that is not supported, with a tensor 'blk.0.attn_k.b"
    )


def test_a_type_of_numbers_that_nothing_can_read(tmp_path: Path, cache: Path, model: PreTrainedModel) -> None:
    write(tmp_path / "model.gguf", model, Kind.F32)
    content = (tmp_path / "model.gguf").read_bytes()
    place = content.index(b"blk.0.ffn_up.weight") + len(b"blk.0.ffn_up.weight") + 4 + 2 * 8
    assert content[place : place + 4] == int(Kind.F32).to_bytes(4, "little")
    for number, message in ((Kind.I32, "blk.0.ffn_up.weight is of the type I32"), (99, r"99\)? is not a valid GGML")):
        changed = content[:place] + int(number).to_bytes(4, "little") + content[place + 4 :]
        (tmp_path / "model.gguf").write_bytes(changed)
        check_refused(tmp_path / "model.gguf", cache, message)


def test_a_cache_that_cannot_be_written(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "occupied").write_text("")
    monkeypatch.setenv("TASKSPEC_CACHE", str(tmp_path / "occupied"))
    with pytest.raises(ConfigError, match="set TASKSPEC_CACHE to a directory"):
        converted(file)
