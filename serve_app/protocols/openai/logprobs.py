"""Logprobs in OpenAI's two forms: per token for chat, in parallel lists for completions, there also of the prompt."""

from __future__ import annotations

from collections.abc import Sequence

from core.generation import TokenLogprob
from core.text.tokenizer import Tokenizer
from serve_app.http.batch import Batch
from serve_app.http.output.choices import Offsets, Piece
from serve_app.http.schema.requests import CompletionRequest
from serve_app.protocols.openai.bodies import ChatLogprobs, CompletionLogprobs, ContentLogprob, TopLogprob

LOWEST = -9999.0  # JSON has no infinity


def chat_logprobs(piece: Piece, tokenizer: Tokenizer) -> ChatLogprobs:
    return ChatLogprobs(content=[_content(entry, tokenizer) for entry in piece.logprobs])


def completion_logprobs(piece: Piece, tokenizer: Tokenizer) -> CompletionLogprobs:
    return _text_logprobs(piece.logprobs, piece.offsets, tokenizer)


def _text_logprobs(
    logprobs: Sequence[TokenLogprob], offsets: Sequence[int], tokenizer: Tokenizer
) -> CompletionLogprobs:
    """Those of tokens whose texts begin at `offsets`, in characters."""
    return CompletionLogprobs(
        tokens=[tokenizer.token_text(entry.token) for entry in logprobs],
        token_logprobs=[_finite(entry.logprob) for entry in logprobs],
        top_logprobs=[_by_text(entry, tokenizer) for entry in logprobs],
        text_offset=list(offsets),
    )


class Echo:
    """A prompt that is shown before its answer: the text or the token ids that the client sent, as text."""

    def __init__(self, tokens: Sequence[int], text: str | None, tokenizer: Tokenizer) -> None:
        self._tokens = tokens
        self._tokenizer = tokenizer
        self._logprobs: CompletionLogprobs | None = None
        self.text: str = tokenizer.raw.decode(list(tokens)) if text is None else text

    def before(self, piece: Piece, answer: CompletionLogprobs) -> CompletionLogprobs:
        """The logprobs of the prompt, the first token's null, if this is the first piece; and those of the answer."""
        offset = [len(self.text) + at for at in answer.text_offset]
        if not piece.begins:
            return answer.model_copy(update={"text_offset": offset})
        if self._logprobs is None:  # written with the first choice; the others have the same
            offsets = Offsets(self._tokenizer.raw, skip_special_tokens=True)
            begins = [offsets.push(token) for token in self._tokens]
            self._logprobs = _text_logprobs(piece.prompt_logprobs, begins[1:], self._tokenizer)
        prompt = self._logprobs
        return CompletionLogprobs(
            tokens=[self._tokenizer.token_text(self._tokens[0]), *prompt.tokens, *answer.tokens],
            token_logprobs=[None, *prompt.token_logprobs, *answer.token_logprobs],
            top_logprobs=[None, *prompt.top_logprobs, *answer.top_logprobs],
            text_offset=[0, *prompt.text_offset, *offset],
        )


def echoes(request: CompletionRequest, batch: Batch, tokenizer: Tokenizer) -> list[Echo]:
    """Those of all choices, in the order of their indices; none unless the request asks for them."""
    if not request.echo:
        return []
    contents = request.prompts.values()
    prompts = [
        Echo(choices[0].tokens, prompt if isinstance(prompt, str) else None, tokenizer)
        for choices, prompt in zip(batch.prompts, contents, strict=True)
    ]
    return [echo for echo in prompts for _ in range(request.n)]


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
