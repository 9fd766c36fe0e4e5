"""Reads calls in JSON, and the text around them, out of an answer that arrives character by character.

Nothing is released before it is certain what it is, and nothing is taken back. So a call is released once its arguments
are whole; where a grammar constrains it, as they are written. What begins like a call and is none becomes content,
unless the answer was cut there: nobody knows what it would have become.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from core.tools.answer import CallPart, ContentPart, Part
from core.tools.arguments import mended, object_of
from core.tools.character_reader import SPACES, CharacterReader, Steps

_ARGUMENTS = ("arguments", "parameters")
_KEYS = ("name", *_ARGUMENTS, "type", "id")  # of an object that may be a call
_OUTER_KEYS = (*_KEYS, "function")  # and of one around it
_FENCE = "```"
_SEPARATORS = ",;"
_BEHIND_CALLS = _SEPARATORS + "}]"  # what says nothing there


class CallReader(CharacterReader):
    """What the formats of calls read answers with. A name that is not in `names` is no call.

    `constrained` says whether the calls are written by a grammar.
    """

    def __init__(self, names: Collection[str], constrained: bool) -> None:
        super().__init__()
        self.names = tuple(names)
        self._constrained = constrained
        self._parts: list[Part] = []  # those that are new, in characters
        self._num_calls = 0
        self._cut = False
        self._inside = False  # what is pending belongs to calls
        self._calling = False  # in a call that is not whole

    # ---- where calls may stand

    def text_with_calls(self, opening: str, block: Callable[[], Steps[bool]], closing: str = "") -> Steps[None]:
        """Content in which the marker `opening` begins a `block` of calls, which ends with `closing` if there is one.

        Spaces before and between calls are dropped.
        """
        markers: tuple[str, ...] = (opening,)
        while self.char:
            yield from self.spaces(_BEHIND_CALLS if self._num_calls else "")
            while self.char:
                if not any(map(self.begins, markers)):
                    yield from self._release_next()
                    continue
                marker = yield from self.read(*markers)
                if marker and marker == closing:
                    self.pending.clear()
                    markers, self._inside = (opening,), False
                    break
                if marker:
                    self._inside = self._calling = True
                    if (yield from block()):
                        markers = (opening, closing) if closing else (opening,)
                        break
                self._give_up()

    def bare_calls(self, openings: str) -> Steps[None]:
        """Calls at the beginning of the answer; those that a grammar constrains begin with one of the `openings`."""
        yield from self.spaces()
        if self._constrained:
            if not self.char or self.char not in openings:
                return
            self._inside = self._calling = True
        if (yield from self.json_calls()):
            yield from self.spaces()
        elif not SPACES.issuperset(self.pending):
            self._give_up()

    def json_calls(self) -> Steps[bool]:
        """Calls, or a list of calls, perhaps in a fence.

        True if there is one; what is pending then is no part of any.
        """
        yield from self.spaces()
        fenced = self.char == _FENCE[0]
        if fenced:
            if not (yield from self.read(_FENCE)) or (self.char == "j" and not (yield from self.read("json"))):
                return False
            yield from self.spaces()
        called = yield from self._sequence(self._object_or_list)
        if called:
            yield from self.spaces(_BEHIND_CALLS)
        if called and fenced and self.char == _FENCE[0] and (yield from self.read(_FENCE)):
            self.pending.clear()
        return called

    def _sequence(self, item: Callable[[], Steps[bool]]) -> Steps[bool]:
        """Items, perhaps with a comma or a semicolon between; True if there is any."""
        called = False
        while (yield from item()):
            called = True
            yield from self.spaces()
            if self.char and self.char in _SEPARATORS:
                yield from self.hold()
                yield from self.spaces()
            if self.char != "{":  # a bracket may begin a marker
                break
        return called

    def _object_or_list(self) -> Steps[bool]:
        if self.char != "[":
            return (yield from self._object())
        yield from self.hold()
        yield from self.spaces()
        called = yield from self._sequence(self._object)
        if called and self.char == "]":
            yield from self.hold()
            self.pending.clear()
        return called

    # ---- one call

    def _object(self, keys: Collection[str] = _OUTER_KEYS) -> Steps[bool]:
        """An object with a name, and perhaps arguments.

        True once it is a call; what is pending then is no part of it.
        """
        name, arguments, between = None, None, "{"
        self._calling = self._inside
        while self.char == between:
            between = ","
            key = yield from self._member(keys)
            if key is None:
                break
            if key == "function":
                return (yield from self._object(_KEYS)) and (yield from self._rest_of_object())
            if key in _ARGUMENTS:
                if (arguments := (yield from self.call_arguments(name))) is None:
                    return False
            elif key == "name":
                if (name := (yield from self.quoted(self.names))) is None:
                    return False
                if arguments is not None:
                    self._open(name, arguments)
            elif not (yield from self.any_string()):
                return False
            if name is not None and arguments is not None:
                return (yield from self._rest_of_object())
            yield from self.spaces()
        return name is not None and (yield from self._without_arguments(name))

    def _member(self, keys: Collection[str]) -> Steps[str | None]:
        """The key of a member, pending with all that comes before its value; None if no call has such a member."""
        yield from self.hold()
        yield from self.spaces()
        key = yield from self.quoted(keys)
        yield from self.spaces()
        if key is None or self.char != ":":
            return None
        if key == "name" or key in _ARGUMENTS:
            self._inside = self._calling = True
        yield from self.hold()
        yield from self.spaces()
        return key

    def _without_arguments(self, name: str) -> Steps[bool]:
        if self.char != "}":
            return False
        yield from self.hold()
        self._open(name, object_of("null") or "")
        return True

    def _rest_of_object(self) -> Steps[bool]:
        """What follows the arguments up to the end of the object; further members say nothing."""
        yield from self.spaces()
        if self.char == ",":
            if (yield from self.brackets(self.pending.append, closing="}")):
                self.pending.clear()
        elif self.char == "}":
            yield from self.hold()
            self.pending.clear()
        return True

    def call_arguments(self, name: str | None) -> Steps[str | None]:
        """The JSON of arguments, None if they are none. If the `name` is known, the call is released."""
        if self._constrained and name is not None and self.char == "{":
            self._open(name, "")
            self._calling = not (yield from self.brackets(self._release_argument))
            return ""
        begin = len(self.pending)
        if self.char == "{":
            ended = yield from self.brackets(self.pending.append)
        else:
            ended = (yield from self.any_string()) or bool((yield from self.read("null")))
        written = "".join(self.pending[begin:])
        arguments = object_of(written) if ended else None
        if name is not None and arguments is not None:
            self._open(name, arguments)
        elif name is not None and not ended and self._cut and not self.char:
            self._open(name, mended(written) if written.startswith("{") else "")
            self._calling = True
        return arguments

    # ---- releasing

    def _open(self, name: str, arguments: str) -> None:
        self._parts.append(CallPart(self._num_calls, name, arguments))
        self._num_calls += 1
        self.pending.clear()
        self._calling = False

    def _release_argument(self, char: str) -> None:
        self._parts.append(CallPart(self._num_calls - 1, None, char))

    def _release_next(self) -> Steps[None]:
        self._give_up()
        self._parts.append(ContentPart(self.char))
        yield from self.advance()

    def _give_up(self) -> None:
        """What is pending is content, unless it was cut, or says nothing between the last call and the end."""
        if self._was_cut():
            self.pending.clear()
        elif self.char or not self._num_calls or not SPACES.union(_BEHIND_CALLS).issuperset(self.pending):
            self._parts.append(ContentPart("".join(self.pending)))
            self._calling = self._calling and not self.pending
        self.pending.clear()
        self._inside = False

    def _was_cut(self) -> bool:
        """Whether this is the end of an answer that was cut in a marker or a call."""
        return self._cut and not self.char and (self._in_marker or self._inside)
