"""What a verifier says first of a generation."""

from __future__ import annotations

import msgspec

from core.draft_key import DraftKey
from core.policy.draft_policy import OTHERS
from core.wire.messages import Address


class Started(msgspec.Struct, frozen=True):
    """First item of a generation: all that a draft needs to join it.

    `sessions` holds one number per choice. `declined` names the drafts that would not pay, `OTHERS` among them if
    none would. See `OpenSession` for `lookahead`.
    """

    sessions: tuple[int, ...]
    verifier: Address
    declined: frozenset[DraftKey] = frozenset()
    lookahead: bool = True

    def declines(self, draft: DraftKey) -> bool:
        """Whether the sessions go without this draft."""
        return draft in self.declined or self.declines_all

    @property
    def declines_all(self) -> bool:
        """Whether they go without any draft."""
        return OTHERS in self.declined
