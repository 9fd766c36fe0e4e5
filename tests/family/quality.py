"""How good the family is: exact answers of the target, and how often the draft's first choice is the target's.

In: model directories and held-out items. Out: shares between 0 and 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from transformers import AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerFast

from tests.family.corpora import Item
from tests.family.lessons import IGNORED, encode
from tests.family.tokenizer import ASSISTANT, CONTEXT, EOS, IDS, USER


def load(directory: Path) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """A model in fp32 and its tokenizer, through transformers alone."""
    model = LlamaForCausalLM.from_pretrained(directory, dtype=torch.float32).train(False)
    return cast(LlamaForCausalLM, model), cast(PreTrainedTokenizerFast, AutoTokenizer.from_pretrained(directory))


@torch.inference_mode()
def answer(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, prompt: str) -> tuple[str, bool]:
    """The greedy answer to one user message, and whether it came to its own end."""
    chat = [{"role": "user", "content": prompt}]
    prompt_ids = cast(list[int], tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False))
    room = min(512, CONTEXT - len(prompt_ids))
    whole = cast(Any, model).generate(torch.tensor([prompt_ids]), do_sample=False, max_new_tokens=room)
    made = whole[0, len(prompt_ids) :].tolist()
    ended = made[-1] == IDS[EOS]
    return str(tokenizer.decode(made[:-1] if ended else made)), ended


def exact_match(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, items: Sequence[Item]) -> float:
    """Share of items whose greedy answer is the item's, to the letter."""
    return sum(answer(model, tokenizer, item.prompt) == (item.answer, True) for item in items) / len(items)


@torch.inference_mode()
def first_choices(model: nn.Module, tokenizer: PreTrainedTokenizerFast, item: Item) -> torch.Tensor:
    """The most likely token at every answer position, the right answer so far given: int64 [answer tokens + end]."""
    tokens, labels = encode([(USER, item.prompt), (ASSISTANT, item.answer)], tokenizer)
    answered = torch.tensor(labels[1:]) != IGNORED
    logits: torch.Tensor = model(torch.tensor([tokens])).logits
    return logits[0, :-1][answered].argmax(-1)


def accuracy(model: nn.Module, tokenizer: PreTrainedTokenizerFast, items: Sequence[Item]) -> float:
    """Share of answer positions where the first choice is the right token."""
    right = [
        first_choices(model, tokenizer, item)
        == torch.tensor([*tokenizer.encode(item.answer, add_special_tokens=False), IDS[EOS]])
        for item in items
    ]
    return float(torch.cat(right).float().mean())


def agreement(target: nn.Module, draft: nn.Module, tokenizer: PreTrainedTokenizerFast, items: Sequence[Item]) -> float:
    """Share of answer positions where the first choices of both models are the same token."""
    same = [first_choices(target, tokenizer, item) == first_choices(draft, tokenizer, item) for item in items]
    return float(torch.cat(same).float().mean())
