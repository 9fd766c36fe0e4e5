"""Generates the answers of an ingress replica: admits a prompt, passes on its runs, and closes its books.

A generation makes one call per prompt to the verifier, one to the router and at most one per choice to a draft pool,
and one more for each move to another, however many rounds it takes. `counts` has the number of calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

from core.draft_key import GENERAL
from core.generation import GenerationRequest, Run
from core.rollout.trial import JudgedAnswer
from serve_app.deployments.answer.bundles import BundleChoice, IngressCounts, ServingBundle
from serve_app.deployments.answer.draft_samples import DraftSamples
from serve_app.deployments.answer.draft_sessions import DraftSessions
from serve_app.deployments.answer.generation import Generation
from serve_app.deployments.answer.started import Started
from serve_app.deployments.answer.trace_recorder import TraceRecorder
from serve_app.deployments.answer.verifier_calls import VerifierCalls
from serve_app.deployments.models.served_models import ServedModels
from serve_app.deployments.telemetry.answer_history import AnswerHistory, Routing
from serve_app.deployments.telemetry.answer_metrics import AnswerMetrics
from serve_app.deployments.telemetry.metrics import Metrics
from serve_app.deployments.telemetry.reports import Answered, IngressReport
from serve_app.deployments.telemetry.vllm_names import AnswersUnderVllmNames
from serve_app.http.exchange import happened
from serve_app.http.ledger import Totals
from serve_app.http.minute_counts import Minutes
from serve_app.http.service import ChoiceRun, Speculation
from serve_app.spans import FIRST_TOKEN, PREFILL


class OpenAnswer:
    """One answer while it is generated, with the bundle that it began with; implements `verifier_calls.Companion`."""

    def __init__(self, requests: Sequence[GenerationRequest], bundle: ServingBundle, speculation: Speculation) -> None:
        self.generation = Generation(requests)
        self.bundle = bundle
        self.failed = False
        self.drafts: DraftSessions | None = None
        self._named: str | None = None
        if speculation.enabled:
            self._named = speculation.task if speculation.task in bundle.tasks else None
            length = bundle.served.config.draft.num_speculative_tokens
            self.drafts = DraftSessions(bundle, self.generation, length, self._named)

    @property
    def prior(self) -> Mapping[str, float] | None:
        """The chance of every task, if the router was asked and has answered."""
        return None if self.drafts is None else self.drafts.prior

    @property
    def routing(self) -> Routing:
        """How the task of the prompt was told."""
        if self._named is not None:
            return Routing(self._named, "named")
        if not self.prior:
            return Routing()
        task, chance = max(self.prior.items(), key=lambda entry: entry[1])
        return Routing(task, "routed", chance)

    def start(self, started: Started, choices: Sequence[int]) -> None:
        self.generation.ledger.take()
        self.bundle.counts.events["verifier_calls"] += 1
        self.bundle.counts.declining = started.declines_all
        happened(PREFILL, {"taskspec.verifier": started.verifier.endpoint})
        if self.drafts is not None:
            self.drafts.start(started, choices)

    def enter(self, choice: int, run: Run) -> ChoiceRun:
        """Enter a run in the ledger, with the task whose draft serves the choice, and let the drafts learn from it."""
        if not self.generation.num_tokens:
            happened(FIRST_TOKEN)
        choice_run = ChoiceRun(choice, run, GENERAL if self.drafts is None else self.drafts.task(choice))
        self.generation.ledger.add(choice_run)
        if self.drafts is not None:
            self.drafts.observe(choice, run)
        return choice_run

    def stop(self) -> None:
        if self.drafts is not None:
            self.drafts.stop()

    def judged(self) -> list[JudgedAnswer]:
        """What the target judged of drafts: an entry for each choice that one proposed for."""
        prior = self.prior or {GENERAL: 1.0}
        task = max(prior, key=lambda name: prior[name])
        drafts = (choice.drafts for choice in self.generation.ledger.choices.values())
        return [JudgedAnswer(task, counts.judged, counts.accepted) for counts in drafts if counts.judged]

    def around_moves(self) -> Counter[str]:
        """The tokens that drafts proposed, and those accepted, before and after moves, of choices that moved."""
        choices = [choice for choice in self.generation.ledger.choices.values() if choice.moved]
        lines = (entry for choice in choices for entry in choice.lines.items() if entry[0].source == "draft")
        counts: Counter[str] = Counter()
        for moved, total in Totals((line.moved, tokens) for line, tokens in lines).items():
            when = "after" if moved else "before"
            counts[f"proposed_{when}_moves"] += total.proposed
            counts[f"accepted_{when}_moves"] += total.accepted
        return counts


class Answers:
    """Those of one ingress replica. Without `traces` no answer is kept for training."""

    def __init__(self, served: ServedModels, calls: VerifierCalls, traces: TraceRecorder | None) -> None:
        self._calls = calls
        self._traces = traces
        self._counts = IngressCounts()
        self.bundles = BundleChoice(served, self._counts)
        self._metrics = AnswerMetrics()
        self._under_vllm_names = AnswersUnderVllmNames(served.config.name)
        self._exports = Metrics("ingress", gauges=frozenset())
        self._history = AnswerHistory()
        self._samples = DraftSamples()

    @property
    def served(self) -> ServedModels:
        """The models of the bundle that serves all prompts, or all but a canary's."""
        return self.bundles.current.served

    @property
    def counts(self) -> Counter[str]:
        """Generations, the Serve calls made for them, sessions that went without a draft, and moves to other drafts."""
        return self._counts.events

    async def generate(
        self, requests: Sequence[GenerationRequest], speculation: Speculation
    ) -> AsyncGenerator[ChoiceRun, None]:
        """See `Service.generate`. If a verifier is lost, another one resumes the generation."""
        with self._calls.place() as place:
            answer = self._open(requests, speculation)
            try:
                async with aclosing(self._calls.runs(answer.generation, place, answer)) as runs:
                    async for run in runs:
                        if run.run.finish_reason is not None:
                            self._finish(answer, run.choice)
                        yield run
            except Exception:  # whatever it is: it goes on, and metrics tell it from a client that has left
                answer.failed = True
                raise
            finally:
                self._close(answer)

    def _open(self, requests: Sequence[GenerationRequest], speculation: Speculation) -> OpenAnswer:
        self.counts["generations"] += 1
        answer = OpenAnswer(requests, self.bundles.begin(speculation.task), speculation)
        self._metrics.begin(answer.generation.ledger, answer.bundle.served)
        return answer

    def _finish(self, answer: OpenAnswer, choice: int) -> None:
        """A choice has all its tokens."""
        self._metrics.observe(answer.generation.ledger, choice, answer.bundle.version)
        self._history.add(answer.generation.ledger.choices[choice], answer.routing, answer.bundle.version)
        self._samples.offer(answer.generation, choice, answer.bundle.served)
        if self._traces is not None:
            self._traces.record(answer.generation, choice, answer.bundle.served, answer.prior)

    def _close(self, answer: OpenAnswer) -> None:
        """The last token was sent, the client is gone, or the answer has failed."""
        self._metrics.end(answer.generation.ledger)
        self._under_vllm_names.end(answer.generation.ledger, answer.generation.requests, failed=answer.failed)
        self.counts.update(answer.around_moves())
        self.bundles.end(answer.bundle, answer.judged(), speculative=answer.drafts is not None)
        if answer.drafts is not None:
            answer.drafts.close()

    def report(self) -> IngressReport:
        """What `taskspec status` shows of this replica."""
        served, drafts = self.served, self._metrics.by_pool()
        return IngressReport(
            served.config.name,
            served.version,
            {served.pool(task): task for task in served.drafts},
            served.router,
            Counter({pool: counts.proposed for pool, counts in drafts.items()}),
            Counter({pool: counts.accepted for pool, counts in drafts.items()}),
            None if self._traces is None else self._traces.counts(),
        )

    def minutes(self) -> Minutes[Answered]:
        """What the answers of the last hour brought."""
        return self._history.minutes()

    @property
    def moves(self) -> Counter[tuple[str, str]]:
        """Moves so far, from the draft of one task to another's."""
        return Counter({(move.origin, move.destination): number for move, number in self._counts.moves.items()})

    def export(self) -> None:
        """Export what was counted; tell the rollout what was judged, and the check what to replay. Returns at once."""
        self.bundles.report()
        self._samples.hand_over()
        self._exports.export(self.counts)
        self._metrics.export(self._counts.moves)
        self._under_vllm_names.export(self._calls.num_waiting)
        if self._traces is not None:
            self._traces.export()

    def close(self) -> None:
        """Write the traces that wait; nothing may be generated afterwards."""
        if self._traces is not None:
            self._traces.close()
