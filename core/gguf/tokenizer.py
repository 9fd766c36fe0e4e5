"""The tokenizer of a GGUF file as Hugging Face files, with its chat template and the ids that end an answer.

A file names its pre-tokenizer, which cuts a text into pieces before pairs are merged, and does not describe it. So only
the known ones can be built. They are those of the models' own tokenizer.json, and cut as llama.cpp does.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import TemplateError
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from core.errors import ConfigError
from core.gguf.reading import GgufFile

_KEY = "tokenizer.ggml."
_UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 2, 3, 4, 5  # types of tokens
# The tokens that end an answer whatever the metadata says; llama.cpp has the same list and more.
_ENDS = ("<|im_end|>", "<|eot_id|>", "<|endoftext|>", "<|end|>", "<|eom_id|>", "<|end_of_text|>", "<end_of_turn>")

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_DEFAULT = (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")
_AFTER_WORDS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_LLAMA3 = _WORDS + r"\p{N}{1,3}" + _AFTER_WORDS
_QWEN2 = _WORDS + r"\p{N}" + _AFTER_WORDS
_TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class _PreTokenizer(NamedTuple):
    """How a text is cut, and what goes with it.

    With `whole_pieces` a piece that is a token is not built from merges. `bos` says whether a prompt begins with the
    BOS token if the file does not say.
    """

    cut: Callable[[], pre_tokenizers.PreTokenizer]
    nfc: bool = False
    whole_pieces: bool = False
    bos: bool = False


def _by_regex(*patterns: str) -> pre_tokenizers.PreTokenizer:
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _single_digits() -> pre_tokenizers.PreTokenizer:
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), words])


_SMOLLM = _PreTokenizer(_single_digits)
_LLAMA_BPE = _PreTokenizer(lambda: _by_regex(_LLAMA3), whole_pieces=True, bos=True)
_PRE_TOKENIZERS = {
    "default": _PreTokenizer(lambda: _by_regex(*_DEFAULT)),
    "gpt-2": _PreTokenizer(lambda: _by_regex(_GPT2)),
    "llama-bpe": _LLAMA_BPE,
    "llama3": _LLAMA_BPE,
    "llama-v3": _LLAMA_BPE,
    "qwen2": _PreTokenizer(lambda: _by_regex(_QWEN2), nfc=True),
    "refact": _SMOLLM,
    "smollm": _SMOLLM,
    "starcoder": _SMOLLM,
    "tekken": _PreTokenizer(lambda: _by_regex(_TEKKEN), whole_pieces=True, bos=True),
}


class _Vocabulary:
    """The tokens of a file, without the unused ones that pad it at the end."""

    def __init__(self, file: GgufFile, num_rows: int) -> None:
        self._file = file
        tokens = file.require_list(_KEY + "tokens", str)
        types = file.get_list(_KEY + "token_type", int) or [1] * len(tokens)
        if len(types) != len(tokens):
            raise ConfigError(f"{file.path}: {len(tokens)} tokens with {len(types)} types; download the file again")
        used = max((number + 1 for number, kind in enumerate(types) if kind != _UNUSED), default=0)
        self.tokens, self._types = tokens[:used], types[:used]
        self.ids = {token: number for number, token in enumerate(self.tokens)}
        if len(self.ids) != used:
            raise ConfigError(f"{file.path}: two of its tokens are the same; use another file")
        if used > num_rows:
            raise ConfigError(f"{file.path}: {used} tokens, and embeddings of {num_rows}; download the file again")

    def special(self, role: str) -> int | None:
        """The id of the token with a role, such as `bos`, or None.

        Raises `ConfigError` if there is no such token, but for those that nothing needs: many files have them wrong.
        """
        number = self._file.get(key := f"{_KEY}{role}_token_id", int)
        if number is None or 0 <= number < len(self.tokens):
            return number
        if role in _UNNEEDED:
            return None
        raise self._file.wrong(key, f"must be an id of its {len(self.tokens)} tokens")

    def ends(self) -> list[int]:
        """The ids that end an answer, the file's own EOS first."""
        named = [self.special(role) for role in ("eos", "eot", "eom")]
        ends = [number for number in [*named, *map(self.ids.get, _ENDS)] if number is not None]
        if not ends:
            raise ConfigError(f"{self._file.path}: no token ends an answer; use a file with {_KEY}eos_token_id")
        return list(dict.fromkeys(ends))

    def added(self) -> list[AddedToken]:
        """The tokens that are found in a text before it is cut; control tokens are special."""
        always = {*self.ends(), self.special("bos")}
        return [
            AddedToken(token, special=kind != _USER_DEFINED or number in always, normalized=False)
            for number, (token, kind) in enumerate(zip(self.tokens, self._types, strict=True))
            if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED) or number in always
        ]


