"""Checks of requests that need the target: room in its context, ids of its vocabulary; not ranges of parameters."""

from __future__ import annotations

from core.errors import InvalidRequest
from core.generation import GenerationRequest, Vocabulary


def check(request: GenerationRequest, vocabulary: Vocabulary, context: int) -> None:
    """Raise `InvalidRequest` unless the target can take `request`.

    Its prompt must leave room for a token in the `context`; an answer resumed when complete may fill it.
    """
    num_valid = vocabulary.num_valid
    if request.prompt_length < 1 or len(request.tokens) < request.prompt_length:
        raise InvalidRequest("prompt", "the prompt is empty; send at least one token")
    if request.prompt_length >= context or len(request.tokens) > context:
        raise InvalidRequest("prompt", f"the prompt has {request.prompt_length} tokens; the context holds {context}")
    if not all(0 <= token < num_valid for token in request.tokens):
        raise InvalidRequest("prompt", f"token ids must be between 0 and {num_valid - 1}")
    if not all(0 <= token < num_valid for token in request.prediction):
        raise InvalidRequest("prediction", f"token ids must be between 0 and {num_valid - 1}")
    request.params.validate(num_valid)
