"""A request's prompt enters as text, messages or ids; token ids that fit the model's context leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from starlette.concurrency import run_in_threadpool

from core.errors import InvalidRequest
from serve_app.openai.requests import ChatRequest, CompletionRequest
from serve_app.service import Service

INLINE_CHARACTERS = 4096  # longer texts are tokenised in a thread: about 2 ms of the event loop

Input = TypeVar("Input")


async def completion_prompts(request: CompletionRequest, service: Service) -> list[list[int]]:
    """The token ids of every prompt of the request, in order."""
    prompts = request.prompts
    if not prompts:
        raise InvalidRequest("prompt", "'prompt' must not be empty")
    return [await _tokens(prompt, field, service) for field, prompt in prompts.items()]


async def chat_prompt(request: ChatRequest, service: Service) -> list[int]:
    """The token ids of the conversation in the target's template, opened for the answer."""
    messages = [
        {"role": "system" if message.role == "developer" else message.role, "content": message.text}
        for message in request.messages
    ]
    size = sum(len(message["content"]) for message in messages)
    return await _encode(service.tokenizer.encode_chat, messages, size)


async def _tokens(prompt: str | list[int], field: str, service: Service) -> list[int]:
    if not prompt:
        raise InvalidRequest(field, f"'{field}' must not be empty")
    if isinstance(prompt, str):
        return await _encode(service.tokenizer.encode_text, prompt, len(prompt))
    limit = service.tokenizer.num_valid
    for index, token in enumerate(prompt):
        if not 0 <= token < limit:
            raise InvalidRequest(f"{field}[{index}]", f"'{field}[{index}]': token ids go from 0 to {limit - 1}")
    return prompt


async def _encode(encode: Callable[[Input], list[int]], value: Input, size: int) -> list[int]:
    return encode(value) if size <= INLINE_CHARACTERS else await run_in_threadpool(encode, value)
