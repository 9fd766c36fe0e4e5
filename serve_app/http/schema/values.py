"""Types of the request fields that take more than one kind of value.

A body may contain a million entries where four are allowed: the lengths of lists and maps are checked first, and their
entries only up to the first error.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, StringConstraints, Tag
from pydantic_core import PydanticCustomError

from core.sampling.params import MAX_BIAS, MAX_PENALTY, MAX_STOP_IDS, MAX_STOPS, MAX_TOP_LOGPROBS

MAX_PROMPTS = 2048
MAX_MESSAGES = 4096
MAX_PARTS = 1024  # of a message
MAX_OBJECTS = 8192  # of a conversation: messages or items, and the parts, blocks and calls in them
MAX_BIASED_TOKENS = 1024

FAIL_FAST = Field(fail_fast=True)

# Tags in angle brackets are left out of the path that an error names.
TEXT, TEXTS, TOKENS, TOKEN_LISTS, PARTS = "<text>", "<texts>", "<tokens>", "<token lists>", "<parts>"
_CONTENTS = ("content", "tool_calls", "output")  # the fields that have the lists within a conversation
_TAGS: dict[type, str] = {str: TEXTS, int: TOKENS, list: TOKEN_LISTS, dict: PARTS}


def kind(value: Any) -> str | None:
    if isinstance(value, str):
        return TEXT
    if not isinstance(value, list):
        return None
    return _TAGS.get(type(value[0])) if value else None


def takes(kinds: str, *, empty: str = TEXTS) -> Discriminator:
    """Tells values apart by their kind; `empty` is that of a list without entries."""
    return Discriminator(
        lambda value: empty if value == [] else kind(value),
        custom_error_type="kind",
        custom_error_message=f"must be {kinds}",
    )


def at_most(limit: int) -> BeforeValidator:
    """Refuse a longer list or map before its entries are validated."""

    def check(value: Any) -> Any:
        if isinstance(value, list | dict) and len(value) > limit:
            raise PydanticCustomError("too_many", f"must have at most {limit} entries")
        return value

    return BeforeValidator(check)


def _conversation(value: Any) -> Any:
    """Refuse a conversation with too many objects in all before any is validated, as each takes its time."""
    lists, count = [value], 0
    while lists:
        entries = lists.pop()
        if not isinstance(entries, list):
            continue
        count += len(entries)
        if count > MAX_OBJECTS:
            raise PydanticCustomError("too_many", f"must have at most {MAX_OBJECTS} messages, parts and calls in all")
        objects = (entry for entry in entries if isinstance(entry, dict))
        lists += [entry[name] for entry in objects for name in _CONTENTS if name in entry]
    return value


CONVERSATION = BeforeValidator(_conversation)


def _biased_tokens(bias: dict[str, float]) -> dict[str, float]:
    for key in bias:
        if not (key.isascii() and key.isdigit() and len(key) < 10):
            raise PydanticCustomError("token_id", "keys must be token ids written in decimal digits")
    return bias


NonEmpty = Annotated[str, StringConstraints(min_length=1)]
Stop = Annotated[
    Annotated[NonEmpty, Tag(TEXT)] | Annotated[list[NonEmpty], at_most(MAX_STOPS), Tag(TEXTS)],
    takes("a string or a list of strings"),
]
StopTokens = Annotated[list[int], FAIL_FAST, at_most(MAX_STOP_IDS)]
Prompt = Annotated[
    Annotated[str, Tag(TEXT)]
    | Annotated[list[str], FAIL_FAST, at_most(MAX_PROMPTS), Tag(TEXTS)]
    | Annotated[list[int], FAIL_FAST, Tag(TOKENS)]
    | Annotated[list[Annotated[list[int], FAIL_FAST]], FAIL_FAST, at_most(MAX_PROMPTS), Tag(TOKEN_LISTS)],
    takes("a string, a list of strings, a list of token ids or a list of such lists"),
]
Received = Annotated[
    Annotated[str, Tag(TEXT)] | Annotated[list[int], FAIL_FAST, Tag(TOKENS)],
    takes("a string or a list of token ids", empty=TOKENS),
]
LogitBias = Annotated[
    dict[str, Annotated[float, Field(ge=-MAX_BIAS, le=MAX_BIAS)]],
    at_most(MAX_BIASED_TOKENS),
    AfterValidator(_biased_tokens),
]
TopLogprobs = Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)]
Penalty = Annotated[float, Field(ge=-MAX_PENALTY, le=MAX_PENALTY)]
