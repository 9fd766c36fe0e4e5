"""The sources of prompts (the family's generators, JSONL files, traces), and the split each prompt belongs to.

A trace without output is a prompt that the target still has to answer.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Literal

import msgspec

from core.errors import ConfigError, InvalidRequest, TooFewPrompts
from core.replay.promotion import prompts_needed
from core.sampling.params import SamplingParams
from core.text.chat_template import Rendering
from core.text.prompt_files import read_prompts
from core.text.prompts import Message, Prompt
from core.text.tokenizer import Tokenizer
from core.traces.store import Trace, TraceStore
from train_jobs.artefacts import HELD_OUT, SPLITS, Split
from train_jobs.config import CollectConfig, RetrainConfig
from train_jobs.family.corpora import TASKS, items
from train_jobs.models import target_tokenizer

TracesBySplit = dict[Split, list[Trace]]
_HASH_RANGE = 1 << 32
_LARGEST_SHARE = 0.4  # of all prompts is held out; the others are learned from


def gather(config: RetrainConfig, context: int) -> TracesBySplit:
    """All prompts by split. `context` is the target's; a prompt that leaves no room in it for an answer is dropped.

    Raises `TooFewPrompts` if a split gets none.
    """
    splits: TracesBySplit = {split: [] for split in SPLITS}
    for held_out, trace in _traces(config, target_tokenizer(config), context):
        split = _split(trace, held_out)
        splits[split] += _answers_wanted(trace, config.collect) if split == "train" else [trace]
    if missing := [split for split in SPLITS if not splits[split]]:
        raise TooFewPrompts(
            f"collect: no prompts for {', '.join(missing)}; bring more prompts or a larger held-out share"
        )
    return splits


def unanswered(
    prompts: Iterable[Prompt], collect: CollectConfig, tokenizer: Tokenizer, context: int
) -> Iterator[Trace]:
    """Prompts as token ids of the target, with the sampling parameters of their answers, and no answer yet."""
    for number, prompt in enumerate(prompts):
        tokens = tuple(_ids(prompt, tokenizer))
        if 0 < len(tokens) < context:
            temperature = collect.temperatures[number % len(collect.temperatures)]
            room = min(collect.max_tokens, context - len(tokens))
            params = SamplingParams(seed=collect.seed + number, max_tokens=room, temperature=temperature)
            yield Trace(prompt_ids=tokens, output_ids=(), params=params, task=prompt.task)


def _traces(config: RetrainConfig, tokenizer: Tokenizer, context: int) -> Iterator[tuple[bool, Trace]]:
    """Pairs of (held out, trace)."""
    collect = config.collect
    if collect.family is not None:
        for held_out in (False, True):
            prompts = _generated(collect, held_out=held_out)
            yield from ((held_out, trace) for trace in unanswered(prompts, collect, tokenizer, context))
        return
    traces = list(_kept(collect) if collect.traces else unanswered(_read(collect), collect, tokenizer, context))
    share = collect.held_out_share or _sufficient_share(config, len(traces))
    yield from ((_share(trace, "held out") < share, trace) for trace in traces)


def held_out_per_task(effect: float) -> int:
    """Held-out prompts of a task, so that the prompts which decide can show this gain in acceptance."""
    return len(HELD_OUT) * prompts_needed(effect)


def _sufficient_share(config: RetrainConfig, prompts: int) -> float:
    """The share of prompts to hold out, so that there are enough of every task; never more than `_LARGEST_SHARE`."""
    tasks = config.partition.k or config.partition.max_k
    return min(_LARGEST_SHARE, tasks * held_out_per_task(config.collect.effect) / max(1, prompts))


def generated(tasks: Sequence[str], count: int, seed: int, split: Literal["train", "held_out"]) -> list[Prompt]:
    """`count` prompts of each of these tasks of the family, shuffled. Raises `ConfigError` for an unknown task."""
    if unknown := set(tasks) - set(TASKS):
        raise ConfigError(f"the family has no task {', '.join(sorted(unknown))}; write some of {', '.join(TASKS)}")
    drawn = [item for task in tasks for item in items(task, count, seed, split)]
    Random(f"{split}/{seed}").shuffle(drawn)
    return [Prompt(messages=(Message(role="user", content=item.prompt),), task=item.task) for item in drawn]


def _generated(collect: CollectConfig, *, held_out: bool) -> list[Prompt]:
    tasks = collect.family_tasks or TASKS
    if held_out:
        count = collect.held_out or held_out_per_task(collect.effect)
        return generated(tasks, count, collect.seed, "held_out")
    return generated(tasks, collect.family or 0, collect.seed, "train")


def _read(collect: CollectConfig) -> list[Prompt]:
    return [prompt for file in collect.files or () for prompt in read_prompts(file)[: collect.most]]


def _answers_wanted(trace: Trace, collect: CollectConfig) -> list[Trace]:
    """One trace per answer that is learned from: a new answer may be wanted at every temperature."""
    if trace.output_ids or not collect.every_temperature:
        return [trace]
    params = (msgspec.structs.replace(trace.params, temperature=one) for one in collect.temperatures)
    return [msgspec.structs.replace(trace, params=one) for one in params]


def _kept(collect: CollectConfig) -> Iterable[Trace]:
    """The traces in the directory, or the last of them, the oldest first."""
    directory, most = collect.traces, collect.most
    assert directory is not None
    if not directory.is_dir():
        raise ConfigError(f"collect.traces: {directory} is not a directory; `taskspec traces import` makes one")
    store = TraceStore(directory)
    if most is None:
        return store
    last = deque[Trace]()
    for shard in reversed(store.shards()):
        if len(last) >= most:
            break
        last.extendleft(reversed(store.read(shard)))
    return list(last)[-most:]


def _split(trace: Trace, held_out: bool) -> Split:
    """Depends on the prompt alone, so that a repeated prompt is never in two splits."""
    return HELD_OUT[int(_share(trace, "part") * len(HELD_OUT))] if held_out else "train"


def _share(trace: Trace, salt: str) -> float:
    """A number in [0, 1), a hash of the prompt and `salt`."""
    digest = hashlib.sha256(salt.encode() + msgspec.json.encode(trace.prompt_ids)).digest()
    return int.from_bytes(digest[:4], "big") / _HASH_RANGE


def _ids(prompt: Prompt, tokenizer: Tokenizer) -> list[int]:
    if prompt.prompt is not None:
        return tokenizer.encode_text(prompt.prompt)
    try:
        return tokenizer.encode_chat(prompt.template_messages, Rendering(tools=prompt.tool_objects))
    except InvalidRequest as error:
        raise ConfigError(f"{prompt.origin}: {error}") from error
