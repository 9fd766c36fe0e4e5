"""Proposals that need no draft: looked up in what a session has said and read, in earlier answers, in a prediction.

The grammar of an answer guesses, too, and is certain. Each source guesses after every pass, and every guess is
compared with what the next pass commits, proposed or not. So the chance of a guess is measured without a row of the
target, by source and kind of guess. Of the guesses for a session the one with most tokens expected to be accepted is
proposed, as far as its tokens are worth their rows, unless a draft is expected to have more accepted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from core.generation import GenerationRequest, Source
from core.grammar.matching import GrammarState
from core.policy.acceptance import MOST_SUPPORT, Kind, TokenChances
from core.policy.draft_policy import DraftPolicy
from core.verify.commit import Chain
from core.verify.suffix_index import LENGTHS, LONGEST_MATCH, Match, Next, SuffixIndex, TextIndex, continuation

GENERAL = "general"  # stands for the task of a session without a draft
_SHARED = ""  # the owner of all requests that have none

Corner = tuple[str | None, str]  # an owner and a task: whose answers may be looked up, and for what


class LookupConfig(NamedTuple):
    """What is looked up: a session's own text, and at most so many tokens of earlier answers, over all owners.

    And what a `grammar` forces. `without_owner` says whether requests that have no owner share an owner; otherwise
    nothing of them is remembered.
    """

    own_text: bool = True
    remembered_tokens: int = 100_000
    without_owner: bool = False
    grammar: bool = True


DRAFTS_ALONE = LookupConfig(own_text=False, remembered_tokens=0, grammar=False)


class Proposal(NamedTuple):
    """Tokens for the next pass, so many of which are expected to be accepted."""

    source: Source
    tokens: tuple[int, ...]
    expected: float


NOTHING = Proposal("draft", (), 0.0)


class Guess(NamedTuple):
    """What a source would propose. `chances` are those that all tokens up to one are accepted, none above the last."""

    source: Source
    tokens: tuple[int, ...]
    kinds: tuple[Kind, ...]
    chances: tuple[float, ...]

    def proposal(self, least: float) -> Proposal:
        """The tokens of at least that chance."""
        worth = [chance for chance in self.chances if chance >= least]
        return Proposal(self.source, self.tokens[: len(worth)], sum(worth))


class AnswerMemory:
    """Earlier answers by owner and task: at most so many tokens in all; the oldest answers make room.

    An index holds the answers of one owner. What is proposed, and so how long a pass takes, tells an owner nothing
    of the answers of others.
    """

    def __init__(self, most_tokens: int) -> None:
        self._most = most_tokens
        self._indices: dict[Corner, SuffixIndex] = {}
        self._answers: deque[tuple[Corner, list[int]]] = deque()
        self.num_tokens = 0

    def add(self, corner: Corner, answer: Sequence[int]) -> None:
        """Remember an answer, if it has an n-gram that a token follows and is not longer than the whole memory."""
        if not LENGTHS[-1] < len(answer) <= self._most:
            return
        text = list(answer)  # of its own, as the index tells texts apart by identity
        self._indices.setdefault(corner, SuffixIndex()).add(text)
        self._answers.append((corner, text))
        self.num_tokens += len(answer)
        while self.num_tokens > self._most:
            self._forget_oldest()

    def of(self, corner: Corner) -> SuffixIndex | None:
        """The answers of an owner to a task."""
        return self._indices.get(corner)

    def _forget_oldest(self) -> None:
        corner, answer = self._answers.popleft()
        self.num_tokens -= len(answer)
        index = self._indices[corner]
        index.forget(answer)
        if not index:
            del self._indices[corner]


class Prediction:
    """The answer that a client expects, followed in place: where the answer differs, it is taken to differ by a token.

    Where it differs by more, the place is found again as soon as the ends of both agree. `chances` are its own: a
    client predicts well or does not.
    """

    def __init__(self, tokens: Sequence[int]) -> None:
        self.chances = TokenChances()
        self._tokens = tokens
        self._index = TextIndex(tokens)
        self._at = 0
        self._agreed = 0  # tokens before the place that the answer has, too

    def follow(self, tokens: Sequence[int]) -> None:
        """The answer grew by these."""
        for token in tokens:
            agrees = self._at < len(self._tokens) and self._tokens[self._at] == token
            self._agreed = self._agreed + 1 if agrees else 0
            self._at += 1

    def continuation(self, answer: Sequence[int], most: int) -> tuple[int, list[Next]]:
        """What follows the end of the answer, at the nearest place, and the number of tokens that agree before it."""
        found = self._index.match(answer)
        if found.length > self._agreed:
            self._agreed = found.length
            self._at = min((at for _, at in found.places), key=lambda at: abs(at - self._at))
        return self._agreed, [Next(token, 1, 1) for token in self._tokens[self._at : self._at + most]]


class SessionSources:
    """What can be looked up for one session, and `proposal`, the best of it for the next pass.

    No more than `most` tokens are proposed, and none that the `grammar` forbids. `owner` is whose answers may be looked
    up, None for nobody's; with `store` this answer joins them.
    """

    def __init__(
        self,
        chain: Chain,
        request: GenerationRequest,
        most: int,
        config: LookupConfig,
        grammar: GrammarState | None = None,
    ) -> None:
        self.chain = chain
        self.most = most
        self.grammar = grammar
        self.own = TextIndex(chain.tokens) if most and config.own_text else None
        self.prediction = Prediction(request.prediction) if most and request.prediction else None
        if self.prediction is not None:
            self.prediction.follow(chain.tokens[chain.prompt_length :])
        self.owner = _SHARED if request.owner is None and config.without_owner else request.owner
        self.store = request.store and most > 0
        self.guesses: list[Guess] = []
        self.proposal = NOTHING


class Sources:
    """Guesses for an engine's sessions: the chances of each kind, and the earlier answers."""

    def __init__(self, policy: DraftPolicy, config: LookupConfig) -> None:
        self.memory = AnswerMemory(config.remembered_tokens)
        self._config = config
        self._policy = policy
        self._chances: dict[Source, TokenChances] = {"own_text": TokenChances(), "answers": TokenChances()}

    def open(
        self, request: GenerationRequest, chain: Chain, most: int, grammar: GrammarState | None = None
    ) -> SessionSources:
        """The sources of a session to which at most so many tokens are proposed for a pass."""
        return SessionSources(chain, request, most, self._config, grammar)

    def propose(self, sessions: Iterable[tuple[SessionSources, str]], num_running: int) -> None:
        """Guess for each of these sessions, given with its task, before a pass over `num_running`."""
        best: list[tuple[SessionSources, Guess]] = []
        for session, task in sessions:
            session.guesses = list(self._guesses(session, task))
            best += [(session, guess) for guess in sorted(session.guesses, key=lambda guess: -sum(guess.chances))[:1]]
        chances = (chance for _, guess in best for chance in guess.chances)
        least = self._policy.least_chance(chances, num_running)
        for session, guess in best:
            session.proposal = guess.proposal(least)

    def committed(self, session: SessionSources, tokens: Sequence[int]) -> None:
        """Learn from the tokens of a pass which guesses for it were right."""
        for guess in session.guesses:
            if guess.source == "grammar":
                continue
            chances = self._chances_of(session, guess.source)
            for token, guessed, kind in zip(tokens, guess.tokens, guess.kinds, strict=False):
                chances.observe(kind, right=token == guessed)
                if token != guessed:
                    break
        if session.prediction is not None:
            session.prediction.follow(tokens)
        session.guesses, session.proposal = [], NOTHING

    def finished(self, session: SessionSources, task: str) -> None:
        """Remember a complete answer, if it may be."""
        if session.store and session.owner is not None:
            self.memory.add((session.owner, task), session.chain.tokens[session.chain.prompt_length :])

    def _guesses(self, session: SessionSources, task: str) -> Iterator[Guess]:
        text, most = session.chain.tokens, session.chain.limit_proposals(session.most)
        if not most:
            return
        grammar = session.grammar if self._config.grammar else None
        if grammar is not None and (forced := grammar.forced()[:most]):
            yield Guess("grammar", tuple(forced), (), (1.0,) * len(forced))
        if session.own is not None:
            yield self._looked_up(session, "own_text", session.own.match(text), most)
        if session.owner is not None and (answers := self.memory.of((session.owner, task))) is not None:
            yield self._looked_up(session, "answers", answers.match(text), most)
        if session.prediction is not None:
            answer = text[max(session.chain.prompt_length, len(text) - LONGEST_MATCH) :]
            yield self._guess(session, "prediction", *session.prediction.continuation(answer, most))

    def _looked_up(self, session: SessionSources, source: Source, match: Match, most: int) -> Guess:
        return self._guess(session, source, match.length, continuation(match, most))

    def _guess(self, session: SessionSources, source: Source, agreed: int, following: Iterable[Next]) -> Guess:
        tokens, kinds, chances, chance = [], [], [], 1.0
        of = self._chances_of(session, source).of
        for ahead, (token, agreeing, among) in enumerate(following):
            context = min(agreed + ahead, LONGEST_MATCH).bit_length()
            kind = Kind(context, MOST_SUPPORT * agreeing // (among + 1))
            chance *= of(kind)
            tokens.append(token)
            kinds.append(kind)
            chances.append(chance)
        valid = len(tokens) if session.grammar is None else session.grammar.valid(tokens)
        return Guess(source, tuple(tokens[:valid]), tuple(kinds[:valid]), tuple(chances[:valid]))

    def _chances_of(self, session: SessionSources, source: Source) -> TokenChances:
        if source == "prediction" and session.prediction is not None:
            return session.prediction.chances
        return self._chances[source]


def better(drafted: Proposal, looked_up: Proposal) -> Proposal:
    """The one of which more tokens are expected to be accepted; the draft's of equals."""
    return looked_up if looked_up.expected > drafted.expected else drafted
