"""The verifier's engine: continuous batching of target passes over sessions; no thread, socket or clock.

Every pass takes one row per session plus its proposals, with chunks of prompts beside them. Target and drafts sample
with the same noise, so a proposal changes the pass that a token comes out of, and never the token.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import accumulate, pairwise
from typing import NamedTuple

import msgspec
import torch

from core.draft_key import DraftKey
from core.errors import ConfigError, InvalidRequest, OutOfPages
from core.generation import MAX_SPECULATIVE_TOKENS, GenerationRequest, Run, Source, Vocabulary
from core.grammar.matching import Grammars
from core.model.base import Model
from core.policy.draft_policy import DraftPolicy, Readiness
from core.policy.prompt_costs import Chunk
from core.sampling.sampler import Sampling, sample
from core.verify.batch import ScheduledRows, gather
from core.verify.commit import Chain
from core.verify.draft_links import DraftLinks
from core.verify.logprobs import token_logprobs
from core.verify.scheduler import Scheduler
from core.verify.session import VerifySession
from core.verify.sources import DEFAULT, SourceOptions
from core.verify.sources.choice import Sources
from core.verify.sources.source import Generation
from core.verify.validation import check
from core.wire.messages import Close, Commit, Propose


class VerifyConfig(NamedTuple):
    """Limits of the verify engine, lengths in tokens, times in seconds; and the sources of proposals beside drafts.

    A draft proposes at most `num_speculative_tokens` for a pass, unless the request says how many. Of prompts a pass
    reads at most `prefill_chunk` tokens; beside running answers fewer (`core.policy.prompt_share`).
    """

    max_sessions: int = 32
    num_speculative_tokens: int = 4
    prefill_chunk: int = 256
    draft_lease: float = 2.0
    lookup: SourceOptions = DEFAULT


_READING = Readiness(0.0, 1.0, 1.0, 0, 0)  # a session whose prompt is read: its tokens are counted apart


class Drawing(NamedTuple):
    """A session whose next tokens a pass computed: what it was fed, and the target's logits [num_logits, V]."""

    session: VerifySession
    feed: ScheduledRows
    logits: torch.Tensor


