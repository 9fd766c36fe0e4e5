"""The target's tokenizer: text and chat messages to token ids, and the bytes of each id.

Only the target's tokenizer, chat template and end-of-sequence ids are ever used. Drafts and router receive ids.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tokenizers

from core.errors import ConfigError
from core.text.chat_template import PROBE, ChatTemplate, Rendering
from core.tools.format import ToolFormat
from core.tools.markers import MARKS, markers_of
from core.tools.reasoning import Reasoning

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")  # how byte-fallback vocabularies write a raw byte
_ORDINARY = Rendering()
_MARKER_TOKENS = 16  # at the end of a prompt; they hold any marker and the spaces behind it


class Tokenizer:
    """The tokenizer of one target; every method may be called from several threads at once.

    `raw` is the library's tokenizer. `eos_ids` are the ids that end an answer. `num_valid` is the number of ids; the
    model's vocabulary may be padded beyond it. No token stands for more than `longest` characters of text. `bos` and
    `eos` are the special tokens that begin and end a text, if there are such.

    `format_name` names a tool format other than the one that the chat template asks for; see `ChatTemplate`. `markers`
    are the special tokens that are markers; `marker_ids` the ids of all markers that are no text to a grammar.
    """

    def __init__(self, hf: PreTrainedTokenizerBase, eos_ids: list[int], format_name: str | None = None) -> None:
        self._template = ChatTemplate(hf, format_name)
        self.raw: tokenizers.Tokenizer = hf.backend_tokenizer
        self.raw.no_truncation()
        self.raw.no_padding()
        self.bos: str | None = hf.bos_token
        self.eos: str | None = hf.eos_token
        self.eos_ids = eos_ids
        self.num_valid = len(hf)
        self._byte_level = '"ByteLevel"' in json.dumps(json.loads(self.raw.to_str())["decoder"])
        added = self.raw.get_added_tokens_decoder()
        self.longest = max(map(len, self.raw.get_vocab()))
        self._added: dict[int, str] = {number: token.content for number, token in added.items()}
        self._special = {number for number, token in added.items() if token.special}
        self.markers = markers_of({number: self._added[number] for number in self._special})
        # To llguidance a token counts as special also for its angle brackets, and is no text then; all others are text.
        special = {number: text for number, text in self._added.items() if number in self._special or text[:1] == "<"}
        self.marker_ids = {text: number for number, text in special.items() if text in MARKS}

    @property
    def tool_format(self) -> ToolFormat | None:
        """How the target writes calls of tools; None if it is not known."""
        return self._template.tool_format

    @property
    def reasoning(self) -> Reasoning | None:
        """The markers of the target's reasoning, if its chat template knows any."""
        return self._template.reasoning

    def template_mentions(self, variable: str) -> bool:
        """Whether the chat template has the word."""
        return variable in self._template.variables

    def opens_reasoning(self, prompt: Sequence[int]) -> bool:
        """Whether the prompt ends with the marker that begins the target's reasoning."""
        if self.reasoning is None:
            return False
        end = self.raw.decode(list(prompt[-_MARKER_TOKENS:]), skip_special_tokens=False)
        return str(end).rstrip().endswith(self.reasoning.begin)

    def encode_text(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a bare prompt, with the special tokens that the tokenizer adds (BOS).

        Special tokens that are written in the text become tokens, too.
        """
        return self._ids(text, add_special_tokens=add_special_tokens)

    def encode_chat(self, messages: list[dict[str, Any]], rendering: Rendering = _ORDINARY) -> list[int]:
        """Token ids of a conversation in the target's chat template, opened for the assistant's answer.

        Each message has `role` and `content`, and perhaps `tool_calls`, `tool_call_id` or `reasoning_content`. Special
        tokens written in a content, a call or a tool are text, unless `rendering` says otherwise. Raises
        `InvalidRequest`, mostly for the field `messages`, if the template refuses the conversation or takes no tools
        where there are any, or if the target has no template.
        """
        return self._template.encode(messages, rendering)

    def encode_answer(self, text: str) -> list[int]:
        """Token ids of a text that continues another, without special tokens."""
        return self._ids(text, add_special_tokens=False)

    def _ids(self, text: str, *, add_special_tokens: bool) -> list[int]:
        # the batch call releases the interpreter lock, the single call does not
        return self.raw.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids

    def prompt_text(self, ids: Sequence[int]) -> str:
        """The user's text in a prompt, without special tokens and without the template's frame of a single message.

        The messages of a longer conversation stand on separate lines.
        """
        before, after = self._around_a_message
        return self._plain(ids).removeprefix(before).removesuffix(after).strip()

    @cached_property
    def _around_a_message(self) -> tuple[str, str]:
        if not self._template.exists:
            return "", ""
        before, _, after = self._plain(self.encode_chat([{"role": "user", "content": PROBE}])).partition(PROBE)
        return before, after

    def _plain(self, ids: Sequence[int]) -> str:
        runs = (run for special, run in itertools.groupby(ids, self._special.__contains__) if not special)
        return "\n".join(filter(None, (self.raw.decode(list(run)).strip() for run in runs)))

    def token_bytes(self, token: int) -> bytes:
        """The bytes that `token` adds to the text; they need not be whole UTF-8 characters.

        An id beyond the tokenizer has no bytes. A special token gives its name.
        """
        if token in self._added:
            return self._added[token].encode()
        piece: str | None = self.raw.id_to_token(token)
        if piece is None:
            return b""
        if self._byte_level:
            return b"".join(_BYTE_OF[char] for char in piece)
        if byte := _BYTE_PIECE.fullmatch(piece):
            return bytes.fromhex(byte[1])
        return piece.replace("▁", " ").encode()

    def token_text(self, token: int) -> str:
        r"""`token` as a string, or in the form `bytes:\xe4\xb8` if its bytes are not valid UTF-8 by themselves."""
        raw = self.token_bytes(token)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def load_tokenizer(path: str | Path, format_name: str | None = None) -> Tokenizer:
    """The tokenizer of a model directory or hub id, with the end-of-sequence ids of its generation config.

    `format_name` names the tool format of the model, if that is not the one that its chat template asks for.

    Raises `ConfigError` if no tokenizer can be loaded or no end-of-sequence id is given.
    """
    from transformers import AutoTokenizer  # seconds of import, paid only where a tokenizer is loaded

    try:
        hf = AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"no tokenizer can be loaded from {path}: {error}") from error
    named = _eos_ids(path) or _as_list(hf.eos_token_id)
    eos_ids = [token for token in named if 0 <= token < len(hf)]
    if not eos_ids:
        reason = f"of {named} the tokenizer has none" if named else "none is named"
        raise ConfigError(
            f"{path} has no end-of-sequence token: {reason}; set eos_token_id in its generation_config.json"
        )
    return Tokenizer(hf, eos_ids, format_name)


def _eos_ids(path: str | Path) -> list[int]:
    """`eos_token_id` from generation_config.json, else from config.json, else an empty list."""
    from transformers import GenerationConfig, PretrainedConfig

    try:
        return _as_list(GenerationConfig.from_pretrained(path).eos_token_id)
    except OSError:  # many models ship without one
        pass
    try:
        return _as_list(PretrainedConfig.get_config_dict(path)[0].get("eos_token_id"))
    except OSError:
        return []


def _as_list(eos: Any) -> list[int]:
    if eos is None:
        return []
    return list(eos) if isinstance(eos, list) else [int(eos)]


def _byte_alphabet() -> dict[str, bytes]:
    """The byte of each printable character that byte-level vocabularies use.

    Printable Latin-1 bytes stand for themselves. The others use the code points from 256 on, in order.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in printable)
    shifted = {chr(256 + n): bytes([byte]) for n, byte in enumerate(others)}
    return {chr(byte): bytes([byte]) for byte in printable} | shifted


_BYTE_OF = _byte_alphabet()
