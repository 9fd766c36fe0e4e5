"""transformers' own generation on the very same models: plain, assisted by a draft, and by looking up in the prompt.

It speculates as its own defaults say, up to where it is no longer confident, but for the most tokens of a pass, which
are ours. Its assistants are our drafts, made by the function that trains them. One with a cut head knows all ids here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from core.distill.learner import draft_network
from core.family import DRAFT_DIR
from core.model.draft_vocabulary import DraftVocabulary
from core.model.loader import adapted_model, is_adapter, resolve
from tests.bench.engines import Answered
from tests.bench.machine import now
from tests.bench.rival_process import Answering, Job, RivalProcess

LOOKUP = "transformers prompt lookup"


@dataclass(frozen=True)
class Transformers:
    """The target in bfloat16 and drafts in `dtype`; `threads` are torch's, `length` the most tokens of a pass.

    The ways of a job are `LOOKUP` and the names of `drafts`, whose directories are as `assistant` takes them.
    """

    target: str
    drafts: Mapping[str, str | None]
    draft: str
    dtype: str
    length: int
    threads: int
    device: str = "cpu"

    def load(self) -> Answering:
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging

        logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # its assisted generation warns of itself
        torch.set_num_threads(self.threads)
        model: Any = AutoModelForCausalLM.from_pretrained(self.target, dtype=torch.bfloat16)
        model.eval().to(self.device)
        ways: dict[str | None, dict[str, Any]] = {None: {}, LOOKUP: {"prompt_lookup_num_tokens": self.length}}
        ways |= {name: {"assistant_model": self._helper(directory)} for name, directory in self.drafts.items()}
        return lambda job: _answer(model, job, ways[job.way])

    def _helper(self, directory: str | None) -> Any:
        helper = assistant(directory, self.draft, self.target, getattr(torch, self.dtype)).to(self.device)
        helper.generation_config.num_assistant_tokens = self.length
        return helper


def with_family_drafts(
    target: Path, drafts: Mapping[str, str | None], length: int, threads: int, device: str = "cpu"
) -> RivalProcess:
    """transformers with a target of the shipped family and its drafts, in the dtypes that ours have there."""
    dtype = "float32" if device == "cpu" else "bfloat16"
    return RivalProcess(Transformers(str(target), drafts, str(DRAFT_DIR), dtype, length, threads, device))


class WholeHead(nn.Module):
    """The cut head of a draft as transformers wants it: logits of all ids, -inf for those that the draft has not."""

    def __init__(self, head: nn.Module, vocabulary: DraftVocabulary) -> None:
        super().__init__()
        self.head = head
        self.size = vocabulary.target_size
        self.ids: torch.Tensor
        self.register_buffer("ids", torch.from_numpy(vocabulary.ids))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        known = self.head(hidden)
        logits = known.new_full((*known.shape[:-1], self.size), -torch.inf)
        whole: torch.Tensor = logits.index_copy_(-1, self.ids, known)
        return whole


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


def _answer(model: Any, job: Job, way: Mapping[str, Any]) -> Answered:
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
        output = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=job.max_tokens, **law, **way)
    finally:
        model.forward = model_forward
    tokens = tuple(output[0, len(job.tokens) :].tolist())
    return Answered(tokens, time.perf_counter() - began, first, passes - 1, 0, 0)
