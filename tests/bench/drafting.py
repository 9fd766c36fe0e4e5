"""What a drafted token costs beside a bare loop of the draft's layers: one session, the shipped draft, one thread.

They take turns: the draft engine, from a verdict received to the proposal that answers it; the model's call in which
that is drawn, with the whole head and cut to a half and a quarter of the ids; and its layers and head over one row
after another, where nothing is chosen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from ctypes import byref

import numpy as np
import torch

from core.draft.engine import DraftConfig, DraftEngine
from core.family import DRAFT_DIR
from core.model.base import Rows
from core.model.causal_lm import CausalLM, load_model
from core.model.config import ModelConfig
from core.model.cpu.decoder import pass_of
from core.model.draft_tokens import StopRule
from core.model.draft_vocabulary import DraftVocabulary
from core.model.pages import Span
from core.model.tensor_views import TensorDecoder
from core.sampling.params import SamplingParams
from core.wire.messages import Address, Commit, OpenSession
from tests.bench.paired import Durations, rotated

TOKENS = 6  # of a proposal
CACHED = 128
ENGINE, DRAW, LAYERS = "the engine, verdict to proposal", "the model's draw", "a bare loop of its layers"
HALF, QUARTER = "the draw, half the head", "the draw, a quarter of the head"
PEER = b"verifier"


def measure(turns: int) -> Durations:
    """Seconds of a token; items are turns."""
    contenders = {ENGINE: _engine(), DRAW: _draw(), HALF: _draw(2), QUARTER: _draw(4), LAYERS: _layers()}
    durations = Durations()
    for turn in range(-turns // 4, turns):  # memory is laid out and code read in the first
        for name in rotated(list(contenders), turn):
            seconds = contenders[name]()
            if turn >= 0:
                durations.add(name, turn, seconds, TOKENS)
    return durations


def table(durations: Durations) -> str:
    """Markdown."""
    lines = ["| of a drafted token, us | median (quartiles) | times the bare loop (95 %) |", "|---|---|---|"]
    for name in (LAYERS, QUARTER, HALF, DRAW, ENGINE):
        median, low, high = (1e6 * seconds for seconds in durations.quartiles(name))
        lines.append(f"| {name} | {median:.1f} ({low:.1f} to {high:.1f}) | {durations.ratio(LAYERS, name)} |")
    return "\n".join(lines)


def as_json(durations: Durations) -> dict[str, object]:
    return {
        name: {"seconds": durations.quartiles(name), "times_bare": durations.ratio(LAYERS, name)._asdict()}
        for name in durations.contenders
    }


def _engine() -> Callable[[], float]:
    model = _loaded()
    engine = DraftEngine(model, model.vocab_size, DraftConfig(), time.monotonic)
    opened = _opened()

    def propose() -> Sequence[int]:
        """All of it: what is not complete was said only because this process had to wait."""
        while True:
            for _, proposal in engine.outgoing():
                if len(proposal.tokens) == TOKENS:
                    return proposal.tokens
            engine.step()

    def once() -> float:
        engine.open(opened, PEER)
        verdict = Commit(opened.session, CACHED, tuple(propose()))  # all of it is right
        began = time.perf_counter()
        engine.receive(PEER, verdict)
        propose()
        seconds = time.perf_counter() - began
        engine.close(opened.session)
        return seconds

    return once


def _draw(part: int = 1) -> Callable[[], float]:
    """The draw with one of `part` ids."""
    model = _loaded(part)
    head_ids = model.head_ids
    num_ids = model.vocab_size if head_ids is None else len(head_ids)
    model.open(0)
    model.forward([Rows(0, range(5, 5 + CACHED + TOKENS), 0)])

    def once() -> float:
        began = time.perf_counter()
        model.draw([Rows(0, [9], 1)], TOKENS, num_ids, None, StopRule.never(1))
        seconds = time.perf_counter() - began
        model.rollback(0, CACHED + TOKENS)
        return seconds

    return once


def _layers() -> Callable[[], float]:
    model = _loaded()
    if not isinstance(model._decoder, TensorDecoder):
        raise SystemExit("drafts here are computed by torch, beside which no bare loop is known")
    decoder = model._decoder.compiled
    logits, pages = np.empty((1, model.vocab_size), np.float32), range(model.num_free_pages)
    rows = [Span(0, CACHED + TOKENS + step, 1, pages) for step in range(TOKENS)]
    passes = [byref(pass_of([9], [row], [0], logits)) for row in rows]

    def once() -> float:
        began = time.perf_counter()
        for one in passes:
            decoder.kernels.forward(byref(decoder.model), one)
        return time.perf_counter() - began

    return once


def _loaded(part: int = 1) -> CausalLM:
    torch.set_num_threads(1)
    size = ModelConfig.load(DRAFT_DIR).vocab_size
    vocabulary = None if part == 1 else DraftVocabulary.from_ids(range(0, size, part), size)
    return load_model(DRAFT_DIR, dtype=torch.float32, num_pages=512, vocabulary=vocabulary)


def _opened() -> OpenSession:
    return OpenSession(
        session=1,
        epoch=0,
        verifier=Address("", ""),
        tokens=tuple(range(5, 5 + CACHED)),
        prompt_length=CACHED,
        params=SamplingParams(seed=0, max_tokens=1024, temperature=0.0),
        choice=0,
        num_speculative_tokens=TOKENS,
    )
