"""The prompt before its answer, as a completion with `echo` shows it: its text, and the logprobs of its tokens."""

from __future__ import annotations

from collections.abc import Sequence

from core.text.tokenizer import Tokenizer
from serve_app.http.batch import Batch
from serve_app.http.output.choices import Offsets, Piece
from serve_app.http.schema.requests import CompletionRequest
from serve_app.protocols.openai.bodies import CompletionLogprobs
from serve_app.protocols.openai.logprobs import text_logprobs


class Echo:
    """One prompt: the text that the client sent, or that of the token ids that it sent."""

    def __init__(self, tokens: Sequence[int], text: str | None, tokenizer: Tokenizer) -> None:
        self._tokens = tokens
        self._tokenizer = tokenizer
        self._read: CompletionLogprobs | None = None
        self.text: str = tokenizer.raw.decode(list(tokens)) if text is None else text

    def before(self, piece: Piece, answer: CompletionLogprobs) -> CompletionLogprobs:
        """The logprobs of the prompt, the first token's null, if this is the first piece; and those of the answer."""
        offset = [len(self.text) + at for at in answer.text_offset]
        if not piece.begins:
            return answer.model_copy(update={"text_offset": offset})
        if self._read is None:  # written with the first choice; the others have the same
            offsets = Offsets(self._tokenizer.raw, skip_special_tokens=True)
            begins = [offsets.push(token) for token in self._tokens]
            self._read = text_logprobs(piece.prompt_logprobs, begins[1:], self._tokenizer)
        read = self._read
        return CompletionLogprobs(
            tokens=[self._tokenizer.token_text(self._tokens[0]), *read.tokens, *answer.tokens],
            token_logprobs=[None, *read.token_logprobs, *answer.token_logprobs],
            top_logprobs=[None, *read.top_logprobs, *answer.top_logprobs],
            text_offset=[0, *read.text_offset, *offset],
        )


def echoes(request: CompletionRequest, batch: Batch, tokenizer: Tokenizer) -> list[Echo]:
    """Those of all choices, in the order of their indices; none unless the request asks for them."""
    if not request.echo:
        return []
    sent = request.prompts.values()
    prompts = [
        Echo(choices[0].tokens, prompt if isinstance(prompt, str) else None, tokenizer)
        for choices, prompt in zip(batch.prompts, sent, strict=True)
    ]
    return [echo for echo in prompts for _ in range(request.n)]
