"""`taskspec chat`: a conversation with a running service, in which the accepted tokens are marked."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from core.errors import INTERRUPTED, ConfigError, TaskSpecError
from serve_app.client import OFF, Answer, BadAnswer, Client, Unreachable, own_names
from serve_app.load.cli import DEFAULT_URL, KEY_VARIABLE, Model, Url, base_url
from serve_app.terminal.transcript import Marks, Transcript, marked, marks_on

PROMPT = "> "
COMMANDS = "/draft and /plain turn speculation on and off, /new starts afresh, /quit ends"
UNAUTHORISED, NOT_FOUND = (401, 403), 404

System = Annotated[str | None, typer.Option(metavar="TEXT", help="The system message of every conversation.")]
Temperature = Annotated[float, typer.Option(min=0.0, max=2.0, help="0 takes the likeliest token.")]
MaxTokens = Annotated[int | None, typer.Option(min=1, help="Maximum tokens of an answer.", show_default="the context")]
Seed = Annotated[int | None, typer.Option(help="Equal seeds give equal answers.", show_default="random")]
Plain = Annotated[bool, typer.Option("--no-speculation", help="Begin without speculation, to compare.")]
Prompt = Annotated[str | None, typer.Option(metavar="TEXT", help="Ask this, print the answer and exit.")]
Brackets = Annotated[bool, typer.Option("--marks", help="Mark accepted text in [brackets] where there is no colour.")]


def chat(
    url: Url = DEFAULT_URL,
    model: Model = None,
    system: System = None,
    temperature: Temperature = 0.0,
    max_tokens: MaxTokens = None,
    seed: Seed = None,
    no_speculation: Plain = False,
    prompt: Prompt = None,
    marks: Brackets = False,
) -> None:
    """Talk to a running service and see which tokens were accepted.

    The answer appears as it is generated. Text that a draft or a lookup proposed and the target accepted is marked:
    green and underlined in a terminal, unmarked in a pipe and with NO_COLOR. A line after each answer counts its tokens
    and target passes.

    Example: `taskspec chat --system 'Answer in one sentence.'`

    /draft and /plain turn speculation on and off; the text of an answer is the same with both, for a given seed or at
    temperature 0. /new starts afresh, /quit ends. Ctrl-C stops an answer; at the prompt it ends the conversation.

    Example, for scripts: `taskspec chat --prompt 'What is 17 + 25?' --marks`

    With --prompt only the answer is on stdout; the line about it is on stderr. The API key is read from the environment
    variable OPENAI_API_KEY only.

    Exit code 0, 1 if the service fails, 2 for invalid options or if nothing answers, 130 after Ctrl-C with --prompt.
    """
    out = Console()
    notes = Console(stderr=True) if prompt is not None else out
    fields = {"temperature": temperature, "max_tokens": max_tokens, "seed": seed}
    conversation = ChatSession(base_url(url), fields, system, out, notes, marks_on(out, brackets=marks))
    conversation.speculates = not no_speculation
    try:
        asyncio.run(conversation.open(model))
        if prompt is not None:
            asyncio.run(conversation.ask(prompt))
        else:
            _converse(conversation, notes)
    except BadAnswer as error:
        raise advised(error, conversation.url) from error
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


class ChatSession:
    """A conversation with one model.

    `fields` are in every request, if they are not None. Answers go to `out`, all else to `notes`. `messages` holds what
    was said, `speculates` how the next question is asked.
    """

    def __init__(
        self, url: str, fields: Mapping[str, Any], system: str | None, out: Console, notes: Console, marks: Marks
    ) -> None:
        self.messages: list[dict[str, str]] = []
        self.speculates = True
        self.model = ""
        self.url = url
        self._fields = {name: value for name, value in fields.items() if value is not None}
        self._system = system
        self._out = out
        self._notes = notes
        self._marks = marks
        self._explained = marks == "none"
        self.begin()

    def begin(self) -> None:
        """Forget what was said."""
        self.messages = [] if self._system is None else [{"role": "system", "content": _sendable(self._system)}]

    async def open(self, model: str | None) -> None:
        """Choose the model, or else the only one that the service lists. Raises `BadAnswer` and `ConfigError`."""
        try:
            async with self._client() as client:
                cards = await client.models()
            listed, own = [str(card.get("id")) for card in cards], own_names(cards)
        except BadAnswer as error:
            if error.status != NOT_FOUND or model is None:  # some servers list no models, but answer
                raise
            listed = own = [model]
        if model is None and len(own) == 1:
            [model] = own
        if model is None or model not in listed:
            wrong = "" if model is None else f", not {model}"
            raise ConfigError(f"{self.url} serves {', '.join(listed) or 'no model'}{wrong}; choose one with --model")
        self.model = model

    async def ask(self, question: str) -> None:
        """Print the answer and what it took, and remember both sides. Raises `BadAnswer`.

        If it is cancelled, what has been said by then is remembered.
        """
        self._explain()
        messages = [*self.messages, {"role": "user", "content": _sendable(question)}]
        body = {"model": self.model, "messages": messages, **self._fields}
        if not self.speculates:
            body["speculation"] = OFF
        transcript, began = Transcript(self._out, self._marks), time.perf_counter()
        try:
            async with self._client() as client:
                answer = await client.ask(body, transcript.show)
        except asyncio.CancelledError:
            if transcript.text:
                self.messages = [*messages, {"role": "assistant", "content": transcript.text}]
            raise
        finally:
            if transcript.text:
                transcript.end()
        self.messages = [*messages, {"role": "assistant", "content": answer.text}]
        self.note(account(answer, time.perf_counter() - began))

    def note(self, line: str) -> None:
        self._notes.print(Text(line, "dim"), soft_wrap=True)

    def _client(self) -> Client:
        """A connection for each question: one left open would be closed by the service while the user types."""
        return Client(self.url, os.environ.get(KEY_VARIABLE))

    def _explain(self) -> None:
        """Before the first answer that may have marks, say what they mean."""
        if self._explained or not self.speculates:
            return
        self._explained = True
        sample = Text.from_ansi(marked("Text like this", self._marks))
        meaning = " was proposed by a draft or looked up, and accepted; the rest the target wrote itself."
        self._notes.print(Text.assemble(sample, (meaning, "dim")), soft_wrap=True)


def _converse(conversation: ChatSession, notes: Console) -> None:
    """Ask what is typed, until the end of the input."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")
    with suppress(ImportError):
        import readline  # noqa: F401 - input() then edits lines and recalls earlier ones
    conversation.note(f"{conversation.model} at {conversation.url}. {COMMANDS}; Ctrl-C stops an answer.")
    while True:
        try:
            typed = input(PROMPT if sys.stdin.isatty() else "").strip()
        except (EOFError, KeyboardInterrupt):
            notes.print()  # behind the prompt
            return
        if typed == "/quit":
            return
        if typed.startswith("/"):
            _obey(typed, conversation)
        elif typed:
            _answer(typed, conversation)


