"""The names of a service's Serve applications, and the key of a draft, which is in that of its pool."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from core.draft_key import DraftKey

CORE = "taskspec"  # the application of ingress and verifier
ROLLOUT = "taskspec-rollout"  # that of the rollout of bundles
DRAFT_CHECK = "taskspec-draft-check"  # that of the replay of drafted answers
_SLUG_LENGTH = 40  # characters of a task's name in the name of its application
_DIGITS = 12  # of a digest there


def draft_key(task: str, directory: str | None = None) -> DraftKey:
    """The key of a task's draft: the task in ASCII, and the first digits of the adapter in this directory.

    Ray's metrics and the names of applications accept ASCII only, and tasks may be named in any script: such a name
    keeps its ASCII letters and digits, and gets a digest to be unique.
    """
    plain = re.sub(r"[^A-Za-z0-9]+", "-", task).strip("-")[:_SLUG_LENGTH]
    unique = "" if plain == task else f"_{hashlib.sha256(task.encode()).hexdigest()[:_DIGITS]}"
    return DraftKey(f"{plain}{unique}", None if directory is None else Path(directory).name[:_DIGITS])


def pool_application(draft: DraftKey) -> str:
    """Name of the Serve application of a draft's pool.

    So pools of several bundles can serve beside each other, and those of a draft that stays are the same.
    """
    return f"draft-{draft}"


def router_application(directory: str) -> str:
    """Name of the Serve application of a router."""
    return f"router@{Path(directory).name[:_DIGITS]}"
