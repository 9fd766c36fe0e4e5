"""Byte-pair encoding in plain Python, straight from its definition: slow, and shares no code with what is tested."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

import regex

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")
# By the name of a pre-tokenizer, the patterns of llama.cpp: each cuts what the one before has left.
PATTERNS: dict[str, tuple[str, ...]] = {
    "smollm": (r"\p{N}", GPT2),
    "gpt-2": (GPT2,),
    "default": (r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"),
    "llama-bpe": (LLAMA3,),
    "qwen2": (QWEN2,),
}
FRAGMENTS = [
    *(
        "the",
        "The quick brown fox",
        "it's",
        "WE'LL",
        "don't",
        "naïve café",
        "été",
        "Größe",
        "мир",
        "你好，世界",
        "こんにちは",
    ),
    *(" ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", " \n ", "\u00a0", "\u3000", "0", "7", "12", "345", "1234567890"),
    *(" 1", "  22", "\n3", "3.14", "1,000,000", "2024-05-17", "x1", "1x", "½", "²", "٣", "Ⅻ", "१२", "a1b2c3"),
    *(
        "def f(x):\n    return x ** 2\n",
        "if (a != b) { c += 1; }",
        "<div class='a'>",
        "// TODO",
        "\\n",
        "$5.00",
        "100%",
    ),
    *("😀", "👩‍👩‍👧", "🇩🇪", "e\u0301", "\u200b", "ﬁ", "!", "?!", "...", "—", "'", '"', "@user", "#tag", "a_b", "C++"),
    *("<|im_start|>", "<|im_end|>", "<|im_end", "<think>"),
]


def texts(number: int) -> list[str]:
    """Random texts of digits, spaces, code and many scripts, the same each time."""
    generator = random.Random(0)
    return ["".join(generator.choices(FRAGMENTS, k=generator.randint(1, 12))) for _ in range(number)]


class SlowBpe:
    """Added tokens are found first, the rest is cut into pieces, and in each the best pairs are merged."""

    def __init__(
        self,
        tokens: Sequence[str],
        merges: Sequence[str],
        added: Sequence[str],
        pre: str,
        *,
        whole_pieces: bool = False,
    ) -> None:
        self._ids = {token: number for number, token in enumerate(tokens)}
        self._ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(merges)}
        self._added = added
        self._patterns = PATTERNS[pre]
        self._whole_pieces = whole_pieces

    def encode(self, text: str) -> list[int]:
        found: list[int] = []
        for part in regex.split("(" + "|".join(map(regex.escape, self._added)) + ")", text):
            pieces = [] if part in self._added else _pieces(part, self._patterns)
            found += [self._ids[part]] if part in self._added else []
            for piece in pieces:
                symbols = "".join(_char_of(byte) for byte in piece.encode())
                whole = self._whole_pieces and symbols in self._ids
                found += [self._ids[token] for token in ([symbols] if whole else _merged(symbols, self._ranks))]
        return found


def _pieces(text: str, patterns: Sequence[str]) -> Iterator[str]:
    if not patterns:
        yield text
        return
    for part in regex.split(f"({patterns[0]})", text):
        if part:
            yield from _pieces(part, patterns[1:])


def _merged(symbols: str, ranks: dict[tuple[str, ...], int]) -> list[str]:
    word = list(symbols)
    while True:
        pairs = [(ranks.get((left, right)), place) for place, (left, right) in enumerate(itertools.pairwise(word))]
        known = [pair for pair in pairs if pair[0] is not None]
        if not known:
            return word
        place = min(known)[1]
        word[place : place + 2] = ["".join(word[place : place + 2])]


def _char_of(byte: int) -> str:
    """GPT-2's table of printable characters for bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    if byte in plain:
        return chr(byte)
    return chr(256 + sum(other < byte and other not in plain for other in range(256)))
