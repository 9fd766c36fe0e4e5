"""Reads YAML files into pydantic models; an unknown key or a wrong value is a `ConfigError` that names the key."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from core.errors import ConfigError

AbsolutePath = Annotated[Path, AfterValidator(Path.absolute)]
"""A path in a file; a relative one is from where the command runs."""


class Section(BaseModel):
    """A section of a file; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Settings = TypeVar("Settings", bound=Section)


def read_settings(file: Path, model: type[Settings]) -> Settings:
    """Read a file into `model`. Raises `ConfigError`."""
    try:
        content = yaml.safe_load(file.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read {file}: {error}") from error
    return parse_settings(content, model, str(file))


def parse_settings(content: Any, model: type[Settings], origin: str) -> Settings:
    """Check parsed content; the message of a `ConfigError` begins with `origin`."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        problems = "\n".join(f"  {_explain(model, problem)}" for problem in error.errors())
        raise ConfigError(f"{origin}:\n{problems}") from error


def _explain(model: type[Section], problem: Any) -> str:
    where = ".".join(str(part) for part in problem["loc"]) or "(top)"
    if problem["type"] != "extra_forbidden":
        return f"{where}: {problem['msg']}"
    keys = _known_keys(model, problem["loc"][:-1])
    nearest = difflib.get_close_matches(str(problem["loc"][-1]), keys, n=1)
    return f"{where}: unknown key" + (f"; did you mean `{nearest[0]}`?" if nearest else f"; known are {keys}")


def _known_keys(model: type[Section], location: tuple[int | str, ...]) -> list[str]:
    """The keys of the section at `location`, found by way of the annotations."""
    section: Any = model
    for part in location:
        if isinstance(section, type) and issubclass(section, Section) and part in section.model_fields:
            annotation = section.model_fields[str(part)].annotation
            members = getattr(annotation, "__args__", (annotation,))
            section = next((m for m in reversed(members) if m is not type(None)), annotation)
    return sorted(section.model_fields) if isinstance(section, type) and issubclass(section, Section) else []
