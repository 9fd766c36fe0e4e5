"""The tokenizer of grammars: their text is ordinary tokens, also where it is the name of a special one.

llguidance would spell it as a prompt is read, in which the name of a special token is that token. But an answer with
such a token has no text there, or ends. A grammar means a special token only where it names one, as in `<[7]>`.
"""

from __future__ import annotations

from dataclasses import dataclass

from llguidance import LLTokenizer, TokenizerWrapper

from core.generation import Vocabulary


def grammar_tokenizer(vocabulary: Vocabulary) -> LLTokenizer:
    """The tokenizer of all grammars of a vocabulary; one of 49,152 ids takes a third of a second to make."""
    eos_ids = list(vocabulary.eos_ids)
    reader = LLTokenizer(vocabulary.raw.to_str(), n_vocab=vocabulary.num_valid, eos_token=eos_ids, slices=[])
    tokens = _Tokens.of(reader, eos_ids)
    greedy = LLTokenizer(TokenizerWrapper(tokens), eos_token=eos_ids, slices=[])
    return LLTokenizer(TokenizerWrapper(_Spelling(tokens, reader, greedy)), eos_token=eos_ids)


@dataclass(frozen=True)
class _Tokens:
    """A vocabulary as `TokenizerWrapper` asks for it: the bytes of each token, of a special one those of its name."""

    tokens: list[bytes]
    special_token_ids: list[int]
    eos_token_id: int
    bos_token_id: int | None = None

    @classmethod
    def of(cls, reader: LLTokenizer, eos_ids: list[int]) -> _Tokens:
        """Special are the tokens that `reader` takes for such, and those that end an answer."""
        special = sorted({token for token in range(reader.vocab_size) if reader.is_special_token(token)}.union(eos_ids))
        tokens = [reader.decode_bytes([token]) for token in range(reader.vocab_size)]
        for token in set(range(len(tokens))).difference(special):
            if tokens[token] == b"<[%d]>" % token:  # said of an id that stands for nothing
                tokens[token] = b""
        return cls(tokens, special, eos_ids[0])

    def __call__(self, text: str) -> list[int]:
        raise NotImplementedError("it is only asked to cut texts into the longest tokens, which needs its bytes alone")


class _Spelling:
    """The same vocabulary; called with a text, it gives ordinary tokens whose bytes are the text's.

    `reader` reads texts as prompts are read, `greedy` cuts them into the longest ordinary tokens.
    """

    def __init__(self, tokens: _Tokens, reader: LLTokenizer, greedy: LLTokenizer) -> None:
        self.tokens = tokens.tokens
        self.special_token_ids = tokens.special_token_ids
        self.eos_token_id = tokens.eos_token_id
        self.bos_token_id = tokens.bos_token_id
        self._names = {token: tokens.tokens[token].decode(errors="replace") for token in tokens.special_token_ids}
        self._reader = reader
        self._greedy = greedy

    def __call__(self, text: str) -> list[int]:
        spelled: list[int] = []
        for token in self._reader.tokenize_str(text):
            spelled += self._greedy.greedy_tokenize(self._names[token]) if token in self._names else [token]
        if b"".join(map(self.tokens.__getitem__, spelled)) == text.encode():
            return spelled
        return self._greedy.greedy_tokenize(text)  # the tokenizer would change it, as by composing accents
