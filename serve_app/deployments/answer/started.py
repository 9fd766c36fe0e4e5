"""What a verifier says first of a generation, and which drafts it declines: those that would not pay."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from core.draft_key import DraftKey
from core.policy.draft_policy import OTHERS
from core.wire.messages import Address


class Started(msgspec.Struct, frozen=True):
    """First item of a generation: all that a draft needs to join it.

    `sessions` holds one number per choice. `declined` are the drafts that would not pay, and `declines_all` says that
    no other would either.
    """

    sessions: tuple[int, ...]
    verifier: Address
    declined: frozenset[DraftKey] = frozenset()
    declines_all: bool = False

    def declines(self, draft: DraftKey) -> bool:
        """Whether the sessions go without this draft."""
        return draft in self.declined or self.declines_all


def declined_drafts(declined: Mapping[DraftKey, bool]) -> tuple[frozenset[DraftKey], bool]:
    """The drafts that would not pay, of those met, and whether no other would either.

    `declined` says it by draft, and of `OTHERS`, which stands for the drafts not met yet.
    """
    drafts = {draft for draft, declines in declined.items() if declines and draft != OTHERS}
    return frozenset(drafts), bool(declined) and all(declined.values())
