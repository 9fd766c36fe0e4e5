"""The router's training and test prompts: those of the tasks, those of no task (`general`), and reworded ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from core.draft_key import GENERAL
from core.errors import ConfigError, InvalidRequest
from core.tasks.rewording import reword
from core.tasks.rewording_rules import Rules
from core.text.chat_template import Rendering
from core.text.prompt_files import read_prompts
from core.text.prompts import Prompt
from core.text.tokenizer import Tokenizer
from core.traces.store import Trace

_SYSTEM_PROMPTS = ("You are a helpful assistant.", "Answer briefly.", "You help people with their questions.")
_ORDINARY = Rendering()
_SET_APART = 0.2  # share of general prompts for the threshold, and again for the report
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
    return [_as_sent(reword(text, seed, rules), task, rng, tokenizer) for text, _, task in prompts]


def general_prompts(file: Path | None, tokenizer: Tokenizer) -> GeneralPrompts:
    """The prompts of no task in a JSONL file; none without a file.

    Raises `ConfigError` for a file that cannot be read or holds too few prompts.
    """
    if file is None:
        return GeneralPrompts([], [], [])
    prompts = [_of_file(prompt, tokenizer) for prompt in read_prompts(file)]
    if len(prompts) < _FEWEST_GENERAL:
        raise ConfigError(f"{file} holds {len(prompts)} prompts; write at least {_FEWEST_GENERAL}, or `general: null`")
    Random(0).shuffle(prompts)
    apart = max(1, round(_SET_APART * len(prompts)))
    return GeneralPrompts(prompts[2 * apart :], prompts[:apart], prompts[apart : 2 * apart])


def _as_sent(text: str, task: str, rng: Random, tokenizer: Tokenizer) -> LabelledPrompt:
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
