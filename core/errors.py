"""Every error TaskSpec raises on purpose, and the exit codes of its commands.

TaskSpecError
├── InvalidRequest             a request; names the field, becomes a 4xx in OpenAI's form
├── ConfigError                a configuration file or option; says what to write instead
│   └── TooFewPrompts          there may be enough later, where a service records more
├── UnsupportedArchitecture    a model this code cannot run; lists those it can
└── OutOfPages                 the KV cache is full; the engine preempts or refuses
"""

from __future__ import annotations

from typing import ClassVar

# Exit codes. A command that succeeds ends with 0.
FAILED = 1  # a service or a job failed, or answers differ
USAGE = 2  # invalid options or configuration
INTERRUPTED = 130  # Ctrl-C


class TaskSpecError(Exception):
    """Root of the tree. A command that raises it ends with `exit_code`."""

    exit_code: ClassVar[int] = FAILED


class InvalidRequest(TaskSpecError):
    """A request that cannot be served, with the field at fault.

    `status` is the HTTP status it becomes, `code` OpenAI's machine-readable reason.
    """

    def __init__(self, field: str | None, message: str, *, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.status = status
        self.code = code

    def __reduce__(self) -> tuple[object, ...]:
        # pickle rebuilds an exception from its message alone; this one needs its other arguments too
        return InvalidRequest, (self.field, str(self)), {"status": self.status, "code": self.code}


class ConfigError(TaskSpecError):
    """A configuration that cannot be used; the message says what to write instead."""

    exit_code = USAGE


class TooFewPrompts(ConfigError):
    """Too few prompts to learn from. A watch waits for more."""


class UnsupportedArchitecture(TaskSpecError):
    """A model whose architecture a decoder does not know."""


class OutOfPages(TaskSpecError):
    """No free page is left in the KV cache."""
