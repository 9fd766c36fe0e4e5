"""A scripted service whose target, by its chat template, thinks and calls tools in the form of Hermes and Qwen."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from transformers import PreTrainedTokenizerFast

from core.text.tokenizer import Tokenizer
from tests.serve_app.scripted import BOS, EOS, EOS_ID, RUN_LENGTHS, ScriptedService, tokens_of, toy_tokenizer

TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool | tojson + '\n' }}{% endfor %}"
    "{% for message in messages %}{{ message.role }}: "
    "{% if message.reasoning_content %}{{ '<think>\n' + message.reasoning_content + '\n</think>\n' }}{% endif %}"
    "{{ message.content }}"
    "{% for call in message.tool_calls or [] %}{{ '<tool_call>\n' + call.function | tojson + '\n</tool_call>' }}"
    "{% endfor %}{{ '\n' }}{% endfor %}assistant:"
    "{% if enable_thinking is defined and not enable_thinking %}{{ ' <think>\n\n</think>\n\n' }}{% endif %}"
)
ARGUMENTS = ('{"city": "Oslo"}', '{"city": "Rome"}')
CALLS = "".join(f'<tool_call>\n{{"name": "weather", "arguments": {given}}}\n</tool_call>\n' for given in ARGUMENTS)
THOUGHT, SAID = "Two places, two calls.", "I look it up."
ANSWER = f"<think>\n{THOUGHT}\n</think>\n\n{SAID}\n{CALLS}"
INTERLEAVED = ANSWER.replace("</tool_call>\n", "</tool_call>\nAnd Rome.\n", 1) + "Done."
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@cache
def calling_tokenizer() -> Tokenizer:
    hf = PreTrainedTokenizerFast(
        tokenizer_object=toy_tokenizer().raw, bos_token=BOS, eos_token=EOS, chat_template=TEMPLATE
    )
    return Tokenizer(hf, [EOS_ID])


class CallingService(ScriptedService):
    """Answers every request `answer`."""

    tokenizer = calling_tokenizer()
    context = 2048

    def __init__(self, answer: str = ANSWER, lengths: Sequence[int] = RUN_LENGTHS) -> None:
        super().__init__(tokens_of(answer), lengths)

    @property
    def prompt(self) -> str:
        """That of the last request."""
        return str(self.tokenizer.raw.decode(list(self.asked[-1].tokens), skip_special_tokens=False))
