"""The service keeps what it answered, except where the client says `store: false`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console

from core.model.causal_lm import load_draft_model
from core.model.config import ModelConfig
from core.model_names import locate
from core.replay.replay import Terms, score_draft, total
from core.text.vocabulary import same_id_map
from core.traces.store import Trace, TraceStore
from serve_app.audit.traces import Period
from serve_app.audit.work import work
from tests.eventually import eventually
from tests.service.conftest import Service, chat, prompts, token_ids

pytestmark = pytest.mark.cluster

SEED = 20_260_719  # of no other test here
PROMPT = "What is 17 + 25?"


def kept(service: Service, seed: int) -> list[Trace]:
    assert service.config.traces is not None
    found = [trace for trace in TraceStore(service.config.traces.directory) if trace.seed == seed]
    return sorted(found, key=lambda trace: trace.choice)


def test_what_was_recorded_is_the_targets_own(service: Service) -> None:
    """All that tests before this one have asked for, in whatever way. On the machine that answered nothing is near."""
    assert service.config.traces is not None
    directory, body = service.config.traces.directory, chat(PROMPT, n=2, max_tokens=30, seed=SEED + 9)
    service.answers([body, body | {"temperature": 0, "stop": ["4"]}])
    eventually(lambda: len(kept(service, SEED + 9)) == 4, "the answers are kept")
    outcome = work(service.config, directory, Period(3600.0, 400), Console(stderr=True))
    assert [answer.name for answer, verdict in outcome.judged if verdict.kind != "equal"] == []
    assert outcome.count("equal") >= 4
    assert {lack.reason for lack in outcome.recording.lacks} <= {"a grammar held it, which traces do not keep"}


def test_answers_become_traces_unless_the_client_does_not_want_it(service: Service) -> None:
    task = service.tasks[0]
    asked = chat(PROMPT, n=2, max_tokens=30) | {"speculation": {"task": task, "num_speculative_tokens": 4}}
    service.answer(asked | {"seed": SEED, "store": False})
    answer = service.answer(asked | {"seed": SEED + 1})
    eventually(lambda: len(kept(service, SEED + 1)) == 2, "both answers are kept")
    assert kept(service, SEED) == []
    traces = kept(service, SEED + 1)
    assert [list(trace.output_ids) for trace in traces] == token_ids(answer)
    assert {trace.prompt_length for trace in traces} == {answer["usage"]["prompt_tokens"]}
    usage = answer["usage"]["speculation"]
    for count in ("proposed", "accepted"):
        assert sum(getattr(trace, count) or 0 for trace in traces) == usage[count]
        by_source = [getattr(counts, count) for trace in traces for counts in (trace.sources or {}).values()]
        assert sum(by_source) == usage[count]
    for trace in traces:
        assert trace.prior is None  # the client named the task
        assert trace.bundle == service.served.version
        assert 0 < (trace.first_token_s or 0) <= (trace.total_s or 0)


def test_the_routers_prior_is_kept(service: Service) -> None:
    service.answer(chat(PROMPT, seed=SEED + 2, max_tokens=40, logit_bias={"2": -100}))
    eventually(lambda: len(kept(service, SEED + 2)) == 1, "the answer is kept")
    [trace] = kept(service, SEED + 2)
    assert trace.prior is not None
    assert sum(trace.prior.values()) == pytest.approx(1.0)


@pytest.mark.soak
def test_a_replay_predicts_what_the_service_measures_of_a_draft(service: Service) -> None:
    """Within a point, of a draft that proposes as many tokens for every pass, to one answer after the other.

    Under load proposals come late and are shorter, which no replay foresees.
    """
    task, length = service.tasks[0], 4
    asked = [
        chat(item.prompt, seed=SEED + 3, temperature=number % 2, max_tokens=80)
        | {"speculation": {"task": task, "num_speculative_tokens": length}}
        for number, item in enumerate(prompts(120, seed=9))
    ]
    for body in asked:
        service.answer(body)
    eventually(lambda: len(kept(service, SEED + 3)) == len(asked), "all answers are kept")
    traces, config = kept(service, SEED + 3), service.config
    measured = [trace.sources["draft"] for trace in traces if trace.sources and "draft" in trace.sources]
    target, base = Path(locate(config.target.model)), Path(locate(config.draft.model))
    draft = load_draft_model(service.served.drafts[task], base, dtype=torch.float32, target=target)
    terms = Terms(length, same_id_map(target, base), ModelConfig.load(target).context)
    replayed = total(score_draft(draft, traces, terms))
    assert replayed.proposed > 1000
    shares = [sum(one.accepted for one in measured) / sum(one.proposed for one in measured), replayed.acceptance_rate]
    sys.stdout.write(f"accepted in service and replayed: {shares}\n")
    assert shares[0] == pytest.approx(shares[1], abs=0.01)
