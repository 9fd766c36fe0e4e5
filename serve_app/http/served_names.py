"""The names by which clients ask for the model of a service, of which the first is its own."""

from __future__ import annotations

from core.errors import InvalidRequest
from serve_app.config import ANY_NAME, LONGEST_NAME
from serve_app.http.schema.fields import shortened
from serve_app.http.service import Service

NAMES_SHOWN = 8


def listed_names(service: Service) -> list[str]:
    """The names that /v1/models lists: the model's own, then those of its aliases that are written down."""
    return [service.model_name, *([] if service.aliases == ANY_NAME else service.aliases)]


def check_model(name: str | None, service: Service) -> None:
    """Raises `InvalidRequest` for a name that the service does not answer to; None is the model's own."""
    if name is None or name in listed_names(service):
        return
    if service.aliases != ANY_NAME:
        names = ", ".join(f"'{own}'" for own in listed_names(service)[:NAMES_SHOWN])
        message = f"the model '{shortened(name)}' does not exist; this service has {names}"
        raise InvalidRequest("model", message, status=404, code="model_not_found")
    if not 1 <= len(name) <= LONGEST_NAME:
        raise InvalidRequest("model", f"'model' has {len(name)} characters; a name has 1 to {LONGEST_NAME}")
