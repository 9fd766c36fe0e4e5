"""transformers' own generation on the very same models, in a process of its own: plain, and assisted by a draft.

It speculates as its own defaults say, up to where it is no longer confident, but for the most tokens of a pass, which
are ours.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from core.family import DRAFT_DIR
from core.model.loader import adapted_model, is_adapter
from tests.bench.clock import now
from tests.bench.engines import Answered

_DEFAULTS = {"GOMP_SPINCOUNT": "300000"}  # libgomp's own, and not what our target is started with


class Job(NamedTuple):
    """A prompt to continue; `draft` is the assistant's label, None for none."""

    tokens: tuple[int, ...]
    max_tokens: int
    temperature: float
    seed: int
    draft: str | None


class HuggingFace:
    """A context manager; `threads` are torch's."""

    def __init__(
        self, target: Path, drafts: Mapping[str, str | None], length: int, threads: int, device: str = "cpu"
    ) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(
            target=_serve, args=(theirs, target, dict(drafts), length, threads, device), daemon=True
        )
        with _environment(_DEFAULTS):
            self._process.start()
        theirs.close()
        self._pipe.recv()

    def __enter__(self) -> HuggingFace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pipe.close()
        self._process.join()

    def answer(self, job: Job) -> Answered:
        self._pipe.send(job)
        answered: Answered = self._pipe.recv()
        return answered


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """For what is started in it."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]
        os.environ.update(before)


def _serve(
    pipe: Connection, target: Path, drafts: Mapping[str, str | None], length: int, threads: int, device: str
) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.bfloat16).eval().to(device)

    def assistant(directory: str | None) -> Any:
        whole = directory is not None and not is_adapter(directory)
        dtype = torch.float32 if device == "cpu" else torch.bfloat16
        base = AutoModelForCausalLM.from_pretrained(adapted_model(directory, str(DRAFT_DIR)), dtype=dtype)
        if directory is not None and not whole:
            # an adapted lm_head must not be merged into the embedding that it is tied to
            base.lm_head.weight = torch.nn.Parameter(base.lm_head.weight.detach().clone())
            base.config.tie_word_embeddings = False
            base = PeftModel.from_pretrained(base, directory).merge_and_unload()
        base.generation_config.num_assistant_tokens = length
        return base.eval().to(device)

    assistants = {label: assistant(directory) for label, directory in drafts.items()}
    pipe.send(None)
    try:
        while True:
            job: Job = pipe.recv()
            pipe.send(_answer(model, None if job.draft is None else assistants[job.draft], job))
    except EOFError:
        return


def _answer(model: Any, assistant: Any, job: Job) -> Answered:
    import torch

    torch.manual_seed(job.seed)
    ids = torch.tensor([job.tokens], device=model.device)
    law: dict[str, Any] = {"do_sample": False}
    if job.temperature:
        law = {"do_sample": True, "temperature": job.temperature, "top_k": 0}
    passes, first = 0, 0.0
    model_forward = model.forward

    def timed(*args: Any, **kwargs: Any) -> Any:
        nonlocal passes, first
        output = model_forward(*args, **kwargs)
        passes += 1
        if passes == 1:  # a GPU may be given the next before it is done; only this one is waited for
            first = now(model.device) - began
        return output

    model.forward = timed
    began = time.perf_counter()
    try:
        output = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=job.max_tokens,
            assistant_model=assistant,
            **law,
        )
    finally:
        model.forward = model_forward
    tokens = tuple(output[0, len(job.tokens) :].tolist())
    return Answered(tokens, time.perf_counter() - began, first, passes - 1, 0, 0)
