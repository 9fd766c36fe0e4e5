"""Tools and reasoning over HTTP, with OpenAI's own client."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from jsonschema import validate
from llguidance import LLMatcher, LLTokenizer
from tokenizers import Tokenizer as RawTokenizer
from transformers import PreTrainedTokenizerFast

from core.text.tokenizer import Tokenizer
from tests.serve_app.calling import CallingService
from tests.serve_app.clients import events, http_client, openai_client
from tests.serve_app.scripted import BOS, EOS, EOS_ID, ScriptedService, toy_tokenizer

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER: dict[str, Any] = {"type": "function", "function": {"name": "weather", "parameters": CITY}}
CLOCK: dict[str, Any] = {"type": "function", "function": {"name": "clock", "description": "The time."}}
ASKED = [{"role": "user", "content": "the weather"}]
OSLO, NOW = '{"city": "Oslo é🙂"}', "{}"
CALLS = (
    f'<tool_call>\n{{"name": "weather", "arguments": {OSLO}}}\n</tool_call>\n'
    f'<tool_call>\n{{"name": "clock", "arguments": {NOW}}}\n</tool_call>'
)
CALL_FORMS = {
    "hermes": '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>',
    "llama3": '{"name": "%s", "parameters": %s}',
    "mistral": '[TOOL_CALLS] [{"name": "%s", "arguments": %s}]',
    "json": '{"name": "%s", "arguments": %s}',
}
THINKING = (
    "{{ bos_token }}{% for message in messages %}{{ message.role }}: {{ message.reasoning_content or '' }}"
    "{{ message.content }}\n{% endfor %}assistant:{% if enable_thinking %}<think>\n{% endif %}{# </think> #}"
)
WITH_TOOLS = (
    "{{ bos_token }}{{ tools | tojson if tools else '' }}{% for message in messages %}{{ message.role }}: "
    "{{ message.content }}{% for call in message.tool_calls or [] %}[{{ call.id }} {{ call.function.name }} "
    "{{ call.function.arguments.city }}]{% endfor %}{{ message.tool_call_id or '' }}\n{% endfor %}assistant:"
)


def service(
    answer: str,
    *,
    tool_format: str | None = "hermes",
    template: str | None = None,
    special: tuple[str, ...] = (),
) -> ScriptedService:
    """A service that answers `answer`; `special` are tokens of its tokenizer."""
    raw = RawTokenizer.from_str(toy_tokenizer().raw.to_str())
    raw.add_special_tokens(list(special))
    hf = PreTrainedTokenizerFast(tokenizer_object=raw, bos_token=BOS, eos_token=EOS, chat_template=template)
    if template is None:
        hf.chat_template = "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
    made = ScriptedService()
    made.tokenizer = Tokenizer(hf, [EOS_ID], tool_format)
    made.tokens = made.tokenizer.raw.encode(answer, add_special_tokens=False).ids
    made.vocab_size, made.context = made.tokenizer.num_valid, 4096
    return made


def prompt_of(asked: ScriptedService) -> str:
    return str(asked.tokenizer.raw.decode(list(asked.asked[-1].tokens), skip_special_tokens=False))


async def answered(asked: ScriptedService, messages: Any = ASKED, **fields: Any) -> Any:
    async with openai_client(asked) as client:
        answer = await client.chat.completions.create(model="org/toy", messages=messages, **fields)
    return answer.choices[0]


async def streamed(asked: ScriptedService, **fields: Any) -> Any:
    """What OpenAI's client makes of the chunks."""
    async with (
        openai_client(asked) as client,
        client.chat.completions.stream(model="org/toy", messages=ASKED, **fields) as stream,
    ):
        return (await stream.get_final_completion()).choices[0]


@pytest.mark.parametrize("lengths", [(1,), (2, 5), (50,)])
async def test_calls_are_the_same_streamed_and_whole(lengths: tuple[int, ...]) -> None:
    whole, chunked = service(CALLS), service(CALLS)
    chunked.lengths = lengths
    tools = [WEATHER, CLOCK]
    for choice in (await answered(whole, tools=tools), await streamed(chunked, tools=tools)):
        assert choice.finish_reason == "tool_calls"
        assert not choice.message.content
        called = [(call.type, call.function.name, call.function.arguments) for call in choice.message.tool_calls]
        assert called == [("function", "weather", OSLO), ("function", "clock", NOW)]
        ids = [call.id for call in choice.message.tool_calls]
        assert len(set(ids)) == 2
        assert all(id_.startswith("call_") and len(id_) == 29 for id_ in ids)


