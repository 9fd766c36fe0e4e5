"""What the HTTP protocol needs to read a request as a service of a configuration would, without that service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from core.model_names import locate
from core.text.tokenizer import Tokenizer, load_tokenizer
from serve_app.config import ANY_NAME, Aliases, ServiceConfig
from serve_app.http.service import Service


@dataclass(frozen=True)
class OfflineService:
    """The properties of `serve_app.http.service.Service`, and none of its methods. Any name of a model will do."""

    tokenizer: Tokenizer
    model_name: str
    context: int
    vocab_size: int
    tasks: tuple[str, ...] = ()
    aliases: Aliases = ANY_NAME
    max_choices: int = 1 << 16
    owner_salt: bytes = b""


def offline_service(config: ServiceConfig) -> Service:
    """Raises `ConfigError`."""
    tokenizer = load_tokenizer(locate(config.target.model), config.target.tool_format)
    return cast(Service, OfflineService(tokenizer, config.name, config.target.context, tokenizer.num_valid))
