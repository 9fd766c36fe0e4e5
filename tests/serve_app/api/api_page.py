"""Writes serve_app/API.md from the code: `python -m tests.serve_app.api.api_page > serve_app/API.md`."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple, cast, get_args, get_type_hints

from fastapi.routing import APIRoute

from serve_app.api.app import routers
from serve_app.http.schema.fields import Fields, Unsupported
from serve_app.http.service import Service

INTRODUCTION = """# The API

Made from the code by `python -m tests.serve_app.api.api_page > serve_app/API.md`; a test compares them. A running
service has the same, with types and limits, at `/docs` for people and at `/openapi.json` for tools.

HEAD works wherever GET does. Every response has an `x-request-id`; errors are OpenAI's `{"error": {...}}`, those of
`/v1/messages` Anthropic's. Not in the table are `/healthz`, another name of `/health`, and the front page `/`, which is
for people.

| endpoint | answer |
|---|---|
"""
FIELDS = """
## Fields

*Ignored* fields are accepted with any value and change nothing. *Refused* ones, and all that are not listed, get a 400
that names them. Values that ask for nothing are accepted there, too: those in brackets, and null everywhere. `a.b` is a
field of the object `a`, and `a[].b` one of the objects in the list `a`.

A `model` is the service's own name or one of its `aliases`, and every answer names the model as it was asked for.

`truncation: "auto"` is refused, too. Only the client knows which turns a conversation can spare, and one that has lost
its oldest shares no computation with the one before. A conversation that does not fit gets a 400 with the code
`context_length_exceeded`; in `/v1/messages` its message begins with `prompt is too long`, as Anthropic's does.

| endpoints | field | | description |
|---|---|---|---|
"""
ALIASES = {"/healthz"}  # of paths that are shown
SUPPORTED, IGNORED, REFUSED = "supported", "ignored", "refused"


class Entry(NamedTuple):
    """A field of one body: its path, whether it is supported, ignored or refused, and what more is to be said."""

    field: str
    kind: str
    description: str


def api_page() -> str:
    """The Markdown page: every endpoint, and every field of the bodies."""
    routes = [route for route in _routes() if route.include_in_schema and route.path_format not in ALIASES]
    lines = [_row(_endpoint(route), _summary(route)) for route in routes]
    return INTRODUCTION + "".join(lines) + FIELDS + "".join(_field_rows(routes))


def _routes() -> list[APIRoute]:
    # Routes read these of a service when they are made, and nothing else.
    service = SimpleNamespace(model_name="", tokenizer=SimpleNamespace(raw=None), describe=dict)
    every = routers(cast("Service", service))
    return [route for router in every for route in router.routes if isinstance(route, APIRoute)]


def _field_rows(routes: list[APIRoute]) -> Iterator[str]:
    """Fields that several endpoints have alike are told once, and before those that fewer have."""
    endpoints: defaultdict[Entry, list[str]] = defaultdict(list)
    for route in routes:
        for body in _bodies(route):
            for entry in _described_once(entries(body)):
                endpoints[entry].append(f"`{route.path_format.removeprefix('/v1').removeprefix('/')}`")
    groups: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry, paths in endpoints.items():
        groups[", ".join(paths)].append(entry)
    for paths_shown, members in groups.items():
        for entry in members:
            if entry.kind == SUPPORTED:
                yield _row(paths_shown, f"`{entry.field}`", entry.kind, entry.description)
        for kind in (IGNORED, REFUSED):
            if named := [entry for entry in members if entry.kind == kind]:
                fields = ", ".join(f"`{entry.field}`{entry.description}" for entry in named)
                yield _row(paths_shown, fields, kind, "")


def _described_once(repeated: Iterable[Entry]) -> list[Entry]:
    """The entries without those of a field that another kind of object supports, or describes."""
    best: dict[str, Entry] = {}
    for entry in repeated:
        other = best.get(entry.field)
        if other is None or (entry.kind == SUPPORTED and (other.kind != SUPPORTED or not other.description)):
            best[entry.field] = entry
    return list(best.values())


def entries(model: type[Fields], path: str = "") -> Iterator[Entry]:
    """The fields of a body, each before those of the objects in it."""
    for name, field in zip(model.names(), model.model_fields.values(), strict=True):
        yield Entry(path + name, SUPPORTED, field.description or "")
        for nested, step in nested_objects(field.annotation):
            yield from entries(nested, f"{path}{name}{step}.")
    for name in sorted(model.ignored):
        yield Entry(path + name, IGNORED, "")
    for name, inert in refused_fields(model).items():
        shown = ", ".join(f"`{json.dumps(value)}`" for value in inert)
        yield Entry(path + name, REFUSED, f" ({shown})" if shown else "")


def refused_fields(model: type[Fields]) -> Unsupported:
    """Fields that are refused by name, each with the values that ask for nothing; those of state have words of their
    own in the error."""
    return model.unsupported | getattr(model, "of_state", {})


def nested_objects(annotation: Any, step: str = "") -> Iterator[tuple[type[Fields], str]]:
    """The objects that a field may have as its value, and `[]` for each list that they are in."""
    if isinstance(annotation, type) and issubclass(annotation, Fields):
        yield annotation, step
    inner = step + "[]" if getattr(annotation, "__origin__", annotation) is list else step
    for part in get_args(annotation):
        yield from nested_objects(part, inner)


def _bodies(route: APIRoute) -> list[type[Fields]]:
    hints = get_type_hints(route.endpoint)
    return [hint for hint in hints.values() if isinstance(hint, type) and issubclass(hint, Fields)]


def _endpoint(route: APIRoute) -> str:
    return f"`{' '.join(sorted(route.methods or ()))} {route.path_format}`"


def _summary(route: APIRoute) -> str:
    return " ".join(route.description.split())


def _row(*cells: str) -> str:
    escaped = (cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells)
    return f"| {' | '.join(escaped)} |\n"


if __name__ == "__main__":
    sys.stdout.write(api_page())