async def test_content_is_null_beside_calls_unless_there_is_text() -> None:
    assert (await answered(service(CALLS), tools=[WEATHER, CLOCK])).message.content is None
    assert (await answered(service(f"I look. {CALLS}"), tools=[WEATHER, CLOCK])).message.content == "I look. "
    plain = await answered(service("Hello"), tools=[WEATHER])
    assert (plain.message.content, plain.message.tool_calls, plain.finish_reason) == ("Hello", None, "stop")


async def test_arguments_that_a_grammar_holds_arrive_in_parts_and_only_the_first_has_the_name() -> None:
    asked = service(CALLS)
    asked.lengths = (1, 3)
    async with http_client(asked) as client:
        offered = {"tools": [WEATHER, CLOCK], "tool_choice": "required"}
        body = {"model": "org/toy", "messages": ASKED, **offered, "stream": True}
        sent = events((await client.post("/v1/chat/completions", json=body)).text)
    deltas = [chunk["choices"][0]["delta"] for chunk in sent[:-1]]
    parts = [call for delta in deltas for call in delta.get("tool_calls", [])]
    assert len([part for part in parts if part["index"] == 0]) > 3
    assert [part["function"]["name"] for part in parts if "name" in part["function"]] == ["weather", "clock"]
    assert all(("id" in part) == ("type" in part) == ("name" in part["function"]) for part in parts)
    assert all("content" not in delta or delta["content"] == "" for delta in deltas)
    assert sum(len(chunk["choices"][0]["token_ids"]) for chunk in sent[:-1]) == len(asked.tokens) + 1
    assert [chunk["choices"][0]["finish_reason"] for chunk in sent[-2:-1]] == ["tool_calls"]


async def test_calls_of_several_choices_have_ids_of_their_own() -> None:
    async with openai_client(service(CALLS)) as client:
        answer = await client.chat.completions.create(model="org/toy", messages=ASKED, n=2, tools=[WEATHER, CLOCK])
    ids = [call.id for choice in answer.choices for call in choice.message.tool_calls or []]
    assert len(set(ids)) == 4


async def test_a_call_that_is_cut_off_says_so() -> None:
    choice = await answered(service(CALLS), tools=[WEATHER], max_tokens=45)
    assert choice.finish_reason == "length"
    assert OSLO.startswith(choice.message.tool_calls[0].function.arguments)


async def test_what_is_no_call_of_the_tools_is_content() -> None:
    assert (await answered(service(CALLS), tools=[CLOCK])).message.content.startswith('<tool_call>\n{"name": "weather"')
    assert (await answered(service(CALLS))).message.content == CALLS


