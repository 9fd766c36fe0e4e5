"""The interface between the HTTP protocol and the service behind it, which the ingress implements."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

import msgspec

from core.errors import TaskSpecError
from core.generation import GenerationRequest, Run
from core.text.tokenizer import Tokenizer
from serve_app.config import Aliases


class Overloaded(TaskSpecError):
    """The service cannot take the request now; becomes `status` with a Retry-After of `retry_after_s` seconds.

    `queue_full` tells proxies that the next request would be refused, too. By its `code` a client knows whether to ask
    again.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 503,
        retry_after_s: int = 1,
        queue_full: bool = False,
        code: str = "overloaded",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s
        self.queue_full = queue_full
        self.code = code


def full_queue(retry_after_s: int) -> Overloaded:
    """What is told to a request for which there is no room, by an ingress or for it."""
    message = f"every verifier is busy and its queue is full; try again in {retry_after_s} s"
    return Overloaded(message, retry_after_s=retry_after_s, queue_full=True)


class Speculation(msgspec.Struct, frozen=True):
    """The speculation that a request asks for.

    `num_speculative_tokens` caps the proposals per target pass; None leaves the cap to the service. `task` names the
    draft pool; None leaves the choice to the router.
    """

    enabled: bool = True
    num_speculative_tokens: int | None = None
    task: str | None = None


class ChoiceRun(msgspec.Struct, frozen=True):
    """A run, the index of its choice, and the task whose draft proposed for it."""

    choice: int
    run: Run
    task: str


class Service(Protocol):
    """Everything behind the HTTP protocol.

    `model_name` is the model's own name, and `aliases` are further ones that clients may ask for, or "any".
    `context` limits the tokens of a prompt and its answer together, `max_choices` the choices of one prompt. `tasks`
    are the draft pools that a request may name, "general" among them. `owner_salt` is a secret of the service.
    """

    tokenizer: Tokenizer
    model_name: str
    aliases: Aliases
    context: int
    vocab_size: int
    max_choices: int
    owner_salt: bytes

    @property
    def tasks(self) -> tuple[str, ...]: ...

    def describe(self) -> dict[str, object]:
        """Properties of the model for /v1/models, such as dtype and numerics; JSON values only."""

    async def healthy(self) -> bool:
        """True if a request sent now would be answered."""

    async def metrics(self) -> str:
        """The metrics of the whole service in Prometheus' text format. Raises `Overloaded` if they cannot be had."""

    def generate(self, requests: list[GenerationRequest], speculation: Speculation) -> AsyncGenerator[ChoiceRun, None]:
        """The runs of the choices of one prompt, those of a choice in order, until every choice has finished.

        `requests` share the prompt, and so the prefill, and differ in `choice`. Closing the generator, or cancelling
        the task that waits for it, ends every session at once. Raises `Overloaded` if there is no room.
        """
