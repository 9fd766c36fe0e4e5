"""The router's training and test prompts: those of the tasks, those of no task (`general`), and reworded ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from core.distill.traces import Trace
from core.draft_key import GENERAL
from core.errors import ConfigError, InvalidRequest
from core.tasks.rewording import reword
from core.tasks.rewording_rules import Rules
from core.text.chat_template import Rendering
from core.text.prompt_files import read_prompts
from core.text.prompts import Prompt
from core.text.tokenizer import Tokenizer
from train_jobs.family.corpora import general_texts

FAMILY_GENERAL = "family:general"
_SYSTEM_PROMPTS = ("You are a helpful assistant.", "Answer briefly.", "You help people with their questions.")
_ORDINARY = Rendering()
_APART = 0.2  # share of general prompts kept for the threshold, and again for the report
_FEWEST_GENERAL = 5


class LabelledPrompt(NamedTuple):
    """A prompt as the user's text and as the token ids sent, with its task or `general`."""

    text: str
    ids: Sequence[int]
    task: str


class GeneralPrompts(NamedTuple):
    """Prompts of no task: for training, for the threshold, and for the report."""

    train: list[LabelledPrompt]
    validation: list[LabelledPrompt]
    test: list[LabelledPrompt]


def of_traces(traces: Sequence[Trace], tasks: Iterable[str], tokenizer: Tokenizer) -> list[LabelledPrompt]:
    """Prompts of traces, with these tasks."""
    return [
        LabelledPrompt(tokenizer.prompt_text(trace.prompt_ids), trace.prompt_ids, task)
        for trace, task in zip(traces, tasks, strict=True)
    ]


def reworded(prompts: Sequence[LabelledPrompt], seed: int, rules: Rules, tokenizer: Tokenizer) -> list[LabelledPrompt]:
    """The same requests in other words, in the forms that clients send."""
    rng = Random(f"reworded/{seed}")
    return [_sent(reword(text, seed, rules), task, rng, tokenizer) for text, _, task in prompts]


def general_prompts(source: str | None, count: int, tokenizer: Tokenizer) -> GeneralPrompts:
    """Prompts of no task from the family (`count` for training) or a JSONL file; none without a source.

    Raises `ConfigError` for a file that cannot be read or holds too few prompts.
    """
    if source is None:
        return GeneralPrompts([], [], [])
    if source == FAMILY_GENERAL:
        apart = max(_FEWEST_GENERAL, round(_APART * count))
        return GeneralPrompts(
            *(_family(n, split, tokenizer) for n, split in ((count, "train"), (apart, "validation"), (apart, "test")))
        )
    found = [_of_file(prompt, tokenizer) for prompt in read_prompts(Path(source))]
    if len(found) < _FEWEST_GENERAL:
        raise ConfigError(f"{source} holds {len(found)} prompts; write at least {_FEWEST_GENERAL}, or `general: null`")
    Random(0).shuffle(found)
    apart = max(1, round(_APART * len(found)))
    return GeneralPrompts(found[2 * apart :], found[:apart], found[apart : 2 * apart])


def _family(count: int, split: str, tokenizer: Tokenizer) -> list[LabelledPrompt]:
    """General texts as prompts: the request, the text, or a piece of it. Each split has its own seed."""
    rng = Random(f"general/{split}")
    found = []
    for item in general_texts(count, rng.randrange(2**31)):
        words = item.answer.split(" ")
        start = rng.randrange(len(words))
        piece = " ".join(words[start : start + rng.randint(3, 60)])
        found.append(_sent(rng.choice((item.prompt, item.answer, piece)), GENERAL, rng, tokenizer))
    return found


def _sent(text: str, task: str, rng: Random, tokenizer: Tokenizer) -> LabelledPrompt:
    """A prompt in one of the forms that clients send: mostly one chat message, some with a system prompt, some bare."""
    form = rng.random()
    system = [{"role": "system", "content": rng.choice(_SYSTEM_PROMPTS)}] if form < 0.3 else []
    if form < 0.15:
        return LabelledPrompt(text, tokenizer.encode_text(text), task)
    return LabelledPrompt(text, _chat([*system, {"role": "user", "content": text}], tokenizer), task)


def _of_file(prompt: Prompt, tokenizer: Tokenizer) -> LabelledPrompt:
    if prompt.prompt is not None:
        return LabelledPrompt(prompt.prompt, tokenizer.encode_text(prompt.prompt), GENERAL)
    messages, rendering = prompt.template_messages, Rendering(tools=prompt.tool_objects)
    text = "\n".join(message["content"] for message in messages)
    return LabelledPrompt(text, _chat(messages, tokenizer, rendering), GENERAL)


def _chat(messages: list[dict[str, Any]], tokenizer: Tokenizer, rendering: Rendering = _ORDINARY) -> list[int]:
    try:
        return tokenizer.encode_chat(messages, rendering)
    except InvalidRequest:  # no template, or one without system prompts
        return tokenizer.encode_text("\n".join(message["content"] for message in messages))
