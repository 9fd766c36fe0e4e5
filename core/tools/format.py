"""What a format of calls is: all that belongs to how one family of models calls tools.

The rest of the program asks a format, and never which one it is. What differs from one to another is declared in its
class, or overridden there: see `core.tools.formats`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from core.tools.call_reader import CallReader
from core.tools.character_reader import Steps
from core.tools.lark import Lark


class ToolFormat(ABC):
    """One format, which has no state. As it is here, a call is a JSON object of a name and arguments.

    An answer has calls in one of two ways. In a format with `bare`, an answer that begins with one of these characters
    is calls and nothing else. In others each call, or each list of them, stands in the text, behind the marker
    `opening` and up to `closing`, if there is one. A format with `bare` may have an `opening`, too: it is read, but
    grammars do not write it.
    """

    name: ClassVar[str]
    """Its name in configurations."""

    opening: ClassVar[str] = ""
    closing: ClassVar[str] = ""
    bare: ClassVar[str] = ""
    arguments_key: ClassVar[str] = "arguments"

    # ---- the prompt

    @abstractmethod
    def is_asked_for(self, template: str) -> bool:
        """Whether a chat template, which takes tools, asks for calls in this format."""

    def template_message(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """A message, perhaps with calls or a result, as chat templates of this format take it."""
        return message

    @abstractmethod
    def shown(self, calls: Sequence[str]) -> str:
        """The text of some calls, at least one, as the target writes them; each is given as `call` writes it."""

    def call(self, name: str, arguments: str) -> str:
        """One call, with the JSON of its arguments."""
        return f"{self._head(name)}{arguments}}}"

    def _head(self, name: str) -> str:
        return f'{{"name": {json.dumps(name, ensure_ascii=False)}, "{self.arguments_key}": '

    # ---- the grammar of an answer, as right-hand sides of rules of Lark

    def call_rule(self, lark: Lark, name: str, arguments: str) -> str:
        """A call of the tool `name`, whose arguments are the rule `arguments`."""
        return f'{json.dumps(self._head(name))} {arguments} "}}"'

    def block_rule(self, lark: Lark, parallel: bool) -> str:
        """What follows the marker `opening`. The rule `call` stands for any call; several are allowed if `parallel`."""
        return "call"

    @abstractmethod
    def calls_rule(self, lark: Lark, parallel: bool) -> str:
        """Calls, at least one, and nothing else."""

    # ---- the answer

    def read(self, answer: CallReader) -> Steps[None]:
        """Read an answer behind its reasoning: release its calls, and the content up to where no more can come."""
        if self.bare:
            yield from answer.bare_calls(self.bare)
        if self.opening:
            yield from answer.text_with_calls(self.opening, lambda: self.read_block(answer), self.closing)

    def read_block(self, answer: CallReader) -> Steps[bool]:
        """Read what follows the marker `opening`; True if there is a call."""
        return answer.json_calls()
