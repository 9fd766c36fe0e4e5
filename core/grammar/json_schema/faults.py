"""What is wrong with a schema, and where in it."""

from __future__ import annotations

Path = tuple[str | int, ...]


class SchemaFault(Exception):
    """A schema that cannot be used; `path` leads to the part at fault, and `complaint` says what to write instead."""

    def __init__(self, path: Path, complaint: str) -> None:
        super().__init__(complaint)
        self.path = path
        self.complaint = complaint


def written(path: Path) -> str:
    """The path as it follows the name of a field: `.properties.a.anyOf[1]`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