def _sendable(typed: str) -> str:
    """What was typed, without bytes that are no text: Python reads those as lone surrogates, which JSON cannot hold."""
    return typed.encode(errors="replace").decode()


def _obey(command: str, conversation: ChatSession) -> None:
    if command == "/new":
        conversation.begin()
        conversation.note("A new conversation.")
    elif command in ("/draft", "/plain"):
        conversation.speculates = command == "/draft"
        conversation.note(f"Speculation is {'on' if conversation.speculates else 'off'}.")
    else:
        conversation.note(f"No command {_sendable(command)}: {COMMANDS}.")


def _answer(question: str, conversation: ChatSession) -> None:
    """An error, or Ctrl-C, ends the answer and not the conversation."""
    try:
        asyncio.run(conversation.ask(question))
    except BadAnswer as error:
        conversation.note(str(advised(error, conversation.url)))
    except KeyboardInterrupt:
        conversation.note("Stopped.")


def account(answer: Answer, seconds: float) -> str:
    """What an answer took, in a line; the pass over the prompt is not counted among the target's passes."""
    used = answer.speculation
    tokens = len(answer.tokens) or answer.usage.get("completion_tokens", 0)
    parts = [f"tokens {tokens}"] if tokens else []
    if used:
        each = used.get("tokens_per_target_pass")
        parts.append(f"target passes {len(answer.runs) - 1}{f' ({each:.2f} tokens each)' if each else ''}")
    parts.append(f"{seconds:.2f} s")
    parts += [f"{tokens / seconds:.1f} tokens/s"] if tokens else []
    parts += ["cut at the limit"] if answer.finish_reason == "length" else []
    parts += [f"continued {answer.cuts}x after a cut"] if answer.cuts else []
    sources = [
        f"{f'draft of {answer.task}' if source == 'draft' else source.replace('_', ' ')} "
        f"{counts['accepted']} of {counts['proposed']}"
        for source, counts in used.get("sources", {}).items()
    ]
    return ", ".join(parts) + (f"; accepted: {', '.join(sources)}" if sources else "")


def advised(error: BadAnswer, url: str) -> TaskSpecError:
    """The error with what to do about it."""
    if isinstance(error, Unreachable):
        return ConfigError(
            f"nothing answers at {url} ({error}): start a service with `make serve`, or give another URL"
        )
    if error.status in UNAUTHORISED:
        return ConfigError(f"{url} wants another API key in the environment variable {KEY_VARIABLE}: {error}")
    if error.status is not None and 400 <= error.status < 500:
        return ConfigError(str(error))
    return error
