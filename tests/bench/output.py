"""What a benchmark leaves: its text, printed and as Markdown, its figures as JSON with what it was asked and run on."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.bench import machine


def header(columns: Sequence[str]) -> list[str]:
    """The first two lines of a table in Markdown."""
    return [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]


def save(chosen: argparse.Namespace, name: str, text: str, found: Mapping[str, object], **more: object) -> Path:
    """Write `<name>.md` and `<name>.json` into `chosen.out`, which is returned; `more` are facts, paths are none."""
    print(text)
    asked = {key: value for key, value in vars(chosen).items() if not isinstance(value, Path)}
    facts = {"facts": asked | more | machine.facts()}
    out: Path = chosen.out
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.md").write_text(text)
    (out / f"{name}.json").write_text(json.dumps(facts | dict(found), indent=1, ensure_ascii=False) + "\n")
    return out
