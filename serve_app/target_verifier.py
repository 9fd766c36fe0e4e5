"""The deployment around `core.verifier.Verifier`: generations in over Serve, runs out as a stream.

One Serve call per prompt, open for as long as the generation lasts; a cancelled call frees its sessions at once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import Future
from functools import partial

import msgspec
import ray

from core.family import locate
from core.generation import GenerationRequest, Run
from core.messages import Address
from core.model.causal_lm import CausalLM
from core.tokenizer import load_tokenizer
from core.verifier import Opened, Verifier
from core.verify_engine import VerifyConfig
from serve_app.config import ServiceConfig, Target, pool_of
from serve_app.loading import load_target
from serve_app.metrics import Metrics


class Started(msgspec.Struct, frozen=True):
    """First item of a generation: what a draft needs to join it.

    `sessions` holds one number per choice, `window` is the most tokens a proposal may carry, `unwanted` are the pools
    whose drafts do not pay; where it is `crowded` none do. `scout` is the session that should have one all the same.
    """

    sessions: tuple[int, ...]
    verifier: Address
    window: int
    unwanted: frozenset[str] = frozenset()
    crowded: bool = False
    scout: int | None = None

    def spares(self, session: int, pool: str | None = None) -> bool:
        """Whether a session goes without the pool's drafts, or without any whatever the pool."""
        return session != self.scout and (self.crowded or pool in self.unwanted)


class TargetVerifier:
    """A target replica: engine, thread and wire live here; the event loop only passes runs on."""

    def __init__(self, config: ServiceConfig) -> None:
        target = config.target
        limits = VerifyConfig(
            max_sessions=target.max_sessions,
            num_speculative_tokens=config.draft.num_speculative_tokens,
            prefill_chunk=target.prefill_chunk,
        )
        self._window = limits.window
        self._metrics = Metrics("verifier")
        tokenizer = load_tokenizer(locate(target.model))
        host = ray.util.get_node_ip_address()
        self._verifier = Verifier(partial(self._model, target), tokenizer, limits, host)
        self._verifier.start()

    def _model(self, target: Target) -> CausalLM:
        return load_target(target)

    async def generate(self, choices: list[GenerationRequest]) -> AsyncIterator[Started | tuple[int, Run]]:
        """First `Started`, then (choice, run) as passes commit them, until every choice has finished."""
        loop = asyncio.get_running_loop()
        runs: asyncio.Queue[tuple[int, Run | BaseException]] = asyncio.Queue()
        opening = self._verifier.open(
            choices, lambda choice, run: loop.call_soon_threadsafe(runs.put_nowait, (choice, run))
        )
        try:
            opened: Opened = await asyncio.wrap_future(opening)
            yield self._started(opened)
            unfinished = len(choices)
            while unfinished:
                choice, run = await runs.get()
                if isinstance(run, BaseException):
                    raise run
                unfinished -= run.finish_reason is not None
                yield choice, run
        finally:
            opening.add_done_callback(self._close)

    def _started(self, opened: Opened) -> Started:
        sessions, unwanted = tuple(opened.sessions), unwanted_pools(opened.wanted)
        return Started(sessions, self._verifier.address, self._window, unwanted, opened.crowded, opened.scout)

    def _close(self, opening: Future[Opened]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            self._verifier.close(opening.result().sessions)

    async def counts(self) -> Counter[str]:
        """What engine and wire have counted, and the sessions open now."""
        return await asyncio.wrap_future(self._verifier.counts())

    async def check_health(self) -> None:
        """Serve restarts the replica when this raises, or takes too long because the engine hangs."""
        self._metrics.tell(await self.counts())


def unwanted_pools(wanted: Mapping[str, bool]) -> frozenset[str]:
    """The pools whose drafts do not pay; of one that has served several, the last asked decides."""
    pools = {pool_of(label): pays for label, pays in wanted.items()}
    return frozenset(pool for pool, pays in pools.items() if not pays)
