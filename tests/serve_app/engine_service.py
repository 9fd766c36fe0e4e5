"""A service over a real target in this process: its engine, grammars and numerics, without Ray and without drafts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager

import torch

from core.generation import GenerationRequest, Run
from core.model.causal_lm import load_model
from core.model_names import locate
from core.text.tokenizer import load_tokenizer
from core.verify.engine import VerifyConfig
from core.verify.verifier import Verifier
from serve_app.http.service import ChoiceRun, Speculation
from tests.serve_app.scripted import ScriptedService


class EngineService(ScriptedService):
    """Answers with a target of its own. What is looked up, and what a grammar forces, is proposed."""

    def __init__(self, verifier: Verifier, model: str, tool_format: str) -> None:
        super().__init__()
        self.tokenizer = load_tokenizer(locate(model), tool_format)
        self.vocab_size = self.tokenizer.num_valid
        self._verifier = verifier

    async def generate(
        self, requests: list[GenerationRequest], speculation: Speculation
    ) -> AsyncGenerator[ChoiceRun, None]:
        self.asked += requests
        loop, arrived = asyncio.get_running_loop(), asyncio.Queue[tuple[int, Run | BaseException]]()
        opened = await asyncio.wrap_future(
            self._verifier.open(
                requests, lambda choice, run: loop.call_soon_threadsafe(arrived.put_nowait, (choice, run))
            )
        )
        unfinished = len(requests)
        try:
            while unfinished:
                choice, run = await asyncio.wait_for(arrived.get(), 120)
                if isinstance(run, BaseException):
                    raise run
                unfinished -= run.finish_reason is not None
                yield ChoiceRun(requests[choice].choice, run, speculation.task or "general")
        finally:
            self._verifier.close(opened.sessions)


@contextmanager
def engine_service(model: str, tool_format: str, context: int = 1024) -> Iterator[EngineService]:
    """A service whose target is `model`, for as long as the block lasts."""
    tokenizer = load_tokenizer(locate(model), tool_format)
    verifier = Verifier(
        lambda: load_model(locate(model), dtype=torch.float32, num_pages=256), tokenizer, VerifyConfig()
    )
    verifier.start()
    try:
        service = EngineService(verifier, model, tool_format)
        service.context = context
        yield service
    finally:
        verifier.stop()
