"""One generation as the verifier sees it: its committed chain, its place in a prefill group, and who proposes to it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from core.generation import TokenLogprob
from core.grammar.matching import Allowed, GrammarState
from core.verify.commit import Chain
from core.verify.draft_link import DraftLink
from core.verify.sources.choice import NOTHING, Proposal, SessionSources, better


class VerifySession:
    """`link` is the session's draft, which `core.verify.draft_links` alone sets and changes; `sources` are the others.

    `grammar` is the state of the answer's grammar, if it has one. `prompt_logprobs` are those of the prompt's tokens,
    from the second, as far as they are computed.

    `leader` computes this session's prompt, which is then forked; `followers` are those whose leader this one is.
    `max_proposed` is the most tokens of a draft that a pass may be given; with `always_draft` that many are always
    asked for.
    """

    def __init__(
        self,
        number: int,
        chain: Chain,
        sources: SessionSources,
        max_proposed: int,
        leader: VerifySession | None = None,
        *,
        always_draft: bool = False,
        grammar: GrammarState | None = None,
    ) -> None:
        self.number = number
        self.chain = chain
        self.sources = sources
        self.max_proposed = max_proposed
        self.always_draft = always_draft
        self.grammar = grammar
        self.prompt_logprobs: list[TokenLogprob] = []
        self.link: DraftLink | None = None
        self.leader = leader
        self.followers: list[VerifySession] = []
        if leader is not None:
            leader.followers.append(self)

    @property
    def length(self) -> int:
        return len(self.chain.tokens)

    @property
    def num_requested(self) -> int:
        """The most tokens of the draft that the next pass would take."""
        return 0 if self.link is None else self.chain.limit_proposals(self.link.budget.num_tokens)

    @property
    def drafted(self) -> tuple[int, ...]:
        """The tokens of the draft that are there now."""
        return () if self.link is None else self.link.proposal[: self.num_requested]

    @property
    def scores_prompt(self) -> bool:
        """Whether the logits of its prompt are still wanted, so that it cannot be taken from the cache."""
        if self.chain.params.prompt_logprobs is None or self.chain.num_generated:
            return False
        return len(self.prompt_logprobs) < self.chain.prompt_length - 1

    def allowed(self, proposed: Sequence[int], num_ids: int) -> Allowed | None:
        """The ids that may follow the first j of the proposed tokens, bool [1 + proposed, ids]; None for all of them.

        There are fewer rows where the grammar cannot judge all of the tokens. None that ends the answer may be among
        its first `min_tokens`.
        """
        if self.grammar is not None:
            return self.grammar.allowed(proposed)
        too_short = max(0, self.chain.params.min_tokens - self.chain.num_generated)
        if not too_short:
            return None
        allowed = np.ones((1 + len(proposed), num_ids), np.bool_)
        allowed[:too_short, list(self.chain.end_ids)] = False
        return allowed

    @cached_property
    def prompt_ids(self) -> list[int]:
        """The distinct tokens of its prompt."""
        return list(set(self.chain.tokens[: self.chain.prompt_length]))

    def proposal(self) -> Proposal:
        """The best tokens to verify if a pass began now; none while followers share the pass.

        Of the draft's tokens, as of the others, there are those that the grammar allows.
        """
        if self.followers:
            return NOTHING
        drafted = self.drafted
        if self.grammar is not None:
            drafted = drafted[: self.grammar.valid(drafted)]
        expected = 0.0 if self.link is None else self.link.acceptance.tokens(len(drafted)) - 1.0
        return better(Proposal("draft", drafted, expected), self.sources.proposal)

    def lead_on(self) -> VerifySession:
        """Hand the followers to the first of them, which is returned."""
        (first, *others), self.followers = self.followers, []
        first.leader, first.followers = None, others
        for other in others:
            other.leader = first
        return first
