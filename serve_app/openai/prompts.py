"""A request's prompt enters as text, messages or ids; token ids that fit the model's context leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from starlette.concurrency import run_in_threadpool

from core.errors import InvalidRequest
from serve_app.openai.requests import ChatRequest, CompletionRequest
from serve_app.service import Service

INLINE_CHARACTERS = 4096  # requests of more text are tokenised in a thread; these take about 2 ms of the event loop
MAX_SHRINKAGE = 4  # how many times shorter a tokenizer's normalising may make a text, with much to spare

Input = TypeVar("Input")


async def completion_prompts(request: CompletionRequest, service: Service) -> dict[str, list[int]]:
    """The token ids of every prompt of the request, in order, each under the name of its field."""
    prompts = request.prompts
    if not prompts:
        raise InvalidRequest("prompt", "'prompt' must not be empty")
    size = sum(len(prompt) for prompt in prompts.values() if isinstance(prompt, str))
    return {field: await _tokens(prompt, field, service, size) for field, prompt in prompts.items()}


async def chat_prompt(request: ChatRequest, service: Service) -> list[int]:
    """The token ids of the conversation in the target's template, opened for the answer."""
    messages = [
        {"role": "system" if message.role == "developer" else message.role, "content": message.text}
        for message in request.messages
    ]
    size = sum(len(message["content"]) for message in messages)
    _check_size(size, "messages", service)
    return await _encode(service.tokenizer.encode_chat, messages, size)


async def _tokens(prompt: str | list[int], field: str, service: Service, size: int) -> list[int]:
    """`size` is how many characters the whole request has."""
    if not prompt:
        raise InvalidRequest(field, f"'{field}' must not be empty")
    if isinstance(prompt, str):
        _check_size(len(prompt), field, service)
        return await _encode(service.tokenizer.encode_text, prompt, size)
    if min(prompt) < 0 or max(prompt) >= service.tokenizer.num_valid:
        raise InvalidRequest(field, f"'{field}': token ids go from 0 to {service.tokenizer.num_valid - 1}")
    return prompt


def _check_size(characters: int, field: str, service: Service) -> None:
    """Refuse, without tokenising it, a text that cannot possibly fit the context."""
    most = service.context * service.tokenizer.longest * MAX_SHRINKAGE
    if characters > most:
        message = f"'{field}' has {characters} characters; a context of {service.context} tokens cannot hold them"
        raise InvalidRequest(field, message, code="context_length_exceeded")


async def _encode(encode: Callable[[Input], list[int]], value: Input, size: int) -> list[int]:
    return encode(value) if size <= INLINE_CHARACTERS else await run_in_threadpool(encode, value)
