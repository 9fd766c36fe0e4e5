"""Chat templates as widely used models write them, each with a small tokenizer of the same kind."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from core.family import TARGET_DIR
from core.model_names import locate, smollm2_is_installed

CORPUS = (
    "the end. END of the story; user and assistant, system or not: a short answer is the best answer! ",
    "def f(x):\n\treturn x + 1  # 12 + 7 = 19\n\n\n",
    "中文字符 中文 和 émigré 🙂🙃 naïve ",
) * 20
WORDS = (  # as Llama 3 and Qwen split texts
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BITS = [
    *("the end", " END", "user", "assistant", "12 + 7 =", "x", "\n", "\n\n", "  ", "\t", " ", "中文", "é", "🙂", "."),
    *(
        "<",
        ">",
        "<|",
        "|>",
        "</",
        "s>",
        "[",
        "INST",
        "]",
        "<<SYS>>",
        "<think>",
        "</think>\n\n",
        "▁",
        "\ufffd",
        "\u200b",
    ),
    *(
        "def f(x):\n\treturn x",
        "\r\n",
        "<tool_response>",
        "|im_start|",
        "begin_of_text",
        "\U000f0000",
        "0s1e",
        "{{ x }}",
    ),
]

LLAMA2 = """\
{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}\
{% set system_message = messages[0]['content'] %}\
{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}\
{% for message in loop_messages %}\
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}\
{% if loop.index0 == 0 and system_message != false %}\
{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}\
{% else %}{% set content = message['content'] %}{% endif %}\
{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}\
{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"""

LLAMA3 = """\
{% for message in messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' \
+ message['content'] | trim + '<|eot_id|>' %}\
{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}\
{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""

QWEN2 = """\
{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}\
{{ '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{% endif %}\
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

QWEN3 = """\
{%- if messages[0].role == 'system' %}\
{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{%- endif %}\
{%- set ns = namespace(last_query=messages|length - 1) %}\
{%- for message in messages[::-1] %}{%- set index = (messages|length - 1) - loop.index0 %}\
{%- if message.role == 'user' and ns.last_query == messages|length - 1 \
and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}\
{%- set ns.last_query = index %}{%- endif %}{%- endfor %}\
{%- for message in messages %}\
{%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}\
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}\
{%- elif message.role == 'assistant' %}{%- set content = message.content %}{%- set reasoning = '' %}\
{%- if '</think>' in content %}\
{%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}\
{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{%- endif %}\
{%- if loop.index0 > ns.last_query and (loop.last or reasoning) %}\
{{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' \
+ content.lstrip('\\n') }}\
{%- else %}{{- '<|im_start|>' + message.role + '\\n' + content }}{%- endif %}{{- '<|im_end|>\\n' }}\
{%- endif %}{%- endfor %}\
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}\
{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}\
{%- endif %}"""

MISTRAL = """\
{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content'] %}\
{%- set loop_messages = messages[1:] %}{%- else %}{%- set loop_messages = messages %}{%- endif %}\
{{- bos_token }}{%- for message in loop_messages %}\
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\
{{- raise_exception('After the optional system message, roles must alternate: ' + message['content']) }}{%- endif %}\
{%- if message['role'] == 'user' %}\
{%- if loop.last and system_message is defined %}\
{{- '[INST] ' + system_message + '\\n\\n' + message['content'] + '[/INST]' }}\
{%- else %}{{- '[INST] ' + message['content'] + '[/INST]' }}{%- endif %}\
{%- else %}{{- ' ' + message['content'] | trim + eos_token }}{%- endif %}{%- endfor %}"""


def _byte_level(*, in_vocabulary: list[str]) -> Tokenizer:
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    raw.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=in_vocabulary, initial_alphabet=alphabet, show_progress=False
    )
    raw.train_from_iterator(CORPUS, trainer)
    return raw


def _sentence_pieces() -> Tokenizer:
    """Characters and pieces with byte fallback, as in Llama 2 and Mistral."""
    pieces = [
        "▁",
        *"abcdefghijklmnopqrstuvwxyzENDIST[]<>/|.:=+()!",
        "▁a",
        "▁s",
        "th",
        "the",
        "▁the",
        "en",
        "end",
        "▁▁",
        "us",
    ]
    control = ["<unk>", "<s>", "</s>"]
    names = [*control, *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    merges = [
        ("▁", "a"),
        ("▁", "s"),
        ("t", "h"),
        ("th", "e"),
        ("▁", "the"),
        ("e", "n"),
        ("en", "d"),
        ("▁", "▁"),
        ("u", "s"),
    ]
    vocabulary = {name: number for number, name in enumerate(names)}
    raw = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    raw.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    raw.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in control])
    return raw


def _wrapped(raw: Tokenizer, template: str, bos: str, eos: str) -> PreTrainedTokenizerBase:
    return PreTrainedTokenizerFast(tokenizer_object=raw, bos_token=bos, eos_token=eos, chat_template=template)


def llama2() -> PreTrainedTokenizerBase:
    raw = _sentence_pieces()
    raw.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    raw.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return _wrapped(raw, LLAMA2, "<s>", "</s>")


def llama3() -> PreTrainedTokenizerBase:
    raw = _byte_level(in_vocabulary=[])
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    raw.add_special_tokens([*names, *(f"<|reserved_special_token_{number}|>" for number in range(250))])
    return _wrapped(raw, LLAMA3, "<|begin_of_text|>", "<|eot_id|>")


def qwen2() -> PreTrainedTokenizerBase:
    raw = _byte_level(in_vocabulary=[])
    raw.normalizer = normalizers.NFC()
    raw.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    return _wrapped(raw, QWEN2, "<|endoftext|>", "<|im_end|>")


def qwen3() -> PreTrainedTokenizerBase:
    raw = _byte_level(in_vocabulary=[])
    raw.normalizer = normalizers.NFC()
    raw.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    texts = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
    raw.add_tokens([AddedToken(text, normalized=False, special=False) for text in texts])
    return _wrapped(raw, QWEN3, "<|endoftext|>", "<|im_end|>")


def mistral() -> PreTrainedTokenizerBase:
    raw = _sentence_pieces()
    raw.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    raw.add_special_tokens([AddedToken(mark, normalized=False, special=True) for mark in ("[INST]", "[/INST]")])
    return _wrapped(raw, MISTRAL, "<s>", "</s>")


def chatml_without_special_marks() -> PreTrainedTokenizerBase:
    """Some fine-tuned models add the marks of roles as tokens that are not special; "user" is a token of its own."""
    raw = _byte_level(in_vocabulary=["<|endoftext|>"])
    raw.add_tokens(
        [AddedToken(mark, normalized=True, special=False) for mark in ("<|im_start|>", "<|im_end|>", "user")]
    )
    raw.add_tokens([AddedToken("\n\n", normalized=False, special=False)])
    return _wrapped(raw, QWEN2, "<|endoftext|>", "<|im_end|>")


def family() -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(TARGET_DIR)  # type: ignore[no-any-return]


def smollm2() -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(locate("smollm2:target"))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class ChatFormat:
    """`marks` are what the template marks roles and ends with, as far as they are tokens."""

    make: Callable[[], PreTrainedTokenizerBase]
    marks: tuple[str, ...]

    @property
    def hf(self) -> PreTrainedTokenizerBase:
        return _made(self.make)


@cache
def _made(make: Callable[[], PreTrainedTokenizerBase]) -> PreTrainedTokenizerBase:
    return make()


_CHATML = ("<|im_start|>", "<|im_end|>")
FORMATS = {
    "family": ChatFormat(family, ("<s>", "</s>", "<|system|>", "<|user|>", "<|assistant|>")),
    "llama2": ChatFormat(llama2, ("<s>", "</s>")),
    "llama3": ChatFormat(llama3, ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")),
    "qwen2": ChatFormat(qwen2, _CHATML),
    "qwen3": ChatFormat(qwen3, _CHATML),
    "mistral": ChatFormat(mistral, ("<s>", "</s>", "[INST]", "[/INST]")),
    "not special": ChatFormat(chatml_without_special_marks, _CHATML),
} | ({"smollm2": ChatFormat(smollm2, _CHATML)} if smollm2_is_installed() else {})


def ordinary_text(dice: random.Random) -> str:
    """Without any special token, though made of their parts."""
    while True:
        text = "".join(dice.choices(BITS, k=dice.randint(0, 12)))
        if not any(mark in text for chat_format in FORMATS.values() for mark in chat_format.marks):
            return text


def conversation(dice: random.Random, text: Callable[[random.Random], str]) -> list[dict[str, str]]:
    """One to three turns of the user, after a system message or none."""
    roles = ["user", "assistant"] * dice.randint(0, 2) + ["user"]
    if dice.random() < 0.3:
        roles.insert(0, "system")
    return [{"role": role, "content": text(dice)} for role in roles]
