"""`/tokenize`, `/detokenize` and `/tokenizer_info`, with vLLM's bodies: text or messages to token ids, and back."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter
from pydantic import BaseModel, Field, model_validator

from serve_app.http.body import JsonRoute
from serve_app.http.prompts import chat_tokens, check_ids, encoded
from serve_app.http.schema import unsupported as unsupported_fields
from serve_app.http.schema.fields import Fields, field_error
from serve_app.http.schema.messages import Messages, TemplateFields
from serve_app.http.served_names import check_model
from serve_app.http.service import Service


class TokenizeRequest(TemplateFields):
    """POST /tokenize, either of `prompt` or of `messages`."""

    unsupported = unsupported_fields.TOKENIZE

    model: str | None = Field(None, description="The model's name; it may be left out.")
    prompt: str | None = Field(None, description="Special tokens in it become tokens.")
    messages: Messages | None = Field(None, description="Rendered as /v1/chat/completions does.")
    add_special_tokens: bool | None = Field(
        None,
        description="Begin a prompt with what the tokenizer adds (BOS); true if absent. Templates write their own.",
    )
    return_token_strs: bool = Field(False, description="Give each token's string as well.")

    @model_validator(mode="after")
    def _one_input(self) -> TokenizeRequest:
        if (self.prompt is None) == (self.messages is None):
            raise field_error("prompt", "give either prompt or messages")
        if self.prompt is not None and (names := sorted(TemplateFields.model_fields.keys() & self.model_fields_set)):
            raise field_error(names[0], f"'{names[0]}' needs messages; a prompt goes through no template")
        if self.messages is not None and self.add_special_tokens:
            raise field_error("add_special_tokens", "the chat template writes the special tokens; leave it out")
        return self


class Tokenized(BaseModel):
    count: int
    max_model_len: int = Field(description="Most tokens of a prompt and its answer.")
    tokens: list[int]
    token_strs: list[str] | None = Field(description="As the vocabulary writes them; null unless asked for.")


class DetokenizeRequest(Fields):
    """POST /detokenize."""

    model: str | None = Field(None, description="The model's name; it may be left out.")
    tokens: list[int] = Field(fail_fast=True, description="Token ids.")


class Detokenized(BaseModel):
    prompt: str = Field(description="The text, special tokens included.")


class TokenizerInfo(BaseModel):
    bos_token: str | None = Field(description="The special token that begins a text.")
    eos_token: str | None = Field(description="The one that ends it.")


def tokenizing(service: Service) -> APIRouter:
    """The routes of these endpoints."""
    router = APIRouter(route_class=JsonRoute)
    raw = service.tokenizer.raw

    def strings(tokens: list[int]) -> list[str]:
        return [raw.id_to_token(token) or "" for token in tokens]

    def text(tokens: list[int]) -> str:
        return str(raw.decode(tokens, skip_special_tokens=False))

    @router.post("/tokenize")
    async def tokenize(body: TokenizeRequest) -> Tokenized:
        """The token ids of a prompt, or of messages in the chat template."""
        check_model(body.model, service)
        tokens = await _tokens(body, service)
        shown = await encoded(strings, tokens, len(tokens)) if body.return_token_strs else None
        return Tokenized(count=len(tokens), max_model_len=service.context, tokens=tokens, token_strs=shown)

    @router.post("/detokenize")
    async def detokenize(body: DetokenizeRequest) -> Detokenized:
        """The text of token ids."""
        check_model(body.model, service)
        check_ids(body.tokens, "tokens", service)
        return Detokenized(prompt=await encoded(text, body.tokens, len(body.tokens)))

    @router.get("/tokenizer_info")
    async def tokenizer_info() -> TokenizerInfo:
        """Special tokens. With it and the two above a client counts tokens without a copy of the tokenizer."""
        return TokenizerInfo(bos_token=service.tokenizer.bos, eos_token=service.tokenizer.eos)

    return router


async def _tokens(body: TokenizeRequest, service: Service) -> list[int]:
    if body.messages is not None:
        return await chat_tokens(body.messages, body, service)
    prompt = body.prompt or ""
    encode = partial(service.tokenizer.encode_text, add_special_tokens=body.add_special_tokens is not False)
    return await encoded(encode, prompt, len(prompt))
