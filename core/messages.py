"""What crosses the wire between drafts and verifier; each message stands alone, so loss and reordering are harmless.

A frame is a msgpack list of messages: one frame per peer and step carries all their sessions. Positions count the
whole sequence, prompt included. `session` is an unguessable number the verifier drew; `seat` counts the drafts the
ingress wired to it one after another, the highest one heard holds the session.
"""

from __future__ import annotations

import msgspec

from core.sampling_params import SamplingParams

MOST_BRANCHES = 8  # of a proposal


class Propose(msgspec.Struct, frozen=True, array_like=True, tag="propose"):
    """Draft to verifier: I know `base` committed tokens, and this is my whole chain from there.

    An empty chain says "I am here, tell me more". `took` is the seconds since I was asked for this; None
    where some of it was there before, or where this is no answer. `branches` are other chains from there, each a
    verdict that this one may meet and what I shall propose upon it: sent once, when the proposal has been.
    """

    session: int
    seat: int
    base: int
    tokens: tuple[int, ...]
    took: float | None = None
    branches: tuple[tuple[int, ...], ...] = ()


class Commit(msgspec.Struct, frozen=True, array_like=True, tag="commit"):
    """Verifier to draft: everything committed since `base`, the highest base heard from this draft.

    `wanted` is the most tokens the next proposal should hold; None is as many as the session was opened for. It should
    end with the token where the chance that all of it is accepted falls below `worth`. Without `prepare`, a draft to
    which that is hardly any work is to leave the cores to the target until the verdict on it.
    """

    session: int
    base: int
    tokens: tuple[int, ...]
    wanted: int | None = None
    worth: float = 0.0
    prepare: bool = True


class Close(msgspec.Struct, frozen=True, array_like=True, tag="close"):
    """Verifier to draft: the session has ended for this seat and those before it."""

    session: int
    seat: int


class Address(msgspec.Struct, frozen=True):
    """Where a verifier listens and the CURVE public key that opens it; the key is a secret, handed out through Ray."""

    endpoint: str
    public_key: str

    def __repr__(self) -> str:
        return f"Address({self.endpoint!r}, public_key=<hidden>)"


class OpenSession(msgspec.Struct, frozen=True, kw_only=True):
    """The call that starts a draft session: enough to join a generation at any point.

    `tokens` is the prompt and whatever of the answer is known; the first `prompt_length` are the prompt.
    """

    session: int
    seat: int
    verifier: Address
    tokens: tuple[int, ...]
    prompt_length: int
    params: SamplingParams
    choice: int
    num_speculative_tokens: int
