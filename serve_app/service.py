"""What the HTTP face needs of the service behind it, and the nouns that pass between them.

Enters: the choices of one prompt. Leaves: their runs as the target commits them. The ingress implements `Service`;
the HTTP face knows nothing else of it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

import msgspec

from core.errors import TaskSpecError
from core.generation import GenerationRequest, Run
from core.tokenizer import Tokenizer


class Overloaded(TaskSpecError):
    """The service cannot take the request now; becomes `status` with a Retry-After of `retry_after_s` seconds."""

    def __init__(self, message: str, *, status: int = 503, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


class Speculation(msgspec.Struct, frozen=True):
    """What a request asks of speculation.

    `num_speculative_tokens` caps the proposals per target pass, None leaves it to the service. `task` names the
    draft pool, None leaves it to the router.
    """

    enabled: bool = True
    num_speculative_tokens: int | None = None
    task: str | None = None


class ChoiceRun(msgspec.Struct, frozen=True):
    """A run of one choice, and the task whose draft proposed for it."""

    choice: int
    run: Run
    task: str


class Service(Protocol):
    """Everything behind the HTTP face.

    `context` is the most tokens a prompt and its answer may hold together, `max_choices` the most choices of one
    prompt, `tasks` the draft pools a request may name, "general" among them.
    """

    tokenizer: Tokenizer
    model_name: str
    context: int
    vocab_size: int
    tasks: tuple[str, ...]
    max_choices: int

    def describe(self) -> dict[str, object]:
        """Facts about the model for /v1/models: numerics, dtype and the like; JSON values only."""

    async def healthy(self) -> bool:
        """Whether a request sent now would be answered."""

    def generate(self, requests: list[GenerationRequest], speculation: Speculation) -> AsyncGenerator[ChoiceRun, None]:
        """The runs of the choices of one prompt, each choice's in order, until every one has finished.

        `requests` share the prompt (one prefill) and differ in `choice`. Closing the generator, or cancelling the
        task that waits on it, ends every session at once. Raises `Overloaded` when there is no room.
        """
