"""What crosses the wire between drafts and verifier; each message stands alone, so loss and reordering are harmless.

A frame is a msgpack list of messages: one frame per peer and step carries all their sessions. Positions count the
whole sequence, prompt included. `session` is an unguessable number drawn by the verifier. `epoch` counts the drafts
that the ingress opens for a session one after another: the highest one seen holds it.
"""

from __future__ import annotations

import secrets

import msgspec

from core.draft_key import DraftKey
from core.sampling.params import SamplingParams

MOST_BRANCHES = 8  # of a proposal


def draft_identity(key: DraftKey) -> bytes:
    """A name for a draft process, by which verifiers answer it; no other has the same."""
    return f"{key}#{secrets.token_hex(8)}".encode()


def draft_key(identity: bytes) -> DraftKey:
    """What a draft process says that it drafts with. It is not trusted: any bytes give some key."""
    return DraftKey.parse(identity.rpartition(b"#")[0].decode(errors="replace"))


class Propose(msgspec.Struct, frozen=True, array_like=True, tag="propose"):
    """Draft to verifier: the draft's whole chain beyond the `base` committed tokens that it knows.

    An empty chain announces the draft. `took` is the seconds since it was asked for this chain; None if part of it was
    drafted before, or if it answers no request. `branches` are other chains from the same base. Each is a verdict that
    this chain may meet, followed by what the draft proposes then. They are sent once, after the proposal.
    """

    session: int
    epoch: int
    base: int
    tokens: tuple[int, ...]
    took: float | None = None
    branches: tuple[tuple[int, ...], ...] = ()


class Commit(msgspec.Struct, frozen=True, array_like=True, tag="commit"):
    """Verifier to draft: everything committed since `base`, the highest base that this draft has sent.

    The next proposal should hold at most `num_tokens`; None is as many as the session was opened for. It should end
    with the token at which the chance that all of it is accepted falls below `min_survival`. `lookahead` asks for
    branches once it is sent.
    """

    session: int
    base: int
    tokens: tuple[int, ...]
    num_tokens: int | None = None
    min_survival: float = 0.0
    lookahead: bool = True


class Close(msgspec.Struct, frozen=True, array_like=True, tag="close"):
    """Verifier to draft: the session has ended for this epoch and those before it."""

    session: int
    epoch: int


class Address(msgspec.Struct, frozen=True):
    """Where a verifier listens and the CURVE public key that opens it; the key is a secret, handed out through Ray."""

    endpoint: str
    public_key: str

    def __repr__(self) -> str:
        return f"Address({self.endpoint!r}, public_key=<hidden>)"


class OpenSession(msgspec.Struct, frozen=True, kw_only=True):
    """The call that starts a draft session: enough to join a generation at any point.

    `tokens` is the prompt and whatever of the answer is known; the first `prompt_length` are the prompt. Without
    `lookahead` it never drafts while the target verifies, whatever a `Commit` asks for.
    """

    session: int
    epoch: int
    verifier: Address
    tokens: tuple[int, ...]
    prompt_length: int
    params: SamplingParams
    choice: int
    num_speculative_tokens: int
    lookahead: bool = True
