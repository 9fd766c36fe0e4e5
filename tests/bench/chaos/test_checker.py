"""The checker passes sound histories, however answers were cut, and sees every seeded violation by its rule."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.chaos.checker import PATIENCE, RELEASE, Rule, check
from tests.bench.chaos.history import Entry, Recorder, Reference, read
from tests.examples import examples

TOKENS = list(range(100, 140))
REFERENCES = {number: Reference(TOKENS[number:], "".join(map(chr, TOKENS[number:])), "stop", 9) for number in range(3)}


def event(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def chunk(tokens: Sequence[int], finish: str | None = None) -> dict[str, Any]:
    text = "".join(map(chr, tokens))
    return {"choices": [{"delta": {"content": text}, "token_ids": list(tokens), "finish_reason": finish}]}


def usage_of(reference: Reference) -> dict[str, Any]:
    length = len(reference.tokens)
    counts = {"prompt_tokens": 9, "completion_tokens": length, "total_tokens": 9 + length}
    return {"choices": [], "usage": counts}


def answer(number: int, rng: random.Random, cuts: int, began: float = 0.0) -> list[Entry]:
    """The entries of a request that was cut so often, and went on."""
    reference, at = REFERENCES[number % len(REFERENCES)], began
    places = sorted(rng.sample(range(1, len(reference.tokens)), cuts))
    entries = []

    def add(kind: Any, value: object, attempt: int) -> None:
        nonlocal at
        at += rng.random()
        entries.append(Entry(at, kind, value, number, attempt))

    begin = 0
    for attempt, end in enumerate([*places, len(reference.tokens)]):
        add("sent", {"question": number % len(REFERENCES), "received": begin}, attempt)
        add("status", 200, attempt)
        if not begin:
            add("event", event(chunk([])), attempt)
        while begin < end:
            length = min(rng.randint(1, 6), end - begin)
            begin += length
            finish = "stop" if begin == len(reference.tokens) else None
            add("event", event(chunk(reference.tokens[begin - length : begin], finish)), attempt)
            if rng.random() < 0.1:
                add("comment", ": waiting", attempt)
        if end < len(reference.tokens):
            add("end", "closed", attempt)
    add("event", event(usage_of(reference)), attempt)
    add("event", "[DONE]", attempt)
    add("end", "done", attempt)
    return entries


def sound(seed: int = 5, cuts: int = 2) -> list[Entry]:
    rng = random.Random(seed)
    entries = [entry for number in range(3) for entry in answer(number, rng, cuts, began=number)]
    entries.sort(key=lambda entry: entry.at)
    last = entries[-1].at
    return [*entries, Entry(last - 1, "held", 1), Entry(last + 2 * RELEASE, "held", 0)]


def rules(entries: Sequence[Entry]) -> set[Rule]:
    return {violation.rule for violation in check(entries, REFERENCES).violations}


@given(seed=st.integers(0, 10**6), cuts=st.integers(0, 5))
def test_a_sound_history_has_no_violation(seed: int, cuts: int) -> None:
    verdict = check(sound(seed, cuts), REFERENCES)
    assert verdict.violations == []
    assert [request.outcome for request in verdict.requests] == ["answered"] * 3
    assert [request.attempts for request in verdict.requests] == [cuts + 1] * 3


Change = Callable[[list[Entry], random.Random], None]


def edited(entry: Entry, edit: Callable[[dict[str, Any]], object]) -> Entry:
    body = json.loads(str(entry.value))
    edit(body)
    return msgspec.structs.replace(entry, value=json.dumps(body))


def some_chunk(entries: list[Entry], rng: random.Random, least: int = 1) -> int:
    """The place of an event with at least so many tokens, behind which more come."""
    places = []
    for place, entry in enumerate(entries):
        if entry.kind == "event" and entry.value != "[DONE]":
            choices = json.loads(str(entry.value))["choices"]
            if choices and len(choices[0]["token_ids"]) >= least and choices[0]["finish_reason"] is None:
                places.append(place)
    return rng.choice(places)


def wrong_token(entries: list[Entry], rng: random.Random) -> None:
    place = some_chunk(entries, rng)
    entries[place] = edited(entries[place], lambda body: body["choices"][0]["token_ids"].__setitem__(0, 7))


def wrong_text(entries: list[Entry], rng: random.Random) -> None:
    place = some_chunk(entries, rng)
    entries[place] = edited(entries[place], lambda body: body["choices"][0]["delta"].update(content="~~~"))


def swapped(entries: list[Entry], rng: random.Random) -> None:
    place = some_chunk(entries, rng, least=2)
    entries[place] = edited(entries[place], lambda body: body["choices"][0]["token_ids"].reverse())


def chunk_lost(entries: list[Entry], rng: random.Random) -> None:
    del entries[some_chunk(entries, rng)]


def chunk_twice(entries: list[Entry], rng: random.Random) -> None:
    place = some_chunk(entries, rng)
    entries.insert(place, entries[place])


def of_kind(entries: list[Entry], kind: str, value: object = None) -> int:
    return next(n for n, entry in enumerate(entries) if entry.kind == kind and value in (None, entry.value))


def with_usage(entries: list[Entry]) -> int:
    return next(n for n, entry in enumerate(entries) if entry.kind == "event" and '"usage"' in str(entry.value))


def last_chunk(entries: list[Entry]) -> int:
    return next(n for n, entry in enumerate(entries) if entry.kind == "event" and '"stop"' in str(entry.value))


def answer_short(entries: list[Entry], _rng: random.Random) -> None:
    """The last chunk is lost, and the one before says that the answer is whole."""
    end = last_chunk(entries)
    number = entries[end].request
    del entries[end]
    before = max(n for n in range(end) if entries[n].request == number and entries[n].kind == "event")
    entries[before] = edited(entries[before], lambda body: body["choices"][0].update(finish_reason="stop"))


def another_finish(entries: list[Entry], _rng: random.Random) -> None:
    place = last_chunk(entries)
    entries[place] = edited(entries[place], lambda body: body["choices"][0].update(finish_reason="length"))


def finished_twice(entries: list[Entry], _rng: random.Random) -> None:
    place = last_chunk(entries)
    again = edited(entries[place], lambda body: body.update(chunk([], "stop")))
    entries.insert(place + 1, again)


def another_usage(entries: list[Entry], _rng: random.Random) -> None:
    place = with_usage(entries)
    entries[place] = edited(entries[place], lambda body: body["usage"].update(completion_tokens=1))


def no_usage(entries: list[Entry], _rng: random.Random) -> None:
    del entries[with_usage(entries)]


def no_done(entries: list[Entry], _rng: random.Random) -> None:
    del entries[of_kind(entries, "event", "[DONE]")]


def after_done(entries: list[Entry], _rng: random.Random) -> None:
    place = of_kind(entries, "event", "[DONE]")
    entries.insert(place + 1, msgspec.structs.replace(entries[place], value=event(chunk([5]))))


def done_twice(entries: list[Entry], _rng: random.Random) -> None:
    place = of_kind(entries, "event", "[DONE]")
    entries.insert(place, entries[place])


def continued_elsewhere(entries: list[Entry], _rng: random.Random) -> None:
    place = next(n for n, entry in enumerate(entries) if entry.kind == "sent" and entry.attempt == 1)
    value: Any = entries[place].value
    entries[place] = msgspec.structs.replace(entries[place], value={**value, "received": value["received"] + 1})


def refused_without_a_word(entries: list[Entry], _rng: random.Random) -> None:
    at = entries[-1].at - 9 * RELEASE
    entries[:0] = [
        Entry(at, "sent", {"question": 0, "received": 0}, 9),
        Entry(at, "status", 503, 9),
        Entry(at, "event", json.dumps({}), 9),
        Entry(at, "end", "refused", 9),
    ]


def refused_for_ever(entries: list[Entry], _rng: random.Random) -> None:
    refused_without_a_word(entries, _rng)
    error = {"error": {"message": "busy", "type": "server_error"}}
    entries[2] = msgspec.structs.replace(entries[2], value=json.dumps(error))


def given_up(entries: list[Entry], _rng: random.Random) -> None:
    place = of_kind(entries, "end", "done")
    entries[place] = msgspec.structs.replace(entries[place], value="given up: no route to host")


def blamed(entries: list[Entry], _rng: random.Random) -> None:
    """A sound request is called bad."""
    refused_without_a_word(entries, _rng)
    error = {"error": {"message": "not like this", "type": "invalid_request_error"}}
    entries[1] = msgspec.structs.replace(entries[1], value=400)
    entries[2] = msgspec.structs.replace(entries[2], value=json.dumps(error))


def silent(entries: list[Entry], _rng: random.Random) -> None:
    place = of_kind(entries, "end", "done")
    late = [
        msgspec.structs.replace(entry, at=entry.at + 2 * PATIENCE) if n >= place else entry
        for n, entry in enumerate(entries)
    ]
    entries[:] = late


def endless(entries: list[Entry], _rng: random.Random) -> None:
    del entries[of_kind(entries, "end", "done")]


def session_left(entries: list[Entry], _rng: random.Random) -> None:
    entries[-1] = msgspec.structs.replace(entries[-1], value=1)


def session_of_one_who_left(entries: list[Entry], _rng: random.Random) -> None:
    entries.append(Entry(entries[0].at - 1, "held", 1))


def nobody_looked(entries: list[Entry], _rng: random.Random) -> None:
    entries[:] = [entry for entry in entries if entry.kind != "held"]


SEEDED: list[tuple[Change, Rule]] = [
    (wrong_token, "prefix"),
    (wrong_text, "prefix"),
    (swapped, "prefix"),
    (chunk_lost, "prefix"),
    (chunk_twice, "prefix"),
    (answer_short, "whole"),
    (another_finish, "ending"),
    (finished_twice, "ending"),
    (another_usage, "ending"),
    (no_usage, "ending"),
    (no_done, "ending"),
    (after_done, "silence"),
    (done_twice, "silence"),
    (continued_elsewhere, "continued"),
    (refused_without_a_word, "word"),
    (refused_for_ever, "word"),
    (given_up, "word"),
    (blamed, "word"),
    (silent, "hang"),
    (endless, "hang"),
    (session_left, "released"),
    (session_of_one_who_left, "released"),
    (nobody_looked, "released"),
]


@pytest.mark.parametrize(("change", "rule"), SEEDED, ids=lambda each: getattr(each, "__name__", each))
def test_a_seeded_violation_is_seen(change: Change, rule: Rule) -> None:
    for seed in range(examples(40)):
        entries = sound(seed)
        change(entries, random.Random(seed))
        assert rule in rules(entries), seed


def test_what_a_recorder_writes_is_read_back(tmp_path: Path) -> None:
    entries = sound()
    with (tmp_path / "history.jsonl").open("wb") as file:
        recorder = Recorder(file)
        for entry in entries:
            recorder.add(entry)
    assert list(read(tmp_path / "history.jsonl")) == entries
