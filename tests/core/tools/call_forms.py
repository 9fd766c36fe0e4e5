"""The table of forms in which models write calls of tools: by format, what is written and which calls it is.

Each way to write a call stands in the first frame of each format, and some of them in its other frames. Then come
several calls, and what is no call.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.core.tools.parsed import ToolCall

NAMES = ("get", "get_weather", "f")


class Form(NamedTuple):
    """An answer, what of it is content, and its calls."""

    what: str
    tool_format: str
    text: str
    calls: tuple[ToolCall, ...]
    content: str = ""


def _get(arguments: str) -> tuple[ToolCall, ...]:
    return (ToolCall("get", arguments),)


ONE, TWO = '{"a": "x"}', '{"b": [1, {}]}'
WRITTEN, OTHER = f'{{"name": "get", "arguments": {ONE}}}', f'{{"name": "f", "parameters": {TWO}}}'
CALL, OTHER_CALL = ToolCall("get", ONE), ToolCall("f", TWO)
# One call: how its object is written, and the arguments it has.
OBJECTS: dict[str, tuple[str, str]] = {
    "arguments": (WRITTEN, ONE),
    "parameters": (f'{{"name": "get", "parameters": {ONE}}}', ONE),
    "arguments before the name": (f'{{"arguments": {ONE}, "name": "get"}}', ONE),
    "arguments as a string": ('{"name": "get", "arguments": "{\\"a\\": \\"x\\"}"}', ONE),
    "a string before the name": ('{"parameters": "{\\"a\\": \\"x\\"}", "name": "get"}', ONE),
    "an empty string": ('{"name": "get", "arguments": ""}', "{}"),
    "null": ('{"name": "get", "arguments": null}', "{}"),
    "no arguments": ('{"name": "get"}', "{}"),
    "no arguments and a comma": ('{"name": "get", }', "{}"),
    "type and id": (f'{{"type": "function", "id": "c\\"1", "name": "get", "arguments": {ONE}}}', ONE),
    "members behind": (f'{{"name": "get", "arguments": {ONE}, "id": "c1", "x": {{"}}": []}}}}', ONE),
    "in an outer object": (f'{{"type": "function", "function": {WRITTEN}}}', ONE),
    "in an outer object, without arguments": ('{"function": {"name": "get"}, "type": "function"}', "{}"),
    "raw control characters": ('{"name": "get", "arguments": {"a": "x\ny\t"}}', '{"a": "x\\ny\\t"}'),
    "raw newline in a string of JSON": ('{"name": "get", "arguments": "{\n\\"a\\": 1}"}', '{\n"a": 1}'),
    "trailing commas": ('{"name": "get", "arguments": {"a": [1, 2,], },}', '{"a": [1, 2] }'),
    "text like markers": (
        '{"name": "get", "arguments": {"a": "}]\\"</tool_call>[TOOL_CALLS]```"}}',
        '{"a": "}]\\"</tool_call>[TOOL_CALLS]```"}',
    ),
    "other spaces": ('{ "name":"get" ,\n  "arguments" :\n{"a":1 }\n}', '{"a":1 }'),
}
EVERYWHERE = ("arguments", "arguments as a string", "no arguments", "trailing commas")
# Where such an object may stand.
FRAMES: dict[str, tuple[str, ...]] = {
    "hermes": (
        "<tool_call>\n{}\n</tool_call>",
        "<tool_call>[{}]</tool_call>\n",
        "<tool_call>```json\n{}\n```</tool_call>",
        "<tool_call>{}",
    ),
    "llama3": ("{}", "[{}]", "<|python_tag|>{}"),
    "mistral": ("[TOOL_CALLS] [{}]", "[TOOL_CALLS]{}"),
    "json": ("\n{}", "[{}]\n", "```json\n{}\n```\n"),
}
# Several calls in one frame.
SEVERAL = {
    "line by line": f"{WRITTEN}\n{OTHER}",
    "with commas": f"{WRITTEN}, {OTHER},",
    "with semicolons": f"{WRITTEN}; {OTHER};",
}
_GET = "<tool_call>\n" + WRITTEN + "\n</tool_call>"
MORE = [
    Form("text before", "hermes", f"I look.\n{_GET}", (CALL,), "I look.\n"),
    Form("text behind", "hermes", f"{_GET}\nDone.", (CALL,), "\nDone."),
    Form("several blocks", "hermes", f"{_GET}\n{_GET}\n", (CALL, CALL)),
    Form("a bracket too many", "hermes", f"<tool_call>\n{WRITTEN}}}\n</tool_call>", (CALL,)),
    Form("a bracket too few", "hermes", f"<tool_call>\n{WRITTEN[:-1]}\n</tool_call>Done.", (CALL,), "Done."),
    Form("a block that is not closed", "hermes", f"<tool_call>{WRITTEN}\n<tool_call>{OTHER}", (CALL, OTHER_CALL)),
    Form("text in a block", "hermes", f"<tool_call>{WRITTEN} or not</tool_call> So.", (CALL,), " or not So."),
    Form("text between", "hermes", f"{_GET}\nAnd\n{_GET}", (CALL, CALL), "\nAnd\n"),
    Form(
        "a call behind a broken one",
        "hermes",
        f"<tool_call>{{get}}</tool_call>{_GET}",
        (CALL,),
        "<tool_call>{get}</tool_call>",
    ),
    Form("text before", "llama3", f"Well. <|python_tag|>{WRITTEN};{OTHER}", (CALL, OTHER_CALL), "Well. "),
    Form("in a fence", "llama3", f"```\n{WRITTEN}\n```", (CALL,)),
    Form("a bracket too many", "llama3", f"{WRITTEN}}}", (CALL,)),
    Form("text behind", "json", f"```\n{WRITTEN}\n``` Done.", (CALL,), " Done."),
    Form("text before", "mistral", f"Well. [TOOL_CALLS][{WRITTEN}, {OTHER}]", (CALL, OTHER_CALL), "Well. "),
    Form("several lists", "mistral", f"[TOOL_CALLS] [{WRITTEN}][TOOL_CALLS] [{OTHER}]", (CALL, OTHER_CALL)),
    Form("several objects", "mistral", f"[TOOL_CALLS]{WRITTEN}\n[TOOL_CALLS]{OTHER}", (CALL, OTHER_CALL)),
    Form("named", "mistral", f"[TOOL_CALLS]get[ARGS]{ONE}", (CALL,)),
    Form("named, several", "mistral", f"[TOOL_CALLS]get[ARGS]{ONE}[TOOL_CALLS]f[ARGS]{TWO}", (CALL, OTHER_CALL)),
    Form("named, with an id", "mistral", f"[TOOL_CALLS]get[CALL_ID]ab12[ARGS]{ONE}", (CALL,)),
    Form("named, without a marker", "mistral", f"[TOOL_CALLS]get{ONE}", (CALL,)),
    Form("named, null", "mistral", "[TOOL_CALLS]get[ARGS]null", _get("{}")),
    Form("named, as a string", "mistral", '[TOOL_CALLS]get[ARGS]"{\\"a\\": \\"x\\"}"', (CALL,)),
    Form("named, mended", "mistral", '[TOOL_CALLS]get[ARGS]{"a": "x\n",}', _get('{"a": "x\\n"}')),
]
# No call: another tool, or arguments with no reading as an object, or with more than one.
BROKEN = {
    "an unknown tool": '{"name": "nope", "arguments": {}}',
    "a longer name": '{"name": "get_", "arguments": {}}',
    "no name": '{"arguments": {"a": 1}}',
    "a name only": '{"title": "get"}',
    "a string of no object": '{"name": "get", "arguments": "x"}',
    "a string of a list": '{"name": "get", "arguments": "[1]"}',
    "a list": '{"name": "get", "arguments": [1]}',
    "a number": '{"name": "get", "arguments": 3}',
    "bare words": '{"name": "get", "arguments": {a: x}}',
    "no comma": '{"name": "get", "arguments": {"a": 1 "b": 2}}',
    "a comma alone": '{"name": "get", "arguments": {"a": 1,, "b": 2}}',
    "NaN": '{"name": "get", "arguments": {"a": NaN}}',
    "a wrong bracket": '{"name": "get", "arguments": {"a": [1}}}',
    "an escaped newline": '{"name": "get", "arguments": {"a": "x\\\ny"}}',
    "quotes not escaped": '{"name": "get", "arguments": "{"a": "x"}"}',
    "no string's end": '{"name": "get", "arguments": {"a": "x}}',
    "code": "get(1)",
    "an empty list": "[]",
}

FORMS = [
    *(
        Form(f"{what}, {frame!r}", tool_format, frame.replace("{}", written), _get(arguments))
        for tool_format, frames in FRAMES.items()
        for frame in frames
        for what, (written, arguments) in OBJECTS.items()
        if frame == frames[0] or what in EVERYWHERE
    ),
    *(
        Form(f"{what}, {frame!r}", tool_format, frame.replace("{}", written), (CALL, OTHER_CALL))
        for tool_format, frames in FRAMES.items()
        for frame in frames
        for what, written in SEVERAL.items()
    ),
    *MORE,
    *(
        Form(
            f"{what}, {frames[0]!r}",
            tool_format,
            frames[0].replace("{}", written),
            (),
            frames[0].replace("{}", written),
        )
        for tool_format, frames in FRAMES.items()
        for what, written in BROKEN.items()
    ),
]