class VerifyEngine:
    """The target and every generation in flight.

    `counts` holds the passes (`steps`); the `tokens`, `proposed`, `accepted` and `plain_passes` (those without
    proposals) of all sessions, `proposed_*` and `accepted_*` by source, and the passes with proposals by the number of
    tokens accepted, `passes_accepting_*`; the microseconds `stepping_us` and `waiting_us` for proposals; and messages
    `dropped_*`. Passes that read no prompt took `decoding_us` with their waits, and plain decoding would have taken
    `plain_us` for the same tokens, by what the policy knows of the cost of a pass.
    """

    def __init__(self, model: Model, vocabulary: Vocabulary, config: VerifyConfig, clock: Callable[[], float]) -> None:
        if vocabulary.num_valid > model.vocab_size:
            raise ConfigError(
                f"the tokenizer has {vocabulary.num_valid} ids and the target only {model.vocab_size}; "
                "take both from the same model"
            )
        self.config = config
        self.counts: Counter[str] = Counter()
        self.policy = DraftPolicy()
        self.grammars = Grammars(vocabulary)
        self._model = model
        self._vocabulary = vocabulary
        self._clock = clock
        self._sessions = Scheduler(model, config.max_sessions, self.counts)
        self._links = DraftLinks(self.policy, self.counts, num_valid=vocabulary.num_valid, lease=config.draft_lease)
        self._sources = Sources(self.policy, config.lookup)
        self._failures: list[tuple[int, InvalidRequest]] = []
        self._progressed: list[VerifySession] = []  # sessions that have committed since they were last guessed for
        self._waiting_since: float | None = None
        self._ended: float | None = None  # the last pass; None if there has been nothing to do since

    def gauges(self) -> Counter[str]:
        """Sessions and pages held now. Of the sessions, `waiting_sessions` have no room yet.

        The `free_pages` belong to no session. `remembered_pages` are those of them that still hold a text.
        """
        return Counter(
            sessions=len(self._sessions),
            waiting_sessions=self._sessions.num_waiting,
            pages=self._model.num_used_pages,
            free_pages=self._model.num_free_pages,
            remembered_pages=self._model.num_prefix_pages,
        )

    def open(self, choices: Sequence[GenerationRequest]) -> list[int]:
        """Take in the choices of one prompt; those with equal tokens share one prefill. Returns their numbers."""
        if len(choices) > self.config.max_sessions:
            raise InvalidRequest("n", f"{len(choices)} choices; at most {self.config.max_sessions} run at a time")
        for request in choices:
            check(request, self._vocabulary, self._model.context)
        group: list[VerifySession] = []
        for request in choices:
            group.append(self._session(request, group))
        self._sessions.add(group)
        return [session.number for session in group]

    def close(self, number: int) -> None:
        """End a session early; unknown ones are ignored."""
        session = self._sessions.get(number)
        if session is not None:
            self._finish(session)

    def receive(self, peer: bytes, message: Propose) -> None:
        """Take a proposal off the wire; a bad one is counted and dropped."""
        self._links.receive(peer, self._sessions.get(message.session), message, self._clock())

    def outgoing(self) -> list[tuple[bytes, Commit | Close]]:
        """Messages to send; each the newest for its session and peer."""
        return self._links.outgoing()

    def urgent(self) -> list[tuple[bytes, Commit | Close]]:
        """Of the messages to send, those whose answer the next pass may wait for."""
        return self._links.urgent()

    def declined(self, temperature: float) -> dict[DraftKey, bool]:
        """See `DraftPolicy.declined`."""
        return self.policy.declined(len(self._sessions), self.config.num_speculative_tokens, temperature)

    def failures(self) -> list[tuple[int, InvalidRequest]]:
        """Sessions that ended in the last pass because their grammar gave up, and why."""
        failures, self._failures = self._failures, []
        return failures

    def wait(self) -> float | None:
        """Seconds until the next pass should begin, 0 for now, None when there is nothing to do."""
        self._sessions.admit()
        if self._complete():
            self._links.idle = False
            return 0.0
        self._look_up()
        now = self._clock()
        leading = self._sessions.leading()
        unread = [self._unread(session) for session in leading]
        ready = [
            _READING if chunk else self._links.readiness(session, now)
            for session, chunk in zip(leading, unread, strict=True)
        ]
        chunks = [chunk for chunk in unread if chunk]
        seconds = self.policy.seconds_to_wait(ready, _num_drafting(leading), chunks) if ready else None
        self._links.idle = seconds != 0.0
        if seconds is None:
            self._waiting_since = self._ended = None
        elif seconds and self._waiting_since is None:
            self._waiting_since = now
        return seconds

    @torch.inference_mode()
    def step(self) -> list[tuple[int, Run]]:
        """One target pass over every running session; returns what each committed."""
        began = self._clock()
        self._sessions.admit()
        runs: list[tuple[int, Run]] = []
        for session in self._complete():
            runs.append((session.number, Run((), finish_reason=session.chain.finish_reason)))
            self._finish(session)
        self._look_up()
        num_drafting = _num_drafting(self._sessions.leading())
        feeds, logits = self._forward(num_drafting)
        drawings: list[Drawing] = []
        for feed, rows in zip(feeds, torch.split(logits, [feed.num_logits for feed in feeds]), strict=True):
            if feed.scored:
                self._score_prompt(feed, rows[: feed.scored])
            if feed.num_logits > feed.scored:
                sharing = self._sessions.share(feed.session)
                drawings += [Drawing(session, feed, rows[feed.scored :]) for session in sharing]
            else:
                self._sessions.keep(feed.session)
        drawings, tokens_of = self._draw(drawings, feeds, logits)
        for drawing, tokens in zip(drawings, tokens_of, strict=True):
            runs.append((drawing.session.number, self._commit(drawing, tokens)))
        unfinished = [drawing.session for drawing in drawings if drawing.session.chain.finish_reason is None]
        ended = self._clock()
        self._observe(feeds, num_drafting, began, ended, sum(len(run.tokens) for _, run in runs))
        self._progressed += unfinished
        self._links.plan(unfinished, len(self._sessions.leading()), ended)
        return runs

    # ---- sessions

    def _session(self, request: GenerationRequest, group: Sequence[VerifySession]) -> VerifySession:
        vocabulary = self._vocabulary
        context = self._model.context
        chain = Chain(request, eos_ids=vocabulary.eos_ids, context=context, tokenizer=vocabulary.raw)
        limit = request.num_speculative_tokens
        of_draft = self.config.num_speculative_tokens if limit is None else min(limit, MAX_SPECULATIVE_TOKENS)
        of_sources = MAX_SPECULATIVE_TOKENS if limit is None else of_draft
        leader = None
        if chain.finish_reason is None:  # a complete answer computes nothing, so it neither leads nor follows
            leader = next((s for s in group if s.leader is None and s.chain.tokens == chain.tokens), None)
        grammar = self.grammars.begin(request.params.grammar) if request.params.grammar else None
        if grammar is not None:
            grammar.advance(request.tokens[request.prompt_length :])
        return VerifySession(
            secrets.randbits(63),
            chain,
            self._sources.open(Generation(request, chain, grammar), of_sources),
            of_draft,
            leader,
            always_draft=request.always_draft,
            grammar=grammar,
        )

    def _complete(self) -> list[VerifySession]:
        """Sessions that were resumed with a complete answer: there is nothing to compute."""
        return [session for session in self._sessions.leading() if session.chain.finish_reason is not None]

    def _finish(self, session: VerifySession) -> None:
        self._sessions.remove(session)
        self._links.leave(session)

    def _unread(self, session: VerifySession) -> Chunk | None:
        """What a pass could read of its prompt; None if its next token is drawn."""
        cached = self._model.num_cached(session.number)
        unread = session.length - cached
        return Chunk(min(unread, self.config.prefill_chunk), cached) if unread > 1 else None

    def _look_up(self) -> None:
        """Guess for the sessions that have progressed; not in a pass, after which drafts are to be told at once."""
        progressed, self._progressed = self._progressed, []
        if progressed:
            self._sources.propose([session.sources for session in progressed], len(self._sessions.leading()))

    # ---- one pass

    def _forward(self, num_drafting: int) -> tuple[list[ScheduledRows], torch.Tensor]:
        """Compute a pass over as many sessions as have room; returns its batch and logits [sum of num_logits, V]."""
        costs, limit = self.policy.costs, self.config.prefill_chunk
        while feeds := gather(self._sessions, self._model, costs, limit, num_drafting):
            try:
                logits = self._model.forward([feed.rows for feed in feeds])
            except OutOfPages:
                if not self._sessions.preempt():
                    raise
                continue
            if logits.is_cuda:  # it has its work by now, and is not done
                torch.cuda.synchronize(logits.device)
            self.counts["steps"] += 1
            return feeds, logits
        return [], torch.empty(0)

    def _draw(
        self, drawings: Sequence[Drawing], feeds: Sequence[ScheduledRows], logits: torch.Tensor
    ) -> tuple[list[Drawing], list[list[int]]]:
        """Draw the target's token for every row of every session, in one transfer from the device.

        `logits` are those of the whole batch, `feeds`. Returns the sessions that drew, and their tokens.
        """
        samplings = [self._sampling(drawing) for drawing in drawings]
        samplings = [(drawing, sampling) for drawing, sampling in samplings if not self._failed(drawing.session)]
        if not samplings:
            return [], []
        drawings, sessions = [drawing for drawing, _ in samplings], [sampling for _, sampling in samplings]
        rows = [drawing.logits for drawing in drawings]
        if len(rows) != len(feeds) or sum(map(len, rows)) != len(logits):  # rows are shared, only scored, or of no use
            logits = torch.cat(rows)
        tokens = sample(logits, sessions, self._vocabulary.num_valid)
        ends = accumulate((sampling.rows for sampling in sessions), initial=0)
        return drawings, [tokens[begin:end] for begin, end in pairwise(ends)]

    def _sampling(self, drawing: Drawing) -> tuple[Drawing, Sampling]:
        """How to draw, and from what: without the proposals that the grammar could not judge."""
        session, feed, chain = drawing.session, drawing.feed, drawing.session.chain
        prompt = session.prompt_ids if chain.params.repetition_penalty != 1.0 else ()
        allowed = session.allowed(feed.proposals, self._vocabulary.num_valid)
        if allowed is not None and len(allowed) < len(drawing.logits):
            feed = feed._replace(proposals=feed.proposals[: len(allowed) - 1])
            drawing = Drawing(session, feed, drawing.logits[: len(allowed)])
        counts, proposals = chain.counts, feed.proposals
        return drawing, Sampling(chain.params, chain.choice, session.length, counts, proposals, prompt, allowed)

    def _failed(self, session: VerifySession) -> bool:
        """Whether its grammar has given up; then it ends, and the others know nothing of it."""
        fault = "" if session.grammar is None else session.grammar.fault
        if fault:
            message = f"the grammar gave up after {session.chain.num_generated} tokens: {fault}"
            self._failures.append((session.number, InvalidRequest("grammar", message)))
            self._finish(session)
        return bool(fault)

    def _score_prompt(self, feed: ScheduledRows, logits: torch.Tensor) -> None:
        """Note the logprobs of the tokens that follow those of a chunk of the prompt."""
        session = feed.session
        begin = self._model.num_cached(session.number) - len(feed.tokens)
        following = session.chain.tokens[begin + 1 : begin + 1 + len(logits)]
        del session.prompt_logprobs[begin:]  # of before a preemption
        session.prompt_logprobs += token_logprobs(logits, following, session.chain.params.prompt_logprobs or 0)

    def _commit(self, drawing: Drawing, tokens: list[int]) -> Run:
        session, proposals = drawing.session, drawing.feed.proposals
        first = session.chain.num_generated == 0
        top = session.chain.params.logprobs
        logprobs = () if top is None else token_logprobs(drawing.logits, tokens, top)
        run = session.chain.commit(tokens, proposals, logprobs, drawing.feed.source)
        if first and drawing.feed.session.prompt_logprobs:
            run = msgspec.structs.replace(run, prompt_logprobs=tuple(drawing.feed.session.prompt_logprobs))
        if session.grammar is not None:
            session.grammar.advance(run.tokens)
        self._links.committed(session, run)
        session.sources.committed(run.tokens)
        self._sessions.keep(session)
        self._count(run)
        if run.finish_reason is not None:
            self._sources.finished(session.sources)
            self._finish(session)
        return run

    def _observe(
        self, feeds: Sequence[ScheduledRows], num_drafting: int, began: float, ended: float, num_tokens: int
    ) -> None:
        """Count the time since the last pass: waiting for proposals, and all else as the cost of this pass."""
        waited = 0.0 if self._waiting_since is None else began - self._waiting_since
        since = began - waited if self._ended is None else self._ended
        self._waiting_since, self._ended = None, ended
        self.counts["waiting_us"] += round(1e6 * waited)
        self.counts["stepping_us"] += round(1e6 * (ended - began))
        if not feeds:
            return
        seconds = ended - since - waited
        chunks = [feed.reads for feed in feeds if feed.reads]
        rows = sum(len(feed.tokens) for feed in feeds if not feed.reads)
        if chunks:
            self.policy.costs.observe_reading(rows, chunks, seconds, num_drafting)
        else:
            plain = self.policy.costs.share(len(feeds), rows, num_drafting) * seconds
            self.counts["plain_us"] += round(1e6 * plain * num_tokens / len(feeds))  # a token a pass for each
            self.counts["decoding_us"] += round(1e6 * (waited + seconds))
            self.policy.costs.observe(rows, seconds, num_drafting)
        self.policy.observe_pass(len(feeds))

    def _count(self, run: Run) -> None:
        counts, proposed = self.counts, run.proposed
        counts["tokens"] += len(run.tokens)
        if not proposed:
            counts["plain_passes"] += 1
            return
        accepted = run.accepted
        of_proposed, of_accepted, passes = _names_of_counts(run.source, accepted)
        counts["proposed"] += proposed
        counts["accepted"] += accepted
        counts[of_proposed] += proposed
        counts[of_accepted] += accepted
        counts[passes] += 1


@cache
def _names_of_counts(source: Source, num_accepted: int) -> tuple[str, str, str]:
    """Of the tokens that it proposed, of those accepted, and of the passes that accepted as many."""
    return f"proposed_{source}", f"accepted_{source}", f"passes_accepting_{num_accepted}"


def _num_drafting(sessions: Iterable[VerifySession]) -> int:
    """The sessions that may be drafted for while the target computes."""
    return sum(session.link is not None and session.link.computes for session in sessions)