async def test_without_tools_chunks_have_content_alone() -> None:
    async with http_client(service("the answer")) as client:
        body = {"model": "org/toy", "messages": ASKED, "stream": True}
        sent = events((await client.post("/v1/chat/completions", json=body)).text)
    deltas = [chunk["choices"][0]["delta"] for chunk in sent[:-1]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert all(delta.keys() == {"content"} for delta in deltas[1:])


async def test_the_conversation_goes_on_with_the_results() -> None:
    asked = service(CALLS)
    first = (await answered(asked, tools=[WEATHER, CLOCK])).message
    results = [{"role": "tool", "tool_call_id": call.id, "content": f"r{n}"} for n, call in enumerate(first.tool_calls)]
    await answered(asked, [*ASKED, first.model_dump(), *results], tools=[WEATHER, CLOCK])
    prompt = prompt_of(asked)
    assert json.dumps(WEATHER["function"]) in prompt
    assert f"assistant: {CALLS}\n" in prompt
    assert "user: <tool_response>\nr0\n</tool_response>\n<tool_response>\nr1\n</tool_response>\n" in prompt


async def test_a_template_with_tools_renders_them_itself() -> None:
    asked = service("Hello", tool_format=None, template=WITH_TOOLS)
    call = {"id": "a1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "a1", "content": [{"type": "text", "text": "</s> rain"}]}
    await answered(asked, [*ASKED, said, result], tools=[CLOCK])
    shown = {"name": "clock", "description": "The time.", "parameters": {"type": "object", "properties": {}}}
    listed = json.dumps([{"type": "function", "function": shown}])
    turns = "user: the weather\nassistant: [a1 weather Oslo]\ntool: </s> raina1\nassistant:"
    assert prompt_of(asked) == f"<s>{listed}{turns}"
    assert EOS_ID not in asked.asked[0].tokens
    await answered(asked, tools=[CLOCK], tool_choice="none")
    assert prompt_of(asked) == "<s>user: the weather\nassistant:"


@pytest.mark.parametrize("nothing", ["", [], None])
async def test_a_tool_may_return_nothing(nothing: Any) -> None:
    asked = CallingService()
    made = {"id": "a1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    turn = {"role": "assistant", "content": nothing, "tool_calls": [made]}
    await answered(asked, [*ASKED, turn, {"role": "tool", "tool_call_id": "a1", "content": nothing}])
    assert asked.prompt.endswith("</tool_call>\ntool: \nassistant:")


async def test_tokenize_counts_the_tools_too() -> None:
    asked = service("Hello")
    await answered(asked, tools=[WEATHER])
    async with http_client(asked) as client:
        body = {"messages": ASKED, "tools": [WEATHER]}
        tokens = (await client.post("/tokenize", json=body)).json()["tokens"]
    assert tokens == list(asked.asked[0].tokens)


async def test_markers_that_are_special_tokens_are_read_and_never_shown() -> None:
    mark = "[TOOL_CALLS]"
    asked = service(f'Well.{mark}[{{"name": "clock", "arguments": {{}}}}]', tool_format="mistral", special=(mark,))
    choice = await answered(asked, tools=[CLOCK])
    assert (choice.message.content, choice.message.tool_calls[0].function.name) == ("Well.", "clock")
    asked = service(f"Well.{mark}[1]", tool_format="mistral", special=(mark,))
    assert (await answered(asked, tools=[CLOCK])).message.content == "Well.[1]"
    shown = await answered(asked, tools=[CLOCK], extra_body={"skip_special_tokens": False})
    assert shown.message.content == f"Well.{mark}[1]"


async def test_stop_strings_end_calls_as_they_end_text() -> None:
    choice = await answered(service(CALLS), tools=[WEATHER, CLOCK], stop=["</tool_call>\n<"])
    assert [call.function.name for call in choice.message.tool_calls] == ["weather"]
    assert choice.finish_reason == "tool_calls"


@pytest.mark.parametrize("special", [(), ("<think>", "</think>")])
async def test_reasoning_is_no_content(special: tuple[str, ...]) -> None:
    answer = f"<think>\nhm\n</think>\n\n{CALLS}"
    whole = (await answered(service(answer, template=THINKING, special=special), tools=[WEATHER, CLOCK])).message
    parts = (await streamed(service(answer, template=THINKING, special=special), tools=[WEATHER, CLOCK])).message
    for message in (whole, parts):
        assert message.reasoning_content == "hm"
        assert not message.content
        assert len(message.tool_calls) == 2


async def test_a_prompt_may_open_the_reasoning_and_the_client_may_leave_it_out() -> None:
    asked = service("hm\n</think>\n\nHello", template=THINKING)
    opened = {"chat_template_kwargs": {"enable_thinking": True}}
    message = (await answered(asked, extra_body=opened)).message
    assert (message.reasoning_content, message.content) == ("hm", "Hello")
    message = (await answered(asked, extra_body={**opened, "include_reasoning": False})).message
    assert (getattr(message, "reasoning_content", None), message.content) == (None, "Hello")
    message = (await answered(asked)).message
    assert message.content == "hm\n</think>\n\nHello"


@pytest.mark.parametrize(("effort", "opened"), [("none", False), ("high", True)])
async def test_reasoning_effort_opens_the_reasoning_of_templates_that_know_it(effort: Any, opened: bool) -> None:
    asked = service("hm</think>", template=THINKING)
    await answered(asked, reasoning_effort=effort)
    assert prompt_of(asked).endswith("<think>\n") == opened


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_reasoning_of_earlier_answers_reaches_the_template(name: str) -> None:
    asked = service("Hello", template=THINKING)
    await answered(asked, [*ASKED, {"role": "assistant", "content": "END", name: "because "}, *ASKED])
    assert "assistant: because END\n" in prompt_of(asked)


def accepted(asked: ScriptedService, text: str) -> bool:
    """Whether the grammar of the last request accepts an answer."""
    raw = asked.tokenizer.raw
    tokenizer = LLTokenizer(raw.to_str(), n_vocab=asked.vocab_size, eos_token=[EOS_ID])
    matcher, ids = LLMatcher(tokenizer, asked.asked[-1].params.grammar), raw.encode(text, add_special_tokens=False).ids
    return bool(matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting())


def call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


async def test_calls_that_must_be_made_are_held_to_the_schema() -> None:
    asked = service(CALLS)
    await answered(asked, tools=[WEATHER, CLOCK], tool_choice="required")
    oslo, clock = call("weather", '{"city": "Oslo"}'), call("clock", "{}")
    assert [accepted(asked, text) for text in (oslo, clock, f"{oslo}\n{clock}")] == [True, True, True]
    for text in ("Hello", call("weather", "{}"), call("clock", '{"a": 1}'), call("other", "{}"), f"Hi {oslo}"):
        assert not accepted(asked, text), text
    await answered(asked, tools=[WEATHER, CLOCK], tool_choice="required", parallel_tool_calls=False)
    assert [accepted(asked, text) for text in (oslo, f"{oslo}\n{clock}")] == [True, False]
    named: Any = {"type": "function", "function": {"name": "clock"}}
    await answered(asked, tools=[WEATHER, CLOCK], tool_choice=named)
    assert [accepted(asked, text) for text in (oslo, clock, f"{clock}\n{clock}")] == [False, True, False]


async def test_free_answers_are_held_to_a_grammar_only_where_somebody_asks_for_it() -> None:
    asked = service(CALLS)
    for fields in ({}, {"tool_choice": "auto"}, {"tool_choice": "none"}):
        await answered(asked, tools=[WEATHER, CLOCK], **fields)
        assert asked.asked[-1].params.grammar == ""
    strict = {**WEATHER, "function": {**WEATHER["function"], "strict": True}}
    await answered(asked, tools=[strict, CLOCK])
    wrong, text = call("weather", "{}"), "Hello"
    assert [accepted(asked, answer) for answer in (text, wrong, call("clock", '{"a": 1}'))] == [True, False, True]
    await answered(asked, tools=[WEATHER], parallel_tool_calls=False)
    assert [accepted(asked, answer) for answer in (text, wrong, f"{wrong}\n{wrong}")] == [True, True, False]


@pytest.mark.parametrize("tool_format", ["hermes", "llama3", "mistral", "json"])
async def test_of_the_tools_in_the_prompt_those_alone_are_called_that_are_allowed(tool_format: str) -> None:
    asked, forms = service(CALLS, tool_format=tool_format), CALL_FORMS[tool_format]
    clock, weather = (forms % each for each in (("clock", NOW), ("weather", '{"city": "Oslo"}')))
    for mode, free in (("auto", True), ("required", False)):
        choice: Any = {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [CLOCK]}}
        await answered(asked, tools=[WEATHER, CLOCK], tool_choice=choice)
        assert [accepted(asked, text) for text in (clock, weather, "Hello")] == [True, False, free]
        assert all(f'"name": "{name}"' in prompt_of(asked) for name in ("weather", "clock"))


async def test_when_all_tools_are_allowed_the_choice_is_as_free_as_without_it() -> None:
    asked = service(CALLS)
    choice: Any = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [CLOCK, WEATHER]}}
    choices = (
        await answered(asked, tools=[WEATHER, CLOCK], tool_choice=choice),
        await answered(asked, tools=[WEATHER, CLOCK]),
    )
    assert [request.params.grammar for request in asked.asked] == ["", ""]
    assert len({str([call.function for call in choice.message.tool_calls]) for choice in choices}) == 1


