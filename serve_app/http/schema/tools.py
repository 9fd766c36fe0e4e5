"""The fields of a chat request that offer tools to the model, and the grammar of an answer that has to call them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, StringConstraints, Tag, model_validator

from core.errors import InvalidRequest
from core.grammar.building import checked, engine_schema
from core.grammar.calls import Tool, after_reasoning, calls_grammar
from core.text.tokenizer import Tokenizer
from serve_app.http.schema.fields import Fields, field_error
from serve_app.http.schema.values import FAIL_FAST, TEXT, at_most

MAX_TOOLS = 128
_NAMED, _ALLOWED = "<named>", "<allowed>"
_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}


class FunctionFields(Fields):
    """A function that the model may call."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_-]{1,128}$")]
    description: str | None = Field(None, description="For the model: what the function does, and when to call it.")
    parameters: dict[str, Any] | None = Field(None, description="A JSON schema of an object; absent: no parameters.")
    strict: bool = Field(
        False, description="True: every call is valid against `parameters`, also where the model may choose to call."
    )

    @model_validator(mode="after")
    def _of_objects(self) -> FunctionFields:
        if (type_ := (self.parameters or _NO_PARAMETERS).get("type", "object")) != "object":
            raise field_error("parameters", f"the parameters must be a schema of an object, not of {type_!r:.40}")
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
        present = {key: value for key, value in shown.items() if value is not None}
        return {"type": "function", "function": {**present, "parameters": parameters}}


class NamedFunction(Fields):
    name: str


class NamedTool(Fields):
    type: Literal["function"]
    function: NamedFunction


class AllowedFunction(NamedFunction):
    """One of the tools by its name; the rest of its definition is in `tools`, and may be here again."""

    ignored = frozenset({"description", "parameters", "strict"})


class AllowedTool(Fields):
    type: Literal["function"]
    function: AllowedFunction


class AllowedToolsFields(Fields):
    mode: Literal["auto", "required"] = Field(description="Whether one of them may or must be called.")
    tools: Annotated[list[AllowedTool], FAIL_FAST, Field(min_length=1), at_most(MAX_TOOLS)] = Field(
        description="Those of `tools` that may be called; the prompt has all."
    )


class AllowedTools(Fields):
    type: Literal["allowed_tools"]
    allowed_tools: AllowedToolsFields


def _kind(value: Any) -> str | None:
    if isinstance(value, str):
        return TEXT
    if not isinstance(value, dict):
        return None
    return _ALLOWED if value.get("type") == "allowed_tools" else _NAMED


Tools = Annotated[list[ToolFields], FAIL_FAST, at_most(MAX_TOOLS)]
Choice = str | NamedTool | AllowedTools | None
ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag(TEXT)]
    | Annotated[NamedTool, Tag(_NAMED)]
    | Annotated[AllowedTools, Tag(_ALLOWED)],
    Discriminator(
        _kind,
        custom_error_type="kind",
        custom_error_message="must be none, auto, required, or an object that names a function or allowed_tools",
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


def check_choice(choice: Choice, tools: Sequence[ToolFields]) -> None:
    """Refuse the choice of a tool that there is not."""
    if choice == "required" and not tools:
        raise field_error("tool_choice", "tool_choice 'required' needs tools")
    names = {tool.function.name for tool in tools}
    for field, name in _chosen(choice).items():
        if name not in names:
            raise field_error(field, f"'{field}' is none of the {len(tools)} tools")


def _chosen(choice: Choice) -> dict[str, str]:
    """The names of tools in the choice, by their fields."""
    match choice:
        case NamedTool():
            return {"tool_choice.function.name": choice.function.name}
        case AllowedTools(allowed_tools=allowed):
            path = "tool_choice.allowed_tools.tools"
            return {f"{path}[{n}].function.name": tool.function.name for n, tool in enumerate(allowed.tools)}
    return {}


def callable_names(choice: Choice, tools: Sequence[ToolFields]) -> tuple[str, ...]:
    """The tools that an answer may call."""
    if choice == "none":
        return ()
    names = (tool.function.name for tool in tools)
    chosen = set(_chosen(choice).values())
    return tuple(name for name in names if not chosen or name in chosen)


def _must_call(choice: Choice) -> bool:
    if isinstance(choice, AllowedTools):
        return choice.allowed_tools.mode == "required"
    return choice == "required" or isinstance(choice, NamedTool)


def answer_grammar(
    tools: Sequence[ToolFields],
    choice: Choice,
    parallel: bool,
    content: str,
    tokenizer: Tokenizer,
    opened: bool,
) -> str:
    """What the answer must agree with; empty if it is free. Raises `InvalidRequest` for a schema that cannot be used.

    A call that must be made, and that of a strict tool, is valid against the tool's schema. No tool is called that the
    choice leaves out. Content agrees with the grammar `content`, if there is one. `opened` says whether the prompt has
    begun the reasoning.
    """
    form, reasoning, names = tokenizer.tool_format, tokenizer.reasoning, callable_names(choice, tools)
    if not names or form is None:
        return after_reasoning(content, reasoning, opened, tokenizer.marker_ids) if content and reasoning else content
    required = _must_call(choice)
    offered = {n: tool.function for n, tool in enumerate(tools) if tool.function.name in names}
    bound = required or content or len(offered) < len(tools)
    if not bound and parallel and not any(function.strict for function in offered.values()):
        return ""
    if content and not required and form.bare:
        message = "this model's calls cannot be told from other JSON; leave out tools, or the grammar of the answer"
        raise InvalidRequest("tools", message)
    grammar = calls_grammar(
        form,
        [_tool(number, function, enforced=required or function.strict) for number, function in offered.items()],
        required=required,
        parallel=parallel and not isinstance(choice, NamedTool),
        tokens=tokenizer.marker_ids,
        reasoning=reasoning,
        opened=opened,
        content=content,
    )
    return checked(grammar, "tools")


def _tool(number: int, function: FunctionFields, *, enforced: bool) -> Tool:
    """The tool for the grammar; raises `InvalidRequest` for a schema that cannot be used, if it is to be `enforced`."""
    parameters = {**_NO_PARAMETERS, "additionalProperties": False}
    if function.parameters is not None:
        parameters = {"type": "object", **function.parameters}
    field = f"tools[{number}].function.parameters"
    schema = engine_schema(parameters, field, strict=function.strict) if enforced else {}
    return Tool(function.name, schema, strict=function.strict)
