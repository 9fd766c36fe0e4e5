"""Turns a request body into `GenerationRequest`s, prompt by prompt, checked against the limits of the service."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

import msgspec

from core.errors import InvalidRequest
from core.generation import GenerationRequest
from core.sampling.params import SamplingParams
from serve_app.http.output.choices import NO_PARSING, Ending, Parsing, parsing_of
from serve_app.http.output.continuation import FIELD as CONTINUE_FROM
from serve_app.http.output.continuation import Received
from serve_app.http.prompts import (
    chat_grammar,
    chat_prompt,
    check_ids,
    completion_prompts,
    expected_answer,
)
from serve_app.http.schema.fields import nearest, shortened
from serve_app.http.schema.requests import ChatRequest, CompletionRequest, GenerationFields
from serve_app.http.served_names import check_model
from serve_app.http.service import Service, Speculation

SEED_BITS = 53  # clients in JavaScript read no larger number exactly
TASKS_SHOWN = 8
_CONVERTED = {"seed", "max_tokens", "temperature", "top_k", "top_p", "logit_bias", "stop"}
_SAME = (GenerationFields.model_fields.keys() & set(SamplingParams.__struct_fields__)) - _CONVERTED
GRAMMAR = "grammar"  # what a verifier blames, which knows no fields of requests


@dataclass(frozen=True)
class Batch:
    """One HTTP request: for each prompt its choices, which share one prefill.

    `model` and `grammar_field` are the client's names: of the model, and of what holds the answer to a grammar. Of an
    answer that was cut, the only one of its request, `received` is what the client has.
    """

    prompts: list[list[GenerationRequest]]
    speculation: Speculation
    ending: Ending
    model: str
    parsing: Parsing = NO_PARSING
    grammar_field: str = GRAMMAR
    received: Received = None

    @property
    def seed(self) -> int | None:
        """That of the answers; None where several prompts may each have their own."""
        return self.prompts[0][0].params.seed if len(self.prompts) == 1 else None

    @property
    def requests(self) -> list[GenerationRequest]:
        """Every choice of every prompt, in the order of the answer's indices."""
        return [request for prompt in self.prompts for request in prompt]

    @property
    def predicted(self) -> bool:
        """Whether the client said what it expects the answer to be."""
        return self.received is None and any(request.prediction for request in self.requests)

    def in_its_fields(self, error: Exception) -> Exception:
        """The same error, about the client's field."""
        if not isinstance(error, InvalidRequest) or error.field != GRAMMAR:
            return error
        field = self.grammar_field
        return InvalidRequest(field, f"'{field}': {error}", status=error.status, code=error.code)

    @property
    def prompt_tokens(self) -> int:
        return sum(prompt[0].prompt_length for prompt in self.prompts)


async def completion_batch(request: CompletionRequest, service: Service, owner: str | None) -> Batch:
    """`owner` is the client's. Raises `InvalidRequest`."""
    speculation, ending = _check(request, service), _ending(request, service)
    grammar = await request.grammar()
    prompts = await completion_prompts(request, service)
    if request.continue_from is not None and len(prompts) > 1:
        raise InvalidRequest(CONTINUE_FROM, f"'{CONTINUE_FROM}' continues one answer; send one prompt")
    prediction = await expected_answer(request, service)
    choices = [
        _choices(request, prompt, field, _params(request, request.token_limit, grammar), prediction, service, owner)
        for field, prompt in prompts.items()
    ]
    return Batch(
        choices,
        speculation,
        ending,
        request.model,
        grammar_field=request.grammar_field,
        received=request.continue_from,
    )


