"""The sections of a configuration that say who may use the HTTP server, and how much."""

from __future__ import annotations

import re

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from core.settings import AbsolutePath, Section

KEYED = "TASKSPEC_KEYED"  # in the environment of ingress replicas that ask for keys, where operators' commands see it


class ApiKeys(Section):
    """The API keys that the HTTP server accepts: those of a file, of an environment variable, or of both."""

    file: AbsolutePath | None = Field(
        None,
        description="made by `taskspec keys add NAME --file FILE`; readable in every ingress replica, and read again "
        "when it changes",
    )
    env: str | None = Field(
        None,
        description="name of an environment variable of the command that deploys, which has keys, or `NAME:HASH` as in "
        "the file, between commas; only hashes go on to the replicas",
    )

    @model_validator(mode="after")
    def _some(self) -> ApiKeys:
        if self.file is None and self.env is None:
            raise PydanticCustomError("keys", "write `file`, `env` or both")
        return self


class Limits(Section):
    """What each API key may take, or all clients together if there are no keys, of each ingress replica.

    An answer that has begun is not cut: the tokens that it takes beyond its minute are owed.
    """

    concurrency: int | None = Field(None, ge=1, description="requests at a time")
    requests_per_minute: int | None = Field(None, ge=1)
    tokens_per_minute: int | None = Field(None, ge=1, description="of prompts and answers together")


class Cors(Section):
    """Which web pages may use the service from a browser."""

    origins: list[str] = Field(min_length=1, description='such as "https://app.example.org", or "*" for all')

    @field_validator("origins")
    @classmethod
    def _are_origins(cls, origins: list[str]) -> list[str]:
        for origin in origins:
            if origin != "*" and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/\s]+", origin):
                message = f"`{origin}` is no origin; write scheme and host without a path, as https://app.example.org"
                raise PydanticCustomError("origin", "{message}", {"message": message})
        return origins
