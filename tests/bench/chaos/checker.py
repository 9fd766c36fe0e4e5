"""Proves from a history and what plain decoding answers that no answer was altered, lost without a word, or hung.

It knows neither the service nor the clients' code: it reads their notes. The rules:

    prefix      at all times the tokens and the text of an answer are the beginning of the reference's
    whole       an answer that ends has every token once, in order, and the text of the reference
    ending      its finish reason and usage are the reference's, and each attempt says them once
    silence     nothing comes behind [DONE], or behind the end of an attempt
    word        what is not answered is refused or ended with an error in OpenAI's form, and refusals say when to return
    continued   an answer that was cut goes on where it was, with nothing twice
    hang        no attempt is without a byte for longer than `PATIENCE`, and every attempt ends
    released    the service holds no more sessions than there are clients that wait, or did a moment ago
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from tests.bench.chaos.history import Entry, Reference

PATIENCE = 30.0  # seconds; a stream has a comment after every 10 s of silence
REFUSALS = (429, 502, 503, 504)
RELEASE = 5.0  # seconds after a client has gone in which its session must end

Rule = Literal["prefix", "whole", "ending", "silence", "word", "continued", "hang", "released"]
Outcome = Literal["answered", "refused", "failed", "cancelled", "unfinished"]


class Violation(NamedTuple):
    """A rule that was broken, when, and by which request; -1 for the service."""

    rule: Rule
    at: float
    request: int
    message: str


@dataclass
class Request:
    """What became of a request. `pauses` are the seconds between two chunks with tokens."""

    number: int
    began: float
    ended: float = 0.0
    outcome: Outcome = "unfinished"
    attempts: int = 0
    pauses: list[float] = field(default_factory=list)

    @property
    def cut(self) -> bool:
        """Whether an answer that had begun was cut and asked for again."""
        return self.attempts > 1


class Verdict(NamedTuple):
    requests: list[Request]
    violations: list[Violation]


def check(entries: Iterable[Entry], references: Mapping[int, Reference]) -> Verdict:
    """Judge a whole history; `references` are by the number of the question."""
    by_request: defaultdict[int, list[Entry]] = defaultdict(list)
    held: list[Entry] = []
    last = 0.0
    for entry in entries:
        last = max(last, entry.at)
        if entry.kind == "held":
            held.append(entry)
        elif entry.request >= 0:
            by_request[entry.request].append(entry)
    checks = [RequestCheck(number, own, references) for number, own in sorted(by_request.items())]
    violations = [violation for checked in checks for violation in checked.run(last)]
    requests = [checked.request for checked in checks]
    return Verdict(requests, [*violations, *_unreleased(held, requests)])


class RequestCheck:
    """Follows one request through its attempts."""

    def __init__(self, number: int, entries: Sequence[Entry], references: Mapping[int, Reference]) -> None:
        first = entries[0]
        self.request = Request(number, first.at)
        self._entries = entries
        self._references = references
        self._reference = Reference([], "", "", 0)
        self._violations: list[Violation] = []
        self._tokens: list[int] = []
        self._text = ""
        self._finish: str | None = None  # of this attempt: one that was cut behind it says it again
        self._usage: Mapping[str, Any] | None = None
        self._progress_at: float | None = None

    def run(self, last: float) -> list[Violation]:
        """Violations in the order of time; `last` is when the history ends."""
        attempts: defaultdict[int, list[Entry]] = defaultdict(list)
        for entry in self._entries:
            attempts[entry.attempt].append(entry)
        self.request.attempts = len(attempts)
        for _, entries in sorted(attempts.items()):
            self._attempt(entries, last)
        return self._violations

    def _broken(self, rule: Rule, at: float, message: str) -> None:
        self._violations.append(Violation(rule, at, self.request.number, message))

    def _attempt(self, entries: Sequence[Entry], last: float) -> None:
        sent, rest = entries[0], entries[1:]
        asked: Any = sent.value
        self._reference = self._references[asked["question"]]
        self._finish = self._usage = None
        if asked["received"] != len(self._tokens):
            self._broken("continued", sent.at, f"it asked from token {asked['received']} and had {len(self._tokens)}")
        status, ended, done, before = 0, False, False, sent.at
        for entry in rest:
            if entry.at - before > PATIENCE:
                self._broken("hang", entry.at, f"no byte for {entry.at - before:.1f} s")
            before = entry.at
            if ended or (done and entry.kind != "end"):
                self._broken("silence", entry.at, f"{entry.kind} after the end: {str(entry.value)[:80]}")
            match entry.kind:
                case "status":
                    status = int(str(entry.value))
                case "event" if entry.value == "[DONE]":
                    done = True
                case "event":
                    self._event(entry, status)
                case "end":
                    ended = True
                    self._end(entry, status, done=done)
        if not ended:
            self.request.outcome = "unfinished"
            self._broken("hang", last, "the attempt has no end")

    def _event(self, entry: Entry, status: int) -> None:
        try:
            body = json.loads(str(entry.value))
        except ValueError:
            self._broken("word", entry.at, f"an event that is not JSON: {str(entry.value)[:80]}")
            return
        if "error" in body or status != 200:
            self._error(entry.at, body, status)
            return
        if body.get("usage"):
            if self._usage is not None:
                self._broken("ending", entry.at, "usage is sent twice")
            self._usage = body["usage"]
        for choice in body["choices"]:
            self._chunk(entry.at, choice)

    def _error(self, at: float, body: Mapping[str, Any], status: int) -> None:
        error = body.get("error")
        if not isinstance(error, dict) or not error.get("message") or not error.get("type"):
            self._broken("word", at, f"an error of {status} that says nothing: {str(body)[:80]}")
        elif status in REFUSALS and not body.get("retry_after"):
            self._broken("word", at, f"a {status} without Retry-After")
        elif 400 <= status < 500 and status != 429:
            self._broken("word", at, f"a sound request was answered {status}: {error['message']}")

    def _chunk(self, at: float, choice: Mapping[str, Any]) -> None:
        tokens, text = choice["token_ids"], choice["delta"].get("content") or ""
        if self._finish is not None and (tokens or text):
            self._broken("ending", at, "more after the finish reason")
        if tokens:
            if self._progress_at is not None:
                self.request.pauses.append(at - self._progress_at)
            self._progress_at = at
        self._tokens += tokens
        self._text += text
        if self._tokens != self._reference.tokens[: len(self._tokens)]:
            self._broken("prefix", at, f"its tokens differ from {self._first_difference()} on")
        elif not self._reference.text.startswith(self._text):
            self._broken("prefix", at, f"its text is another: ...{self._text[-40:]!r}")
        if choice["finish_reason"] is not None:
            if self._finish is not None:
                self._broken("ending", at, "it finished twice")
            self._finish = choice["finish_reason"]

    def _first_difference(self) -> int:
        pairs = zip(self._tokens, self._reference.tokens, strict=False)
        return next((place for place, (mine, its) in enumerate(pairs) if mine != its), len(self._reference.tokens))

    def _end(self, entry: Entry, status: int, *, done: bool) -> None:
        self.request.ended = entry.at
        match entry.value:
            case "done":
                self.request.outcome = "answered"
                self._whole(entry.at, done=done)
            case "cancelled":
                self.request.outcome = "cancelled"
            case "refused":
                self.request.outcome = "refused"
                if status not in REFUSALS:
                    self._broken("word", entry.at, f"refused with {status}")
            case "closed" if done:
                self._broken("silence", entry.at, "it ended with [DONE] and the client did not see that")
            case "closed":
                self.request.outcome = "failed"
            case _:
                self.request.outcome = "failed"
                self._broken("word", entry.at, f"lost after {len(self._tokens)} tokens: {entry.value}")

    def _whole(self, at: float, *, done: bool) -> None:
        reference, usage = self._reference, self._usage or {}
        if not done:
            self._broken("ending", at, "it ended without [DONE]")
        if (self._tokens, self._text) != (reference.tokens, reference.text):
            self._broken("whole", at, f"{len(self._tokens)} tokens, and {len(reference.tokens)} in the reference")
        if self._finish != reference.finish_reason:
            self._broken("ending", at, f"it finished by {self._finish}, not {reference.finish_reason}")
        counts = (usage.get("prompt_tokens"), usage.get("completion_tokens"), usage.get("total_tokens"))
        expected = reference.prompt_tokens, len(reference.tokens)
        if counts != (*expected, sum(expected)):
            self._broken("ending", at, f"its usage is {counts}, not {(*expected, sum(expected))}")


def _unreleased(held: Sequence[Entry], requests: Sequence[Request]) -> list[Violation]:
    """Sessions beyond those of requests that clients wait for, or waited for until `RELEASE` seconds ago."""
    if not held:
        return [Violation("released", 0.0, -1, "nobody has asked what the service holds")]
    violations = []
    for entry in held:
        sessions = int(str(entry.value))
        open_now = sum(request.began <= entry.at and entry.at < request.ended + RELEASE for request in requests)
        if sessions > open_now:
            violations.append(Violation("released", entry.at, -1, f"{sessions} sessions for {open_now} requests"))
    return violations
