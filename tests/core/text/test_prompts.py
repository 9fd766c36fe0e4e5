"""Prompts come in from a file whole, or the line and field at fault are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import ConfigError
from core.text.prompts import Message, Prompt, read_prompts


def test_texts_and_conversations_are_read(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(
        '{"prompt": "What is 2 + 2?", "task": "math"}\n'
        "\n"
        '{"messages": [{"role": "system", "content": ""}, {"role": "user", "content": "你好"}]}'
    )
    assert read_prompts(file) == [
        Prompt(prompt="What is 2 + 2?", task="math"),
        Prompt(messages=(Message("system", ""), Message("user", "你好"))),
    ]


def test_a_byte_order_mark_is_no_part_of_the_first_prompt(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "\ufeffWhat?"}\n{"prompt": "And?"}\n', encoding="utf-8-sig")
    assert file.read_bytes()[:3] == b"\xef\xbb\xbf"
    assert read_prompts(file) == [Prompt(prompt="\ufeffWhat?"), Prompt(prompt="And?")]


@pytest.mark.parametrize("content", [b"", b"\n", b" \n\t\r\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_a_file_without_prompts_is_told_with_what_a_line_is(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        read_prompts(file)
    assert str(refused.value) == (
        f'{file} has no prompts: write lines of {{"prompt": "..."}} or {{"messages": [...]}} in it'
    )


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (b'{"prompt": 4}', r"Expected `str.*\$\.prompt"),
        (b'{"prompt": ""}', r"length >= 1.*\$\.prompt"),
        (b'{"promt": "What"}', "unknown field `promt`"),
        (b"{}", "either `prompt` or `messages`"),
        (b'{"prompt": "a", "messages": [{"role": "user", "content": "a"}]}', "either `prompt` or `messages`"),
        (b'{"messages": []}', r"length >= 1.*\$\.messages"),
        (b'{"messages": [{"role": "user"}]}', r"missing required field `content`.*\$\.messages\[0\]"),
        (
            b'{"messages": [{"role": "user", "content": [1]}]}',
            r"\$\.messages\[0\]\.content|\$\.messages\[\.\.\.\]\.content",
        ),
        (b'{"prompt": "What"', "truncated"),
        (b'["What"]', "Expected `object`"),
        (b'{"prompt": "\xff"}', "line 3"),
    ],
)
def test_the_first_bad_line_and_its_field_are_named(tmp_path: Path, line: bytes, named: str) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_bytes(b'{"prompt": "What"}\n\n' + line + b"\n{}\n")
    with pytest.raises(ConfigError, match=named) as refused:
        read_prompts(file)
    assert f"{file}, line 3: " in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"prompts\.jsonl cannot be read: No such file"):
        read_prompts(tmp_path / "prompts.jsonl")
