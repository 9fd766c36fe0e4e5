"""What a drafted token costs beside a bare loop of the draft's layers: one session, the shipped draft, one thread.

Three take turns: the draft engine, from a verdict received to the proposal that answers it; the model's call in which
that is drawn; and its layers and head over one row after another, where nothing is chosen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numba import njit

from core.draft_engine import DraftConfig, DraftEngine
from core.guess import Ending
from core.messages import Address, Commit, OpenSession
from core.model import kernels
from core.model.base import Rows
from core.model.causal_lm import CausalLM
from core.model.compiled_decoder import CompiledDecoder
from core.model.compiling import Array, Integers
from core.sampling_params import SamplingParams
from tests.bench.engines import ShippedDraft
from tests.bench.paired import Durations, rotated

TOKENS = 6  # of a proposal
CACHED = 128
ENGINE, DRAW, LAYERS = "the engine, verdict to proposal", "the model's draw", "a bare loop of its layers"
PEER = b"verifier"


def measure(turns: int) -> Durations:
    """Seconds of a token; items are turns."""
    contenders = {ENGINE: _engine(), DRAW: _draw(), LAYERS: _layers()}
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
    for name in (LAYERS, DRAW, ENGINE):
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


def _draw() -> Callable[[], float]:
    model = _loaded()
    model.open(0)
    model.forward([Rows(0, range(5, 5 + CACHED + TOKENS), 0)])

    def once() -> float:
        began = time.perf_counter()
        model.draw([Rows(0, [9], 1)], TOKENS, model.vocab_size, None, Ending.never(1))
        seconds = time.perf_counter() - began
        model.rollback(0, CACHED + TOKENS)
        return seconds

    return once


def _layers() -> Callable[[], float]:
    model = _loaded()
    decoder = model._decoder
    if not isinstance(decoder, CompiledDecoder):
        raise SystemExit("drafts here are computed by torch, beside which no bare loop is known")
    pages = np.arange(decoder._cache[0].shape[2])[None]
    logits = np.empty((1, model.vocab_size), np.float32)
    first, token, row = np.array([CACHED + TOKENS]), np.array([9]), np.array([0])

    def once() -> float:
        began = time.perf_counter()
        _loop(TOKENS, token, first, pages, row, decoder._cache, decoder._model, logits)
        return time.perf_counter() - began

    return once


@njit(error_model="numpy", nogil=True)
def _loop(
    steps: int,
    tokens: Integers,
    positions: Integers,
    pages: Integers,
    wanted: Integers,
    cache: kernels.Cache,
    model: kernels.Model,
    logits: Array,
) -> None:
    for step in range(steps):
        kernels.forward(tokens, positions + step, pages, wanted, cache, model, None, logits)


def _loaded() -> CausalLM:
    torch.set_num_threads(1)
    model = ShippedDraft(None).load()
    assert isinstance(model, CausalLM)
    return model


def _opened() -> OpenSession:
    return OpenSession(
        session=1,
        seat=0,
        verifier=Address("", ""),
        tokens=tuple(range(5, 5 + CACHED)),
        prompt_length=CACHED,
        params=SamplingParams(seed=0, max_tokens=1024, temperature=0.0),
        choice=0,
        num_speculative_tokens=TOKENS,
    )
