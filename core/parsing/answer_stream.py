"""Takes an answer apart as it arrives: reasoning, content, calls of tools.

The text is read character by character, so the deltas of an answer joined are the same however it was cut. Nothing is
released before it is certain what it is, and nothing is taken back. A call is certain once its name is one of the
tools' and its arguments begin; from there on its arguments are released as they are written, broken or not. What
begins like a call and is none becomes content.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from core.parsing import marks
from core.parsing.answer import (
    AnswerDelta,
    CallPart,
    ContentPart,
    ParsedAnswer,
    Part,
    ReasoningPart,
    delta_of,
    whole_answer,
)
from core.parsing.character_reader import SPACES, CharacterReader, Steps
from core.parsing.formats import Reasoning, ToolFormat
from core.parsing.marks import without_marks

_ARGUMENTS = ("arguments", "parameters")
_KEYS = ("name", *_ARGUMENTS, "type", "id")  # of an object that may be a call


class AnswerStream(CharacterReader):
    """One answer. A name not in `names` is no call; without a `tool_format` nothing is.

    With `reasoning` the answer may begin with it; if `opened`, the prompt has written the marker that begins it. Marks
    in the text that turn out to be content are left out, unless `special_tokens` are to be shown.
    """

    def __init__(
        self,
        tool_format: ToolFormat | None = None,
        names: Collection[str] = (),
        reasoning: Reasoning | None = None,
        opened: bool = False,
        special_tokens: bool = False,
    ) -> None:
        self._names = tuple(names)
        self._special_tokens = special_tokens
        super().__init__()
        self._parts: list[Part] = []  # those that are new, in characters
        self._num_calls = 0
        self._steps = self._answer(tool_format, reasoning, opened)

    def push(self, text: str) -> AnswerDelta:
        """What the next characters of the answer make certain."""
        for self._char in text:
            next(self._steps)
        return self._new()

    def finish(self) -> AnswerDelta:
        """What was held back, at the end of the answer."""
        self._char = ""
        next(self._steps, None)
        return self._new()

    def _new(self) -> AnswerDelta:
        delta = delta_of(self._shown(part) for part in delta_of(self._parts).parts)
        self._parts.clear()
        return delta

    def _shown(self, part: Part) -> Part:
        if isinstance(part, CallPart):
            arguments = without_marks(part.arguments, written_out=self._special_tokens)
            return CallPart(part.index, part.name, arguments)
        return type(part)(without_marks(part.text, written_out=self._special_tokens))

    def _answer(self, tool_format: ToolFormat | None, reasoning: Reasoning | None, opened: bool) -> Steps[None]:
        if reasoning is not None:
            yield from self._reasoned(reasoning, opened)
        match tool_format:
            case "hermes":
                yield from self._text(marks.TOOL_CALL, self._tagged)
            case "mistral":
                yield from self._text(marks.TOOL_CALLS, self._listed_or_named)
            case "llama3":
                yield from self._spaces()
                if self._char == "{" and not (yield from self._objects()):
                    self._give_up()
                yield from self._text(marks.PYTHON_TAG, self._objects)
            case "json":
                yield from self._only_calls()
        while self._char:
            yield from self._say_next()
        self._give_up()

    # Releasing.

    def _say_next(self) -> Steps[None]:
        self._give_up()
        self._parts.append(ContentPart(self._char))
        yield from self._next()

    def _give_up(self) -> None:
        """What is held is content, but for spaces between the last call and the end."""
        if self._char or not self._num_calls or not SPACES.issuperset(self._held):
            self._parts.append(ContentPart("".join(self._held)))
        self._held.clear()

    # Reasoning.

    def _reasoned(self, reasoning: Reasoning, opened: bool) -> Steps[None]:
        """Reasoning and the spaces around it, if there is any."""
        if not opened:
            yield from self._spaces()
            if (yield from self._read(reasoning.begin)) is None:
                self._read_again()
                return
        yield from self._spaces()
        self._held.clear()
        while self._char:
            if self._begins(reasoning.end) and (yield from self._read(reasoning.end)):
                yield from self._spaces()
                self._held.clear()
                return
            if self._held and not SPACES.issuperset(self._held):  # the beginning of the marker, and no more
                self._think()
            elif self._char in SPACES:
                yield from self._spaces()
            elif self._char:
                self._held.append(self._char)
                self._think()
                yield from self._next()
        self._think()

    def _think(self) -> None:
        self._parts.append(ReasoningPart("".join(self._held)))
        self._held.clear()

    # Where calls may stand.

    def _text(self, marker: str, calls: Callable[[], Steps[bool]]) -> Steps[None]:
        """Content in which `marker` opens calls; spaces before and between calls are dropped."""
        while self._char:
            yield from self._spaces()
            while self._char:
                if self._begins(marker):
                    if (yield from self._read(marker)) and (yield from calls()):
                        break
                    self._give_up()
                else:
                    yield from self._say_next()

    def _tagged(self) -> Steps[bool]:
        """A call or a list of calls up to </tool_call>."""
        yield from self._spaces()
        called = yield from (self._list() if self._char == "[" else self._object())
        if called:
            yield from self._spaces()
            if (yield from self._read(marks.END_TOOL_CALL)):
                self._held.clear()
            self._give_up()
        return called

    def _listed_or_named(self) -> Steps[bool]:
        yield from self._spaces()
        if self._char == "[":
            called = yield from self._list()
        else:
            called = yield from (self._object() if self._char == "{" else self._named())
        return called

    def _only_calls(self) -> Steps[None]:
        """Calls, or a list of them, perhaps in a fence, at the beginning of the answer."""
        yield from self._spaces()
        fenced = self._char == "`"
        if fenced and not ((yield from self._read("```")) and (self._char != "j" or (yield from self._read("json")))):
            return
        yield from self._spaces()
        called = yield from (self._list() if self._char == "[" else self._objects())
        if called and fenced:
            yield from self._spaces()
            if (yield from self._read("```")):
                self._held.clear()
        if called:
            yield from self._spaces()

    def _objects(self) -> Steps[bool]:
        """Calls one after another, perhaps with a semicolon between."""
        yield from self._spaces()
        called = False
        while (yield from self._object()):
            called = True
            yield from self._spaces()
            if self._char == ";":
                yield from self._hold()
                yield from self._spaces()
            if self._char != "{":
                return True
        if called:
            self._give_up()
        return called

    def _list(self) -> Steps[bool]:
        """True if there is at least one call; what is held then is no part of it."""
        called, between = False, "["
        while self._char == between:
            yield from self._hold()
            yield from self._spaces()
            if not (yield from self._object()):
                if called:
                    self._give_up()
                return called
            called, between = True, ","
            yield from self._spaces()
        if called and self._char == "]":
            yield from self._hold()
            self._held.clear()
        return called

    # One call.

    def _named(self) -> Steps[bool]:
        """`name[ARGS]{...}`, perhaps with an id between."""
        name = yield from self._word(self._names)
        if name not in self._names:
            return False
        if self._begins(marks.ARGS):
            marker = yield from self._read(marks.ARGS, marks.CALL_ID)
            if marker == marks.CALL_ID:
                while self._char.isalnum():
                    yield from self._hold()
                marker = yield from self._read(marks.ARGS)
            if marker is None:
                return False
        yield from self._spaces()
        if self._char != "{":
            return False
        yield from self._call(name)
        return True

    def _object(self) -> Steps[bool]:
        """An object with a name and arguments. True once it is a call; what is held then is no part of it."""
        name, arguments, between = None, "", "{"
        while self._char == between:
            between = ","
            yield from self._hold()
            key = yield from self._member()
            if key is None:
                return False
            if key in _ARGUMENTS:
                if self._char != "{":
                    return False
                if name is not None:
                    yield from self._call(name)
                    yield from self._rest_of_object()
                    return True
                begin = len(self._held)
                yield from self._braces(self._held.append)
                arguments = "".join(self._held[begin:])
            elif key == "name":
                if (name := (yield from self._string(self._names))) is None:
                    return False
                if arguments:
                    self._open(name, arguments)
                    yield from self._rest_of_object()
                    return True
            elif not (yield from self._any_string()):
                return False
            yield from self._spaces()
        return False

    def _member(self) -> Steps[str | None]:
        """The key of a member, held with all that comes before its value; None if no call has such a member."""
        yield from self._spaces()
        key = yield from self._string(_KEYS)
        yield from self._spaces()
        if key is None or self._char != ":":
            return None
        yield from self._hold()
        yield from self._spaces()
        return key

    def _rest_of_object(self) -> Steps[None]:
        """What follows the arguments up to the end of the object; further members say nothing."""
        yield from self._spaces()
        if self._char == ",":
            yield from self._braces(self._held.append, depth=1)
            if self._held[-1] == "}":
                self._held.clear()
        elif self._char == "}":
            yield from self._hold()
            self._held.clear()

    def _call(self, name: str) -> Steps[None]:
        self._open(name, "")
        yield from self._braces(self._argue)

    def _argue(self, text: str) -> None:
        self._parts.append(CallPart(self._num_calls - 1, None, text))

    def _open(self, name: str, arguments: str) -> None:
        self._parts.append(CallPart(self._num_calls, name, arguments))
        self._num_calls += 1
        self._held.clear()


def parse(text: str, stream: AnswerStream) -> ParsedAnswer:
    """A whole answer; `stream` is a fresh one."""
    return whole_answer([stream.push(text), stream.finish()])