def write_tokenizer(file: GgufFile, directory: Path, config: dict[str, Any]) -> dict[str, Any]:
    """Write the tokenizer's files and the generation config; returns the ids that belong in config.json too.

    `config` is that of the model. Raises `ConfigError` if the tokenizer cannot be built exactly.
    """
    vocabulary = _Vocabulary(file, config["vocab_size"])
    _tokenizer(file, vocabulary).save(str(directory / "tokenizer.json"))
    roles = {role: vocabulary.special(key) for role, key in _ROLES.items()} | {"eos": vocabulary.ends()[0]}
    named = {f"{role}_token": vocabulary.tokens[number] for role, number in roles.items() if number is not None}
    about = {
        "backend": "tokenizers",
        "clean_up_tokenization_spaces": False,
        "model_max_length": config["max_position_embeddings"],
        "tokenizer_class": "TokenizersBackend",
    }
    write_json(directory / "tokenizer_config.json", about | named)
    if template := _template(file):
        (directory / "chat_template.jinja").write_text(template, encoding="utf-8")
    ids = {"bos_token_id": roles["bos"], "eos_token_id": vocabulary.ends(), "pad_token_id": roles["pad"]}
    write_json(directory / "generation_config.json", ids)
    return ids


_ROLES = {"bos": "bos", "unk": "unknown", "pad": "padding"}  # transformers' name: GGUF's
_UNNEEDED = ("unknown", "padding")


def _template(file: GgufFile) -> str | None:
    """The chat template, which must compile as it does where it is rendered."""
    if not (template := file.get("tokenizer.chat_template", str)):
        return None
    from transformers.utils.chat_template_utils import _compile_jinja_template

    try:
        _compile_jinja_template(template)
    except (TemplateError, SyntaxError, ValueError, RecursionError) as error:  # it becomes Python, which has limits
        wrong = f"tokenizer.chat_template does not compile as a jinja template ({error})"
        raise ConfigError(f"{file.path}: {wrong}; use another file") from error
    return template


def write_json(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n")


def _tokenizer(file: GgufFile, vocabulary: _Vocabulary) -> Tokenizer:
    pre, written = _pre_tokenizer(file), file.require_list(_KEY + "merges", str)
    merges = [(first, second) for first, _, second in (merge.partition(" ") for merge in written)]
    try:
        tokenizer = Tokenizer(models.BPE(vocabulary.ids, merges, ignore_merges=pre.whole_pieces))
    except Exception as error:  # the library raises nothing narrower
        raise ConfigError(f"{file.path}: its merges do not fit its tokens ({error}); use another file") from error
    if pre.nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre.cut()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens(vocabulary.added())
    tokenizer.post_processor = _beginning(file, vocabulary, default=pre.bos)
    return tokenizer


def _pre_tokenizer(file: GgufFile) -> _PreTokenizer:
    model, pre = file.require(_KEY + "model", str), file.get(_KEY + "pre", str)
    if model != "gpt2":
        raise ConfigError(f"{file.path}: a tokenizer of the kind {model!r} is not supported; known: gpt2")
    if pre is None or pre not in _PRE_TOKENIZERS:
        names = ", ".join(_PRE_TOKENIZERS)
        raise ConfigError(f"{file.path}: the pre-tokenizer {pre!r} is not supported; known: {names}")
    return _PRE_TOKENIZERS[pre]


def _beginning(file: GgufFile, vocabulary: _Vocabulary, *, default: bool) -> processors.PostProcessor:
    """What a prompt begins with. `add_eos_token` is not heeded, because a prompt is there to be continued."""
    in_file, bos = file.get(_KEY + "add_bos_token", bool), vocabulary.special("bos")
    if bos is None or not (default if in_file is None else in_file):
        return processors.ByteLevel(trim_offsets=False)
    token = vocabulary.tokens[bos]
    return processors.TemplateProcessing(
        single=f"{token} $A", pair=f"{token} $A {token} $B", special_tokens=[(token, bos)]
    )
