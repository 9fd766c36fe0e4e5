"""Takes an answer apart as it arrives: reasoning, content, calls of tools.

The text is read character by character, so the deltas of an answer joined are the same however it was cut. Nothing is
released before it is certain what it is, and nothing is taken back. So a call is released once its arguments are whole;
where a grammar holds it, as they are written. What begins like a call and is none becomes content, unless the answer
was cut there: nobody knows what it would have become.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from core.parsing import marks
from core.parsing.answer import (
    AnswerDelta,
    CallPart,
    CallsState,
    ContentPart,
    ParsedAnswer,
    Part,
    ReasoningPart,
    delta_of,
    whole_answer,
)
from core.parsing.arguments import mended, object_of
from core.parsing.character_reader import SPACES, CharacterReader, Steps
from core.parsing.formats import BARE, Reasoning, ToolFormat
from core.parsing.marks import without_marks

_ARGUMENTS = ("arguments", "parameters")
_KEYS = ("name", *_ARGUMENTS, "type", "id")  # of an object that may be a call
_OUTER_KEYS = (*_KEYS, "function")  # and of one around it
_FENCE = "```"
_SEPARATORS = ",;"
_BEHIND_CALLS = _SEPARATORS + "}]"  # what says nothing there


class AnswerStream(CharacterReader):
    """One answer. A name not in `names` is no call; without a `tool_format` nothing is. A grammar may hold the
    calls: `held`.

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
        held: bool = False,
    ) -> None:
        self._names = tuple(names)
        self._special_tokens = special_tokens
        self._calls_are_held = held
        super().__init__()
        self._parts: list[Part] = []  # those that are new, in characters
        self._num_calls = 0
        self._cut = False
        self._inside = False  # what is held belongs to calls
        self._calling = False  # in a call that is not whole
        self._steps = self._answer(tool_format, reasoning, opened)

    @property
    def calls(self) -> CallsState:
        """Whether the answer so far has calls, all of them whole."""
        if self._calling:
            return "cut"
        return "whole" if self._num_calls else "none"

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

    def cut(self, following: str = "") -> AnswerDelta:
        """What was held back where the answer was cut, but for the beginning of a marker or of a call.

        `following` is what it would have gone on with, as far as anybody knows.
        """
        self._cut, self._following = True, following
        return self.finish()

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
                yield from self._text(marks.TOOL_CALL, self._calls, marks.END_TOOL_CALL)
            case "mistral":
                yield from self._text(marks.TOOL_CALLS, self._listed_or_named)
            case "llama3":
                yield from self._bare_calls(BARE[tool_format])
                yield from self._text(marks.PYTHON_TAG, self._calls)
            case "json":
                yield from self._bare_calls(BARE[tool_format])
        while self._char:
            yield from self._say_next()
        self._give_up()

    # Releasing.

    def _say_next(self) -> Steps[None]:
        self._give_up()
        self._parts.append(ContentPart(self._char))
        yield from self._next()

    def _give_up(self) -> None:
        """What is held is content, unless it was cut, or says nothing between the last call and the end."""
        if self._was_cut():
            self._held.clear()
        elif self._char or not self._num_calls or not SPACES.union(_BEHIND_CALLS).issuperset(self._held):
            self._parts.append(ContentPart("".join(self._held)))
            self._calling = self._calling and not self._held
        self._held.clear()
        self._inside = False

    def _was_cut(self) -> bool:
        """Whether this is the end of an answer that was cut in a marker or a call."""
        return self._cut and not self._char and (self._begun or self._inside)

    # Reasoning.

    def _reasoned(self, reasoning: Reasoning, opened: bool) -> Steps[None]:
        """Reasoning and the spaces around it, if there is any."""
        if not opened:
            yield from self._spaces()
            if (yield from self._read(reasoning.begin)) is None:
                if not self._was_cut():
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
        if not self._was_cut():
            self._parts.append(ReasoningPart("".join(self._held)))
        self._held.clear()

    # Where calls may stand.

    def _text(self, marker: str, calls: Callable[[], Steps[bool]], end: str | None = None) -> Steps[None]:
        """Content in which `marker` opens calls, up to `end`; spaces before and between calls are dropped."""
        markers: tuple[str, ...] = (marker,)
        while self._char:
            yield from self._spaces(_BEHIND_CALLS if self._num_calls else "")
            while self._char:
                if not any(map(self._begins, markers)):
                    yield from self._say_next()
                    continue
                opening = yield from self._read(*markers)
                if opening is not None and opening == end:
                    self._held.clear()
                    markers, self._inside = (marker,), False
                    break
                if opening:
                    self._inside = self._calling = True
                    if (yield from calls()):
                        markers = (marker,) if end is None else (marker, end)
                        break
                self._give_up()

    def _listed_or_named(self) -> Steps[bool]:
        yield from self._spaces()
        called = yield from (self._calls() if self._char in ("[", "{", "`") else self._named())
        return called

    def _bare_calls(self, openings: str) -> Steps[None]:
        """Calls at the beginning of the answer; those that a grammar holds begin with one of the `openings`."""
        yield from self._spaces()
        if self._calls_are_held:
            if not self._char or self._char not in openings:
                return
            self._inside = self._calling = True
        if (yield from self._calls()):
            yield from self._spaces()
        elif not SPACES.issuperset(self._held):
            self._give_up()

    def _calls(self) -> Steps[bool]:
        """Calls, or a list of calls, perhaps in a fence. True if there is one; what is held then is no part of any."""
        yield from self._spaces()
        fenced = self._char == _FENCE[0]
        if fenced:
            if not (yield from self._read(_FENCE)) or (self._char == "j" and not (yield from self._read("json"))):
                return False
            yield from self._spaces()
        called = yield from self._sequence(self._object_or_list)
        if called:
            yield from self._spaces(_BEHIND_CALLS)
        if called and fenced and self._char == _FENCE[0] and (yield from self._read(_FENCE)):
            self._held.clear()
        return called

    def _sequence(self, one: Callable[[], Steps[bool]]) -> Steps[bool]:
        """One after another, perhaps with a comma or a semicolon between; True if there is any."""
        called = False
        while (yield from one()):
            called = True
            yield from self._spaces()
            if self._char and self._char in _SEPARATORS:
                yield from self._hold()
                yield from self._spaces()
            if self._char != "{":  # a bracket may begin a marker
                break
        return called

    def _object_or_list(self) -> Steps[bool]:
        if self._char != "[":
            return (yield from self._object())
        yield from self._hold()
        yield from self._spaces()
        called = yield from self._sequence(self._object)
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
        marked = self._begins(marks.ARGS) or self._begins(marks.CALL_ID)
        if marked:
            marker = yield from self._read(marks.ARGS, marks.CALL_ID)
            if marker == marks.CALL_ID:
                while self._char.isalnum():
                    yield from self._hold()
                marker = yield from self._read(marks.ARGS)
            if marker is None:
                return False
        yield from self._spaces()
        return (marked or self._char == "{") and (yield from self._arguments(name)) is not None

    def _object(self, keys: Collection[str] = _OUTER_KEYS) -> Steps[bool]:
        """An object with a name, and perhaps arguments. True once it is a call; what is held then is no part of it."""
        name, arguments, between = None, None, "{"
        self._calling = self._inside
        while self._char == between:
            between = ","
            key = yield from self._member(keys)
            if key is None:
                break
            if key == "function":
                return (yield from self._object(_KEYS)) and (yield from self._rest_of_object())
            if key in _ARGUMENTS:
                if (arguments := (yield from self._arguments(name))) is None:
                    return False
            elif key == "name":
                if (name := (yield from self._string(self._names))) is None:
                    return False
                if arguments is not None:
                    self._open(name, arguments)
            elif not (yield from self._any_string()):
                return False
            if name is not None and arguments is not None:
                return (yield from self._rest_of_object())
            yield from self._spaces()
        return name is not None and (yield from self._without_arguments(name))

    def _member(self, keys: Collection[str]) -> Steps[str | None]:
        """The key of a member, held with all that comes before its value; None if no call has such a member."""
        yield from self._hold()
        yield from self._spaces()
        key = yield from self._string(keys)
        yield from self._spaces()
        if key is None or self._char != ":":
            return None
        if key == "name" or key in _ARGUMENTS:
            self._inside = self._calling = True
        yield from self._hold()
        yield from self._spaces()
        return key

    def _without_arguments(self, name: str) -> Steps[bool]:
        if self._char != "}":
            return False
        yield from self._hold()
        self._open(name, object_of("null") or "")
        return True

    def _rest_of_object(self) -> Steps[bool]:
        """What follows the arguments up to the end of the object; further members say nothing."""
        yield from self._spaces()
        if self._char == ",":
            if (yield from self._brackets(self._held.append, closing="}")):
                self._held.clear()
        elif self._char == "}":
            yield from self._hold()
            self._held.clear()
        return True

    def _arguments(self, name: str | None) -> Steps[str | None]:
        """The JSON of arguments, None if they are none. If the `name` is known, the call is released."""
        if self._calls_are_held and name is not None and self._char == "{":
            self._open(name, "")
            self._calling = not (yield from self._brackets(self._argue))
            return ""
        begin = len(self._held)
        if self._char == "{":
            ended = yield from self._brackets(self._held.append)
        else:
            ended = (yield from self._any_string()) or bool((yield from self._read("null")))
        written = "".join(self._held[begin:])
        arguments = object_of(written) if ended else None
        if name is not None and arguments is not None:
            self._open(name, arguments)
        elif name is not None and not ended and self._cut and not self._char:
            self._open(name, mended(written) if written.startswith("{") else "")
            self._calling = True
        return arguments

    def _argue(self, text: str) -> None:
        self._parts.append(CallPart(self._num_calls - 1, None, text))

    def _open(self, name: str, arguments: str) -> None:
        self._parts.append(CallPart(self._num_calls, name, arguments))
        self._num_calls += 1
        self._held.clear()
        self._calling = False


def parse(text: str, stream: AnswerStream) -> ParsedAnswer:
    """A whole answer; `stream` is a fresh one."""
    return whole_answer([stream.push(text), stream.finish()])