async def chat_batch(
    request: ChatRequest, service: Service, owner: str | None, *, lowers_max_tokens: bool = False
) -> Batch:
    """`owner` is the client's. Raises `InvalidRequest`.

    More tokens than the context has room for behind the prompt are refused, or else the limit is lowered.
    """
    speculation, ending = _check(request, service), _ending(request, service)
    prompt = await chat_prompt(request, service)
    room = max(service.context - len(prompt), 1)
    max_tokens = request.max_tokens or request.max_completion_tokens or room
    if lowers_max_tokens:
        max_tokens = min(max_tokens, room)
    prediction = await expected_answer(request, service)
    opened = service.tokenizer.opens_reasoning(prompt)
    grammar = await chat_grammar(request, service, opened)
    parsing = parsing_of(request.callable_names, request.include_reasoning, service.tokenizer, opened, grammar)
    params = _params(request, max_tokens, grammar)
    choices = [
        msgspec.structs.replace(choice, form=parsing.form)
        for choice in _choices(request, prompt, "messages", params, prediction, service, owner)
    ]
    return Batch([choices], speculation, ending, request.model, parsing, request.grammar_field, request.continue_from)


def _check(request: GenerationFields, service: Service) -> Speculation:
    """The request's speculation; raises `InvalidRequest` for a model, task or `n` that this service does not have."""
    check_model(request.model, service)
    if request.n > service.max_choices:
        raise InvalidRequest("n", f"'n' must be at most {service.max_choices}, not {request.n}")
    fields = request.speculation
    if fields.task is not None and fields.task not in service.tasks:
        tasks = ", ".join(f"'{task}'" for task in service.tasks[:TASKS_SHOWN])
        hint = nearest(fields.task, list(service.tasks)) or f"this service has {tasks}"
        raise InvalidRequest("speculation.task", f"unknown task '{shortened(fields.task)}'; {hint}")
    enabled = fields.enabled and fields.num_speculative_tokens != 0
    return Speculation(enabled, fields.num_speculative_tokens, fields.task)


def _ending(request: GenerationFields, service: Service) -> Ending:
    check_ids(request.stop_token_ids, "stop_token_ids", service)
    eos_ids = () if request.ignore_eos else service.tokenizer.eos_ids
    return Ending(
        stop=request.stops,
        ids=frozenset([*eos_ids, *request.stop_token_ids]),
        eos_ids=frozenset(eos_ids),
        reads_only=request.max_tokens == 0,
        skip_special_tokens=request.skip_special_tokens,
        include_stop=request.include_stop_str_in_output,
    )


def _choices(
    request: GenerationFields,
    prompt: list[int],
    field: str,
    params: SamplingParams,
    prediction: list[int],
    service: Service,
    owner: str | None,
) -> list[GenerationRequest]:
    _check_room(prompt, field, params.max_tokens, service.context)
    params.validate(service.vocab_size)
    fields = request.speculation
    tokens = tuple(prompt)
    return [
        GenerationRequest(
            tokens=tokens,
            prompt_length=len(tokens),
            params=params,
            choice=choice,
            num_speculative_tokens=fields.num_speculative_tokens if fields.enabled else 0,
            always_draft=fields.enabled and bool(fields.num_speculative_tokens),
            prediction=tuple(prediction),
            owner=owner,
            store=request.store,
        )
        for choice in range(request.n)
    ]


def _check_room(prompt: list[int], field: str, max_tokens: int, context: int) -> None:
    if len(prompt) >= context:
        message = f"the prompt has {len(prompt)} tokens; the context of {context} must hold it and at least one more"
        raise InvalidRequest(field, message, code="context_length_exceeded")
    if len(prompt) + max_tokens > context:
        message = f"{len(prompt)} tokens of prompt and max_tokens of {max_tokens} exceed the context of {context}"
        raise InvalidRequest("max_tokens", message, code="context_length_exceeded")


def _params(request: GenerationFields, max_tokens: int, grammar: str) -> SamplingParams:
    """The fields of the same name, and those that a request writes in another way."""
    same: dict[str, Any] = {name: getattr(request, name) for name in _SAME}
    return SamplingParams(
        **same,
        seed=secrets.randbits(SEED_BITS) if request.seed is None else request.seed,
        max_tokens=max_tokens,
        temperature=request.temperature if request.top_p else 0.0,
        top_k=max(request.top_k, 0),
        top_p=request.top_p or 1.0,
        logit_bias={int(token): bias for token, bias in request.logit_bias.items()},
        stop=request.stops,
        logprobs=request.alternatives,
        prompt_logprobs=request.prompt_alternatives,
        stop_ids=tuple(request.stop_token_ids),
        grammar=grammar,
    )
