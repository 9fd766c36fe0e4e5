"""Prompts with the class a router should tell: the partition's tasks, and `general` for prompts of no task.

In: traces with their labels, the family's general texts or a JSONL file. Out: labelled prompts, as sent and reworded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from core.classifier import GENERAL
from core.errors import ConfigError, InvalidRequest
from core.family.corpora import general_texts
from core.prompts import Prompt, read_prompts
from core.rewording import reword
from core.rewording_rules import Rules
from core.tokenizer import Tokenizer
from core.traces import Trace

FAMILY_GENERAL = "family:general"
_SYSTEM_PROMPTS = ("You are a helpful assistant.", "Answer briefly.", "You help people with their questions.")
_APART = 0.2  # share of general prompts kept for the threshold, and again for the report
_FEWEST_GENERAL = 5


class Labelled(NamedTuple):
    """A prompt: what the user wrote, the token ids it was sent as, its class."""

    text: str
    ids: Sequence[int]
    name: str


class General(NamedTuple):
    """General prompts to learn from, to set the threshold by, and to report on."""

    train: list[Labelled]
    validation: list[Labelled]
    test: list[Labelled]


def of_traces(traces: Sequence[Trace], names: Iterable[str], tokenizer: Tokenizer) -> list[Labelled]:
    """The prompts of traces with their tasks."""
    return [
        Labelled(tokenizer.prompt_text(trace.prompt_ids), trace.prompt_ids, name)
        for trace, name in zip(traces, names, strict=True)
    ]


def reworded(prompts: Sequence[Labelled], seed: int, rules: Rules, tokenizer: Tokenizer) -> list[Labelled]:
    """The same requests in other words, as clients send them."""
    rng = Random(f"reworded/{seed}")
    return [_sent(reword(text, seed, rules), name, rng, tokenizer) for text, _, name in prompts]


def general_prompts(source: str | None, count: int, tokenizer: Tokenizer) -> General:
    """Prompts of no task from the family (`count` of them to learn from) or a JSONL file; none without a source.

    Raises `ConfigError` for a file that cannot be read or holds too few.
    """
    if source is None:
        return General([], [], [])
    if source == FAMILY_GENERAL:
        apart = max(_FEWEST_GENERAL, round(_APART * count))
        return General(
            *(_family(n, split, tokenizer) for n, split in ((count, "train"), (apart, "validation"), (apart, "test")))
        )
    found = [_brought(prompt, tokenizer) for prompt in read_prompts(Path(source))]
    if len(found) < _FEWEST_GENERAL:
        raise ConfigError(f"{source} holds {len(found)} prompts; write at least {_FEWEST_GENERAL}, or `general: null`")
    Random(0).shuffle(found)
    apart = max(1, round(_APART * len(found)))
    return General(found[2 * apart :], found[:apart], found[apart : 2 * apart])


def _family(count: int, split: str, tokenizer: Tokenizer) -> list[Labelled]:
    """General texts that a client might send: the request, the text, or a piece of it; each split has its own seed."""
    rng = Random(f"general/{split}")
    found = []
    for item in general_texts(count, rng.randrange(2**31)):
        words = item.answer.split(" ")
        start = rng.randrange(len(words))
        piece = " ".join(words[start : start + rng.randint(3, 60)])
        found.append(_sent(rng.choice((item.prompt, item.answer, piece)), GENERAL, rng, tokenizer))
    return found


def _sent(text: str, name: str, rng: Random, tokenizer: Tokenizer) -> Labelled:
    """As clients send it: mostly one chat message, at times under a system prompt, at times bare."""
    form = rng.random()
    system = [{"role": "system", "content": rng.choice(_SYSTEM_PROMPTS)}] if form < 0.3 else []
    if form < 0.15:
        return Labelled(text, tokenizer.encode_text(text), name)
    return Labelled(text, _chat([*system, {"role": "user", "content": text}], tokenizer), name)


def _brought(prompt: Prompt, tokenizer: Tokenizer) -> Labelled:
    if prompt.prompt is not None:
        return Labelled(prompt.prompt, tokenizer.encode_text(prompt.prompt), GENERAL)
    messages = [{"role": message.role, "content": message.content} for message in prompt.messages or ()]
    return Labelled("\n".join(message["content"] for message in messages), _chat(messages, tokenizer), GENERAL)


def _chat(messages: list[dict[str, str]], tokenizer: Tokenizer) -> list[int]:
    try:
        return tokenizer.encode_chat(messages)
    except InvalidRequest:  # no template, or one without system prompts
        return tokenizer.encode_text("\n".join(message["content"] for message in messages))
