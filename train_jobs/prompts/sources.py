"""The sources of prompts (JSONL files, traces), and the split that each prompt belongs to.

A prompt of a file still has to be answered; a trace comes with its answer.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from core.errors import ConfigError, InvalidRequest, TooFewPrompts
from core.generation import GenerationRequest
from core.replay.promotion import prompts_needed
from core.sampling.params import SamplingParams
from core.text.chat_template import Rendering
from core.text.prompt_files import read_prompts
from core.text.prompts import Prompt
from core.text.tokenizer import Tokenizer
from core.traces.store import Trace, TraceStore
from train_jobs.config import CollectConfig, RetrainConfig
from train_jobs.work.artefacts import HELD_OUT, SPLITS, Split
from train_jobs.work.models import target_tokenizer

_HASH_RANGE = 1 << 32
_LARGEST_SHARE = 0.4  # of all prompts is held out; the others are learned from


class UnansweredPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt as token ids of the target, with the sampling parameters of its answer, and its label if it has one."""

    prompt_ids: tuple[int, ...]
    params: SamplingParams
    task: str | None = None

    def request(self) -> GenerationRequest:
        return GenerationRequest(tokens=self.prompt_ids, prompt_length=len(self.prompt_ids), params=self.params)

    def answered(self, output_ids: tuple[int, ...]) -> Trace:
        return Trace(prompt_ids=self.prompt_ids, output_ids=output_ids, params=self.params, task=self.task)


Prompts = Sequence[UnansweredPrompt] | Sequence[Trace]  # of one source, so all have an answer or none has


def gather(config: RetrainConfig, context: int) -> dict[Split, Prompts]:
    """All prompts by split. `context` is the target's; a prompt that leaves no room in it for an answer is dropped.

    Raises `TooFewPrompts` if a split gets none.
    """
    collect = config.collect
    if collect.traces is not None:
        splits = _by_split(_recorded(collect), config)
    else:
        prompts = list(unanswered(_read(collect), collect, target_tokenizer(config), context))
        splits = _by_split(prompts, config)
        splits["train"] = [answer for prompt in splits["train"] for answer in _answers(prompt, collect)]
    if missing := [split for split in SPLITS if not splits[split]]:
        raise TooFewPrompts(
            f"collect: no prompts for {', '.join(missing)}; bring more prompts or a larger held-out share"
        )
    return splits


def unanswered(
    prompts: Iterable[Prompt], collect: CollectConfig, tokenizer: Tokenizer, context: int
) -> Iterator[UnansweredPrompt]:
    """The prompts that leave room for an answer in the target's `context`; their temperatures take turns."""
    for number, prompt in enumerate(prompts):
        tokens = tuple(_ids(prompt, tokenizer))
        if 0 < len(tokens) < context:
            temperature = collect.temperatures[number % len(collect.temperatures)]
            room = min(collect.max_tokens, context - len(tokens))
            params = SamplingParams(seed=collect.seed + number, max_tokens=room, temperature=temperature)
            yield UnansweredPrompt(prompt_ids=tokens, params=params, task=prompt.task)


def held_out_per_task(effect: float) -> int:
    """Held-out prompts of a task, so that the prompts which decide can show this gain in tokens a second."""
    return len(HELD_OUT) * prompts_needed(effect)


def _by_split(prompts: Prompts, config: RetrainConfig) -> dict[Split, Any]:
    splits: dict[Split, Any] = {split: [] for split in SPLITS}
    share = config.collect.held_out_share or _sufficient_share(config, len(prompts))
    for prompt in prompts:
        splits[_split(prompt.prompt_ids, share)].append(prompt)
    return splits


def _sufficient_share(config: RetrainConfig, prompts: int) -> float:
    """The share of prompts to hold out, so that there are enough of every task; never more than `_LARGEST_SHARE`."""
    tasks = config.partition.k or config.partition.max_k
    return min(_LARGEST_SHARE, tasks * held_out_per_task(config.collect.effect) / max(1, prompts))


def _read(collect: CollectConfig) -> list[Prompt]:
    return [prompt for file in collect.files or () for prompt in read_prompts(file)[: collect.most]]


def _answers(prompt: UnansweredPrompt, collect: CollectConfig) -> list[UnansweredPrompt]:
    """One per answer that is learned from: one may be wanted at every temperature."""
    if not collect.every_temperature:
        return [prompt]
    params = (msgspec.structs.replace(prompt.params, temperature=temperature) for temperature in collect.temperatures)
    return [msgspec.structs.replace(prompt, params=own) for own in params]


def _recorded(collect: CollectConfig) -> list[Trace]:
    """The traces in the directory, or the last of them, the oldest first. Those without output teach nothing."""
    directory, limit = collect.traces, collect.most
    assert directory is not None
    if not directory.is_dir():
        raise ConfigError(f"collect.traces: {directory} is not a directory; `taskspec traces import` makes one")
    store, last = TraceStore(directory), deque[Trace]()
    for shard in reversed(store.shards()):
        if limit is not None and len(last) >= limit:
            break
        last.extendleft(trace for trace in reversed(store.read(shard)) if trace.output_ids)
    return list(last)[-limit:] if limit is not None else list(last)


def _split(prompt_ids: tuple[int, ...], held_out_share: float) -> Split:
    """Depends on the prompt alone, so that a repeated prompt is never in two splits."""
    if _share(prompt_ids, "held out") >= held_out_share:
        return "train"
    return HELD_OUT[int(_share(prompt_ids, "part") * len(HELD_OUT))]


def _share(prompt_ids: tuple[int, ...], salt: str) -> float:
    """A number in [0, 1), a hash of the prompt and `salt`."""
    digest = hashlib.sha256(salt.encode() + msgspec.json.encode(prompt_ids)).digest()
    return int.from_bytes(digest[:4], "big") / _HASH_RANGE


def _ids(prompt: Prompt, tokenizer: Tokenizer) -> list[int]:
    if prompt.prompt is not None:
        return tokenizer.encode_text(prompt.prompt)
    try:
        return tokenizer.encode_chat(prompt.template_messages, Rendering(tools=prompt.tool_objects))
    except InvalidRequest as error:
        raise ConfigError(f"{prompt.origin}: {error}") from error
