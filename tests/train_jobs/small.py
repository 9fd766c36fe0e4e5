"""A small configuration with a slow first stage: thousands of short answers, a few at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

SMALL: dict[str, Any] = {
    "target": {"model": "family:target", "max_sessions": 4},
    "draft": "family:draft",
    "work": "work",
    "bundles": "bundles",
    "collect": {
        "files": ["train_jobs/configs/prompts.jsonl"] * 20,
        "held_out_share": 0.01,
        "shard": 8,
        "max_tokens": 8,
        "temperatures": [0.0],
    },
}


def written(directory: Path, content: dict[str, Any]) -> Path:
    file = directory / "small.yaml"
    file.write_text(yaml.safe_dump(content))
    return file
