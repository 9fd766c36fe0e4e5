"""Special tokens that a user types stay text: only the chat template can write a token that means a role or an end.

The template is rendered with stand-ins for every special token in a message. In the rendered text, what still looks
like a special token is therefore the template's own. A second tokenizer, which knows the special tokens by names that
nobody can guess, encodes it in one piece. So tokens at the joints of contents and template are the usual ones.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from tokenizers import AddedToken, Tokenizer, models

from core.errors import InvalidRequest


class PlainContents:
    """Encodes rendered conversations in which `reserved` token ids come from the template alone.

    The model's merges and vocabulary are shared with `raw`.
    """

    def __init__(self, raw: Tokenizer, reserved: Collection[int]) -> None:
        added = raw.get_added_tokens_decoder()
        nonce = secrets.token_hex(16)  # in no text, unless by a chance of 2 to the power of -128
        self._names = {token: f"{nonce}n{token}e" for token in reserved}
        self._stand_in = f"{nonce}s%de"
        self._stand_ins = re.compile(f"{nonce}s([0-9]+)e")
        self._finder = _Finder(raw, {token: added[token] for token in reserved})
        self._tokenizer = Tokenizer(raw.model)
        # The setters of these refuse None, which is what a tokenizer begins with.
        if raw.normalizer is not None:
            self._tokenizer.normalizer = raw.normalizer
        if raw.pre_tokenizer is not None:
            self._tokenizer.pre_tokenizer = raw.pre_tokenizer
        tokens = {number: _named(self._names.get(number), token) for number, token in added.items()}
        self._tokenizer.add_tokens(list(tokens.values()))
        self._number = {self._tokenizer.token_to_id(token.content): number for number, token in tokens.items()}

    def hidden(self, value: Any, typed: list[str]) -> Any:
        """The JSON value with stand-ins for the reserved tokens in its texts and keys.

        What the stand-ins stand for is appended to `typed`.
        """
        if isinstance(value, str):
            return self._hidden_text(value, typed)
        if isinstance(value, Mapping):
            return {self._hidden_text(key, typed): self.hidden(part, typed) for key, part in value.items()}
        return [self.hidden(part, typed) for part in value] if isinstance(value, list) else value

    def _hidden_text(self, text: str, typed: list[str]) -> str:
        def stand_in(_token: int, name: str) -> str:
            typed.append(name)
            return self._stand_in % (len(typed) - 1)

        return self._finder.replaced(text, stand_in)

    def shown(self, text: str, typed: list[str]) -> str:
        """`text` with what its stand-ins stand for."""
        return self._stand_ins.sub(lambda match: typed[int(match[1])], text)

    def encode(self, rendered: str, typed: list[str]) -> list[int]:
        """Token ids of what the template made of hidden values; the reserved ones are those that it wrote itself.

        Raises `InvalidRequest` if the tokenizer has no other way to write a reserved token than the token itself.
        """
        own: list[int] = []

        def name(token: int, _text: str) -> str:
            own.append(token)
            return self._names[token]

        text = self.shown(self._finder.replaced(rendered, name), typed)
        encoded = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids  # releases the lock
        tokens = [self._number.get(token, token) for token in encoded]
        if [token for token in tokens if token in self._names] != own:
            message = "this model's tokenizer cannot write a special token of these messages as text; leave it out"
            raise InvalidRequest("messages", message)
        return tokens


class _Finder:
    """Finds the added tokens that a tokenizer would recognise in a text, in time linear in its length."""

    def __init__(self, raw: Tokenizer, sought: Mapping[int, AddedToken]) -> None:
        # All other text is one unknown token.
        self._tokenizer = Tokenizer(models.WordLevel({"other": 0}, unk_token="other"))
        if raw.normalizer is not None and any(token.normalized for token in sought.values()):
            self._tokenizer.normalizer = raw.normalizer
        self._tokenizer.add_tokens(list(sought.values()))
        self._number = {self._tokenizer.token_to_id(token.content): number for number, token in sought.items()}

    def replaced(self, text: str, by: Callable[[int, str], str]) -> str:
        """`text` with `by(id, text)` in the place of every token that is found."""
        parts, end = [], 0
        for token, start, stop in self._found(text):
            parts += [text[end:start], by(token, text[start:stop])]
            end = stop
        return "".join([*parts, text[end:]])

    def _found(self, text: str) -> Iterator[tuple[int, int, int]]:
        encoding = self._tokenizer.encode_batch([text], add_special_tokens=False)[0]  # releases the lock
        for token, (start, stop) in zip(encoding.ids, encoding.offsets, strict=True):
            if token in self._number:
                yield self._number[token], start, stop


def _named(name: str | None, token: AddedToken) -> AddedToken:
    """`token` under another name; as itself if it has none."""
    if name is None:
        return token
    return AddedToken(
        name, lstrip=token.lstrip, rstrip=token.rstrip, normalized=token.normalized, special=token.special
    )


def reserved_ids(raw: Tokenizer, frame: Callable[[], str]) -> frozenset[int]:
    """The special tokens, and other added ones that `frame`, the template around the messages, marks turns with.

    Some vocabularies do not call the tokens special by which their template marks roles. Words and spaces in the frame
    are no marks, even if they are tokens of their own.
    """
    added = raw.get_added_tokens_decoder().items()
    special = {number for number, token in added if token.special and not token.content.isspace()}
    marks = {number for number, token in added if not token.special and _is_mark(token.content)}
    framing = set(raw.encode(frame(), add_special_tokens=False).ids) if marks else set()
    return frozenset(special | marks & framing)


def _is_mark(text: str) -> bool:
    return any(not (char.isalnum() or char.isspace()) for char in text)
