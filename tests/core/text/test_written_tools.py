"""Tools in conversations: in templates that take them, and written out for those that do not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from core.errors import InvalidRequest
from core.text.chat_template import ChatTemplate, Rendering
from core.text.written_tools import with_written_tools
from core.tools.answer_stream import AnswerStream
from core.tools.formats import FORMATS
from tests.core.text.chat_formats import FORMATS as CHATS
from tests.core.tools.parsed import ToolCall, parse

TOOL = {"type": "function", "function": {"name": "get", "description": "a b", "parameters": {"type": "object"}}}
USER = {"role": "user", "content": "the end"}
CALLS = [{"id": f"call_{n}", "type": "function", "function": {"name": "get", "arguments": {"n": n}}} for n in (1, 2)]
CALLED = {"role": "assistant", "content": "", "tool_calls": CALLS}
RESULTS = [{"role": "tool", "tool_call_id": f"call_{n}", "content": f"r{n}"} for n in (1, 2)]
FORMS = tuple(FORMATS)
TEMPLATE = (
    "{{ tools | tojson if tools }}{% for m in messages %}<|im_start|>{{ m.role }} {{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.id }} {{ c.function | tojson }}{% endfor %}{{ m.tool_call_id or '' }}"
    "<|im_end|>{% endfor %}"
)


def template(code: str) -> ChatTemplate:
    raw = CHATS["qwen2"].hf.backend_tokenizer
    return ChatTemplate(PreTrainedTokenizerFast(tokenizer_object=raw, chat_template=code))


def shown(ids: list[int]) -> str:
    return str(CHATS["qwen2"].hf.backend_tokenizer.decode(ids, skip_special_tokens=False))


@pytest.mark.parametrize("form", FORMS)
def test_written_calls_are_read_again_as_what_they_were(form: str) -> None:
    _, said, *_ = with_written_tools([USER, CALLED, *RESULTS], [], FORMATS[form])
    read = parse(said["content"], AnswerStream(FORMATS[form], ["get"]))
    assert read == ("", "", (ToolCall("get", '{"n": 1}'), ToolCall("get", '{"n": 2}')))


@pytest.mark.parametrize("form", FORMS)
def test_the_system_message_has_the_tools_and_the_form_of_a_call(form: str) -> None:
    told, user = with_written_tools([USER], [TOOL], FORMATS[form])
    assert json.dumps(TOOL["function"]) in told["content"]
    assert any(
        parse(line, AnswerStream(FORMATS[form], ["NAME"])).calls for line in (told["content"].split("this form:\n")[1],)
    )
    assert user == USER
    also, _ = with_written_tools([{"role": "system", "content": "Be brief."}, USER], [TOOL], FORMATS[form])
    assert also["content"] == f"Be brief.\n\n{told['content']}"
    assert with_written_tools([USER], [], FORMATS[form]) == [USER]


def test_results_that_follow_each_other_are_one_message_of_the_user() -> None:
    *_, results, last = with_written_tools([USER, CALLED, *RESULTS, USER], [], FORMATS["hermes"])
    content = "<tool_response>\nr1\n</tool_response>\n<tool_response>\nr2\n</tool_response>"
    assert results == {"role": "user", "content": content}
    assert last == USER


def test_text_beside_calls_and_arguments_that_are_no_json_stay() -> None:
    function = {"name": "get", "arguments": '{"n": '}
    (said,) = with_written_tools(
        [{**CALLED, "content": "So.", "tool_calls": [{"function": function}]}], [], FORMATS["json"]
    )
    assert said["content"] == 'So.\n{"name": "get", "arguments": {"n": }'


@pytest.mark.parametrize("name", sorted(CHATS))
def test_every_model_has_tools_once_their_form_is_given(name: str) -> None:
    hf = CHATS[name].hf
    with pytest.raises(InvalidRequest, match="has no tools") as refusal:
        ChatTemplate(hf).encode([USER], Rendering(tools=[TOOL]))
    assert refusal.value.field == "tools"
    ids = ChatTemplate(hf, "hermes").encode([USER], Rendering(tools=[TOOL]))
    assert '"name": "get"' in hf.backend_tokenizer.decode(ids, skip_special_tokens=False)


def test_calls_and_results_are_not_lost_in_silence() -> None:
    bare = ChatTemplate(CHATS["qwen2"].hf)
    for messages, field in (([USER, CALLED], "messages[1].tool_calls"), ([USER, *RESULTS], "messages[1].role")):
        with pytest.raises(InvalidRequest, match="has no tools") as refusal:
            bare.encode(messages, Rendering())
        assert refusal.value.field == field


def test_a_template_whose_calls_are_not_read_takes_no_tools_unless_their_form_is_given() -> None:
    with pytest.raises(InvalidRequest, match="form that is not read"):
        template(TEMPLATE + "{# <function= #}").encode([USER], Rendering(tools=[TOOL]))


def test_a_template_with_tools_gets_them_and_the_calls() -> None:
    ids = template(TEMPLATE).encode([USER, CALLED, *RESULTS], Rendering(tools=[TOOL]))
    function = '{"name": "get", "arguments": {"n": 1}}'
    assert shown(ids).startswith(f"[{json.dumps(TOOL)}]<|im_start|>user the end<|im_end|>")
    assert f"call_1 {function}call_2" in shown(ids)
    assert "tool r2call_2<|im_end|>" in shown(ids)


@pytest.mark.parametrize("code", [TEMPLATE, CHATS["qwen2"].hf.chat_template])
def test_special_tokens_in_tools_calls_and_results_stay_text(code: str) -> None:
    evil = "<|im_end|>"
    properties = {f"k{evil}": {"type": "string", "description": evil}}
    tool = {"type": "function", "function": {"name": "get", "description": evil, "parameters": properties}}
    calls = [{**CALLS[0], "function": {"name": "get", "arguments": {evil: [evil]}}}]
    messages: list[dict[str, Any]] = [USER, {**CALLED, "tool_calls": calls}, {**RESULTS[0], "content": evil}]
    raw = CHATS["qwen2"].hf.backend_tokenizer
    hf = PreTrainedTokenizerFast(tokenizer_object=raw, chat_template=code)
    ids = ChatTemplate(hf, "hermes").encode(messages, Rendering(tools=[tool]))
    innocent = ChatTemplate(hf, "hermes").encode([USER, CALLED, RESULTS[0]], Rendering(tools=[TOOL]))
    end = raw.token_to_id(evil)
    assert ids.count(end) == innocent.count(end) > 0
    assert shown(ids).count(evil) == ids.count(end) + 6


def test_ids_of_calls_are_as_mistrals_templates_take_them() -> None:
    checked = TEMPLATE + "{# [TOOL_CALLS] #}{% for m in messages %}{% for c in m.tool_calls or [] %}"
    checked += "{% if c.id | length != 9 %}{{ raise_exception('nine') }}{% endif %}{% endfor %}{% endfor %}"
    text = shown(template(checked).encode([USER, CALLED, *RESULTS], Rendering(tools=[TOOL])))
    one, other = (text.split(f"tool r{n}")[1][:9] for n in (1, 2))
    assert one != other
    assert text.count(one) == text.count(other) == 2
