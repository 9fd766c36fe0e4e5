"""Where prompts come from: generators, a file, or traces; each prompt put into its part once and for all.

Enters: the `collect` section. Leaves: traces by part, those not answered yet with no output.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Literal

import msgspec

from core.errors import ConfigError
from core.family import locate
from core.family.corpora import TASKS, items
from core.prompts import Message, Prompt, read_prompts
from core.sampling_params import SamplingParams
from core.tokenizer import Tokenizer, load_tokenizer
from core.traces import Trace, TraceStore
from train_jobs.collected import HELD_OUT, PARTS, Part
from train_jobs.config import Collect, RetrainConfig

Parts = dict[Part, list[Trace]]
_HASH_RANGE = 1 << 32


def gather(config: RetrainConfig, context: int) -> Parts:
    """Every prompt in its part. `context` is the target's; prompts that leave no room in it for an answer are dropped.

    Raises `ConfigError` where a file or directory has no prompts.
    """
    collect, tokenizer = config.collect, load_tokenizer(locate(config.target.model))
    parts: Parts = {part: [] for part in PARTS}
    for held_out, trace in _asked(collect, tokenizer, context):
        parts[_part(trace, held_out)].append(trace)
    if missing := [part for part in PARTS if not parts[part]]:
        raise ConfigError(f"collect: no prompts for {', '.join(missing)}; bring more prompts or a larger held-out part")
    return parts


def unanswered(prompts: Iterable[Prompt], collect: Collect, tokenizer: Tokenizer, context: int) -> Iterator[Trace]:
    """Prompts as the target's tokens, with the law their answers are to be drawn by, and no answer yet."""
    for number, prompt in enumerate(prompts):
        tokens = tuple(_ids(prompt, tokenizer))
        if 0 < len(tokens) < context:
            temperature = collect.temperatures[number % len(collect.temperatures)]
            room = min(collect.max_tokens, context - len(tokens))
            law = SamplingParams(seed=collect.seed + number, max_tokens=room, temperature=temperature)
            yield Trace(prompt_ids=tokens, output_ids=(), params=law, task=prompt.task)


def _asked(collect: Collect, tokenizer: Tokenizer, context: int) -> Iterator[tuple[bool, Trace]]:
    """Traces, and whether each is held out."""
    if collect.family is not None:
        for held_out in (False, True):
            prompts = _generated(collect, held_out=held_out)
            yield from ((held_out, trace) for trace in unanswered(prompts, collect, tokenizer, context))
        return
    traces = _kept(collect.traces) if collect.traces else unanswered(_read(collect), collect, tokenizer, context)
    for trace in traces:
        yield _share(trace, "held out") < collect.held_out_share, trace


def generated(tasks: Sequence[str], count: int, seed: int, split: Literal["train", "held_out"]) -> list[Prompt]:
    """The family's prompts, `count` of each of these tasks, in random order. Raises `ConfigError` for others."""
    if unknown := set(tasks) - set(TASKS):
        raise ConfigError(f"the family has no task {', '.join(sorted(unknown))}; write some of {', '.join(TASKS)}")
    drawn = [item for task in tasks for item in items(task, count, seed, split)]
    Random(f"{split}/{seed}").shuffle(drawn)
    return [Prompt(messages=(Message(role="user", content=item.prompt),), task=item.task) for item in drawn]


def _generated(collect: Collect, *, held_out: bool) -> list[Prompt]:
    tasks = collect.family_tasks or TASKS
    if held_out:
        return generated(tasks, collect.held_out, collect.seed, "held_out")
    return generated(tasks, collect.family or 0, collect.seed, "train")


def _read(collect: Collect) -> list[Prompt]:
    assert collect.file is not None
    return read_prompts(collect.file)


def _kept(directory: Path) -> Iterator[Trace]:
    if not directory.is_dir():
        raise ConfigError(f"collect.traces: {directory} is no directory; `taskspec traces import` makes one")
    yield from TraceStore(directory)


def _part(trace: Trace, held_out: bool) -> Part:
    """By the prompt alone, so that a prompt asked twice is never in two parts."""
    return HELD_OUT[int(_share(trace, "part") * len(HELD_OUT))] if held_out else "train"


def _share(trace: Trace, salt: str) -> float:
    """A number in [0, 1) that depends on the prompt and `salt`."""
    digest = hashlib.sha256(salt.encode() + msgspec.json.encode(trace.prompt_ids)).digest()
    return int.from_bytes(digest[:4], "big") / _HASH_RANGE


def _ids(prompt: Prompt, tokenizer: Tokenizer) -> list[int]:
    if prompt.prompt is not None:
        return tokenizer.encode_text(prompt.prompt)
    return tokenizer.encode_chat([msgspec.to_builtins(message) for message in prompt.messages or ()])