async def test_what_is_no_allowed_call_is_content() -> None:
    choice: Any = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [CLOCK]}}
    said = await answered(service(CALLS), tools=[WEATHER, CLOCK], tool_choice=choice)  # it minds no grammar
    assert [call.function.name for call in said.message.tool_calls] == ["clock"]
    assert said.message.content.startswith('<tool_call>\n{"name": "weather"')


async def test_an_answer_in_a_schema_may_be_a_call_instead_and_must_be_where_one_is_required() -> None:
    asked, schema = service(CALLS), {"name": "sum", "schema": {"properties": {"n": {"type": "integer"}}}}
    fields: Any = {"tools": [CLOCK], "response_format": {"type": "json_schema", "json_schema": schema}}
    answers = ('{"n": 3}', '{"n": "x"}', call("clock", "{}"), call("clock", '{"a": 1}'), "Hello")
    await answered(asked, **fields)
    assert [accepted(asked, text) for text in answers] == [True, False, True, True, False]
    await answered(asked, **fields, tool_choice="required")
    assert [accepted(asked, text) for text in answers] == [False, False, True, False, False]
    await answered(asked, **fields, tool_choice="none")
    assert [accepted(asked, text) for text in answers] == [True, False, False, False, False]
    with pytest.raises(openai.BadRequestError, match="cannot be told from other JSON"):
        await answered(service(CALLS, tool_format="json"), **fields)


