"""The fields of a chat request that offer tools to the model, and the grammar of an answer that has to call them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, StringConstraints, Tag, model_validator

from core.errors import InvalidRequest
from core.grammar.building import checked, engine_schema
from core.parsing.calls_grammar import Tool, after_reasoning, begins_with_marker, calls_grammar
from core.text.tokenizer import Tokenizer
from serve_app.openai.fields import Fields, field_error
from serve_app.openai.values import FAIL_FAST, TEXT, at_most

MAX_TOOLS = 128
_NAMED = "<named>"
_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}


class FunctionFields(Fields):
    """A function that the model may call."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    description: str | None = Field(None, description="For the model: what the function does, and when to call it.")
    parameters: dict[str, Any] | None = Field(None, description="A JSON schema of an object; absent: no parameters.")
    strict: bool = Field(
        False, description="True: every call is valid against `parameters`, also where the model may choose to call."
    )

    @model_validator(mode="after")
    def _of_objects(self) -> FunctionFields:
        if (given := (self.parameters or _NO_PARAMETERS).get("type", "object")) != "object":
            raise field_error("parameters", f"the parameters must be a schema of an object, not of {given!r:.40}")
        return self


class ToolFields(Fields):
    type: Literal["function"] = Field(description="Other tools are not supported.")
    function: FunctionFields

    @property
    def for_template(self) -> dict[str, Any]:
        """The tool as chat templates take it."""
        function = self.function
        shown = {"name": function.name, "description": function.description}
        parameters = function.parameters if function.parameters is not None else _NO_PARAMETERS
        given = {key: value for key, value in shown.items() if value is not None}
        return {"type": "function", "function": {**given, "parameters": parameters}}


class NamedFunction(Fields):
    name: str


class NamedTool(Fields):
    type: Literal["function"]
    function: NamedFunction


def _kind(value: Any) -> str | None:
    if isinstance(value, str):
        return TEXT
    return _NAMED if isinstance(value, dict | NamedTool) else None


Tools = Annotated[list[ToolFields], FAIL_FAST, at_most(MAX_TOOLS)]
ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag(TEXT)] | Annotated[NamedTool, Tag(_NAMED)],
    Discriminator(
        _kind,
        custom_error_type="kind",
        custom_error_message="must be none, auto, required, or an object that names a function",
    ),
]


def check_names(tools: Sequence[ToolFields]) -> None:
    """Refuse names that are given twice."""
    names: set[str] = set()
    for number, tool in enumerate(tools):
        if tool.function.name in names:
            message = f"there is another tool named '{tool.function.name}'; names must differ"
            raise field_error(f"tools[{number}].function.name", message)
        names.add(tool.function.name)


def check_choice(choice: str | NamedTool | None, tools: Sequence[ToolFields]) -> None:
    """Refuse the choice of a tool that there is not."""
    if choice == "required" and not tools:
        raise field_error("tool_choice", "tool_choice 'required' needs tools")
    if isinstance(choice, NamedTool) and choice.function.name not in {tool.function.name for tool in tools}:
        raise field_error("tool_choice.function.name", f"'tool_choice.function.name' is none of the {len(tools)} tools")


def answer_grammar(
    tools: Sequence[ToolFields],
    choice: str | NamedTool | None,
    parallel: bool,
    content: str,
    tokenizer: Tokenizer,
    opened: bool,
) -> str:
    """What the answer must agree with; empty if it is free. Raises `InvalidRequest` for a schema that cannot be used.

    A call that must be made, and that of a strict tool, is valid against the tool's schema. Content agrees with the
    grammar `content`, if there is one. `opened` says whether the prompt has begun the reasoning.
    """
    form, reasoning = tokenizer.tool_format, tokenizer.reasoning
    if not tools or form is None or choice == "none":
        return after_reasoning(content, reasoning, opened, tokenizer.marker_ids) if content and reasoning else content
    required = choice == "required" or isinstance(choice, NamedTool)
    if not (required or content) and parallel and not any(tool.function.strict for tool in tools):
        return ""
    if content and not required and not begins_with_marker(form):
        message = "this model's calls cannot be told from other JSON; leave out tools, or the grammar of the answer"
        raise InvalidRequest("tools", message)
    named = choice.function.name if isinstance(choice, NamedTool) else None
    offered = {n: tool.function for n, tool in enumerate(tools) if named in (None, tool.function.name)}
    grammar = calls_grammar(
        form,
        [_tool(number, function, enforced=required or function.strict) for number, function in offered.items()],
        required=required,
        parallel=parallel and named is None,
        tokens=tokenizer.marker_ids,
        reasoning=reasoning,
        opened=opened,
        content=content,
    )
    return checked(grammar, "tools")


def _tool(number: int, function: FunctionFields, *, enforced: bool) -> Tool:
    """The tool for the grammar; raises `InvalidRequest` for a schema that cannot be used, if it is to be `enforced`."""
    given = function.parameters
    parameters = {**_NO_PARAMETERS, "additionalProperties": False} if given is None else {"type": "object", **given}
    field = f"tools[{number}].function.parameters"
    held = engine_schema(parameters, field, strict=function.strict) if enforced else {}
    return Tool(function.name, held, strict=function.strict)
