"""Logprobs in OpenAI's two forms: per token for chat, in parallel lists for completions."""

from __future__ import annotations

from collections.abc import Sequence

from core.generation import TokenLogprob
from core.text.tokenizer import Tokenizer
from serve_app.http.output.choices import Piece
from serve_app.protocols.openai.bodies import ChatLogprobs, CompletionLogprobs, ContentLogprob, TopLogprob

LOWEST = -9999.0  # JSON has no infinity


def chat_logprobs(piece: Piece, tokenizer: Tokenizer) -> ChatLogprobs:
    return ChatLogprobs(content=[_content(entry, tokenizer) for entry in piece.logprobs])


def completion_logprobs(piece: Piece, tokenizer: Tokenizer) -> CompletionLogprobs:
    return text_logprobs(piece.logprobs, piece.offsets, tokenizer)


def text_logprobs(logprobs: Sequence[TokenLogprob], offsets: Sequence[int], tokenizer: Tokenizer) -> CompletionLogprobs:
    """Those of tokens whose texts begin at `offsets`, in characters."""
    return CompletionLogprobs(
        tokens=[tokenizer.token_text(entry.token) for entry in logprobs],
        token_logprobs=[_finite(entry.logprob) for entry in logprobs],
        top_logprobs=[_by_text(entry, tokenizer) for entry in logprobs],
        text_offset=list(offsets),
    )


def _content(entry: TokenLogprob, tokenizer: Tokenizer) -> ContentLogprob:
    chosen = _top(entry.token, entry.logprob, tokenizer)
    return ContentLogprob(
        token=chosen.token,
        logprob=chosen.logprob,
        bytes=chosen.bytes,
        top_logprobs=[_top(token, logprob, tokenizer) for token, logprob in entry.top],
    )


def _top(token: int, logprob: float, tokenizer: Tokenizer) -> TopLogprob:
    return TopLogprob(
        token=tokenizer.token_text(token), logprob=_finite(logprob), bytes=list(tokenizer.token_bytes(token))
    )


def _by_text(entry: TokenLogprob, tokenizer: Tokenizer) -> dict[str, float]:
    """Best first; of two ids with the same text the likelier is kept."""
    texts: dict[str, float] = {}
    for token, logprob in entry.top:
        texts.setdefault(tokenizer.token_text(token), _finite(logprob))
    return texts


def _finite(logprob: float) -> float:
    return max(logprob, LOWEST)
