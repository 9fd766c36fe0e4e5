"""Tokenises the prompt of a request, which is text, messages or token ids, and the answer that the client expects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool

from core.errors import InvalidRequest
from core.text.tokenizer import Tokenizer
from serve_app.http.schema.messages import Message, TemplateFields, for_template
from serve_app.http.schema.requests import ChatRequest, CompletionRequest, GenerationFields
from serve_app.http.schema.tools import answer_grammar
from serve_app.http.service import Service

INLINE_CHARACTERS = 4096  # about 2 ms of the event loop; longer requests are tokenised or translated in a thread
MAX_SHRINKAGE = 4  # a tokenizer's normalisation makes no text shorter by more than this factor

Input = TypeVar("Input")
Output = TypeVar("Output")


async def completion_prompts(request: CompletionRequest, service: Service) -> dict[str, list[int]]:
    """The token ids of every prompt of the request, in order, by the name of its field."""
    prompts = request.prompts
    if not prompts:
        raise InvalidRequest("prompt", "'prompt' must not be empty")
    size = sum(len(prompt) for prompt in prompts.values() if isinstance(prompt, str))
    encode = partial(service.tokenizer.encode_text, add_special_tokens=request.add_special_tokens)
    return {field: await _tokens(prompt, field, encode, service, size) for field, prompt in prompts.items()}


async def chat_prompt(request: ChatRequest, service: Service) -> list[int]:
    """The token ids of the conversation in the target's chat template, ready for the answer."""
    _check_size(sum(message.size for message in request.messages), "messages", service)
    variables = _of_effort(request.reasoning_effort, service.tokenizer)
    return await chat_tokens(request.messages, request, service, variables)


async def chat_tokens(
    messages: list[Message], fields: TemplateFields, service: Service, variables: dict[str, Any] | None = None
) -> list[int]:
    """The token ids of messages as `fields` ask to render them; they may override the template's `variables`."""
    rendering = fields.rendering
    rendering = replace(rendering, variables={**(variables or {}), **rendering.variables})
    size = sum(message.size for message in messages) + len(str(fields.chat_template_kwargs)) + len(str(rendering.tools))
    return await encoded(partial(service.tokenizer.encode_chat, rendering=rendering), for_template(messages), size)


def _of_effort(effort: str | None, tokenizer: Tokenizer) -> dict[str, Any]:
    """The variables that say to the template how much to reason."""
    if effort is not None and tokenizer.template_mentions("reasoning_effort"):
        return {"reasoning_effort": effort}
    if effort is not None and tokenizer.template_mentions("enable_thinking"):
        return {"enable_thinking": effort != "none"}
    if effort in (None, "none"):
        return {}
    message = "this model's chat template knows no reasoning effort; leave 'reasoning_effort' out or send \"none\""
    raise InvalidRequest("reasoning_effort", message)


async def chat_grammar(request: ChatRequest, service: Service, opened: bool) -> str:
    """What the answer must agree with, empty for free text; `opened` says whether the prompt has begun reasoning."""
    build = partial(
        answer_grammar,
        choice=request.tool_choice,
        parallel=request.parallel_tool_calls,
        content=await request.grammar(),
        tokenizer=service.tokenizer,
        opened=opened,
    )
    return await encoded(build, request.tools, len(str(request.tools)))


async def expected_answer(request: GenerationFields, service: Service) -> list[int]:
    """The token ids of the answer that the client expects, or of what it has of one; none if it expects nothing."""
    match request.continue_from:
        case str(content):
            return await _answer_tokens(content, "continue_from", service)
        case list(ids):
            check_ids(ids, "continue_from", service)
            _check_length(ids, "continue_from", service)
            return ids
    if isinstance(request, ChatRequest) and request.prediction is not None:
        return await _answer_tokens(request.prediction.text, "prediction.content", service)
    return []


async def _answer_tokens(text: str, field: str, service: Service) -> list[int]:
    _check_size(len(text), field, service)
    tokens = await encoded(service.tokenizer.encode_answer, text, len(text))
    _check_length(tokens, field, service)
    return tokens


def _check_length(tokens: list[int], field: str, service: Service) -> None:
    if len(tokens) > service.context:
        message = f"'{field}' has {len(tokens)} tokens; the context holds {service.context}"
        raise InvalidRequest(field, message, code="context_length_exceeded")


async def _tokens(
    prompt: str | list[int], field: str, encode: Callable[[str], list[int]], service: Service, size: int
) -> list[int]:
    """`size` is the number of characters of the whole request."""
    if not prompt:
        raise InvalidRequest(field, f"'{field}' must not be empty")
    if isinstance(prompt, str):
        _check_size(len(prompt), field, service)
        return await encoded(encode, prompt, size)
    check_ids(prompt, field, service)
    return prompt


def check_ids(ids: list[int], field: str, service: Service) -> None:
    """Refuse ids that the tokenizer lacks."""
    if ids and not 0 <= min(ids) <= max(ids) < service.tokenizer.num_valid:
        raise InvalidRequest(field, f"'{field}': token ids go from 0 to {service.tokenizer.num_valid - 1}")


def _check_size(characters: int, field: str, service: Service) -> None:
    """Refuse a text that cannot fit the context before it is tokenised."""
    limit = service.context * service.tokenizer.longest * MAX_SHRINKAGE
    if characters > limit:
        message = f"'{field}' has {characters} characters; a context of {service.context} tokens cannot hold them"
        raise InvalidRequest(field, message, code="context_length_exceeded")


async def encoded(encode: Callable[[Input], Output], value: Input, size: int) -> Output:
    """`encode(value)`, in a thread if there are many characters (`size`)."""
    return encode(value) if size <= INLINE_CHARACTERS else await run_in_threadpool(encode, value)
