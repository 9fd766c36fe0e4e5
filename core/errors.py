"""Every error TaskSpec raises on purpose.

TaskSpecError
├── InvalidRequest             the caller's input; names the field, becomes an OpenAI-shaped 4xx
├── ConfigError                a configuration file or option; says what to write instead
├── UnsupportedArchitecture    a model this code cannot run; lists those it can
└── OutOfPages                 the KV cache is full; the engine preempts or refuses
"""

from __future__ import annotations


class TaskSpecError(Exception):
    """Root of the tree."""


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
        # an exception is rebuilt from the message alone, which this one cannot be
        return InvalidRequest, (self.field, str(self)), {"status": self.status, "code": self.code}


class ConfigError(TaskSpecError):
    """A configuration that cannot be used; the message says what to write instead."""


class UnsupportedArchitecture(TaskSpecError):
    """A model whose architecture the lean forward does not know."""


class OutOfPages(TaskSpecError):
    """No free page is left in the KV cache."""