async def test_reasoning_may_precede_an_answer_in_a_schema() -> None:
    asked = service("hm</think>{}", template=THINKING)
    await answered(asked, response_format={"type": "json_object"})
    assert [accepted(asked, text) for text in ("{}", "<think>hm</think>\n\n{}", "hm</think>{}")] == [True, True, False]


async def test_reasoning_may_precede_a_call_that_must_be_made() -> None:
    asked, clock = service("hm</think>", template=THINKING), call("clock", "{}")
    await answered(asked, tools=[CLOCK], tool_choice="required")
    assert [accepted(asked, text) for text in (clock, f"<think>\nhm\n</think>\n\n{clock}")] == [True, True]
    thinking = {"chat_template_kwargs": {"enable_thinking": True}}
    await answered(asked, tools=[CLOCK], tool_choice="required", extra_body=thinking)
    assert [accepted(asked, text) for text in (clock, f"hm\n</think>\n\n{clock}")] == [False, True]


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"tools": [WEATHER, WEATHER]}, "tools[1].function.name", "names must differ"),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "x"}}},
            "tool_choice.function.name",
            "none of the 1 tools",
        ),
        (
            {"tools": [{**CLOCK, "function": {"name": "c", "parameters": {"properties": {"a": {"type": "x"}}}}}]},
            "tools[0].function.parameters.properties.a",
            "x",
        ),
    ],
)
async def test_a_fault_of_a_tool_is_named(fields: dict[str, Any], param: str, message: str) -> None:
    asked = service(CALLS)
    with pytest.raises(openai.BadRequestError, match=message) as refusal:
        await answered(asked, **{"tool_choice": "required", **fields})
    assert refusal.value.param == param
    assert not asked.asked


@pytest.mark.parametrize("arguments", ['{"a": "\\ud800"}', '{"a": ' * 300 + "1" + "}" * 300, "[1]", '{"a": '])
async def test_arguments_of_an_earlier_call_that_are_no_object_of_texts_stay_as_they_came(arguments: str) -> None:
    asked = CallingService()
    asked.context = 8192
    made = {"id": "a1", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    turn = {"role": "assistant", "content": None, "tool_calls": [made]}
    await answered(asked, [*ASKED, turn, {"role": "tool", "tool_call_id": "a1", "content": "ok"}])
    assert json.dumps(arguments) in asked.prompt


async def test_the_arguments_of_the_client_are_valid_where_the_answer_is() -> None:
    choice = await answered(service(CALLS), tools=[WEATHER, CLOCK])
    validate(json.loads(choice.message.tool_calls[0].function.arguments), CITY)


@pytest.mark.parametrize("lengths", [(1, 3, 2), (8,)])
async def test_accepted_characters_are_of_the_text_that_the_chunk_shows(lengths: tuple[int, ...]) -> None:
    asked = service(f"<think>\nhm, so\n</think>\n\nI look. {CALLS}", template=THINKING)
    asked.lengths = lengths
    async with http_client(asked) as client:
        body = {"model": "org/toy", "messages": ASKED, "tools": [WEATHER, CLOCK], "stream": True}
        sent = events((await client.post("/v1/chat/completions", json=body)).text)
    shown, accepted = "", 0
    for choice in (chunk["choices"][0] for chunk in sent[:-1]):
        text = (choice["delta"].get("reasoning_content") or "") + (choice["delta"].get("content") or "")
        assert 0 <= choice["speculation"]["accepted_characters"] <= len(text)
        shown, accepted = shown + text, accepted + choice["speculation"]["accepted_characters"]
    assert shown == "hm, soI look. "
    assert accepted > 0
