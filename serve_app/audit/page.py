"""The outcome of an audit for people, and as JSON for scripts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from core.audit.audit import NEAR_TIE, AnswerVerdict, Class, TokenDifference
from core.text.tokenizer import Tokenizer
from serve_app.audit.recorded import NamedAnswer
from serve_app.audit.work import AuditOutcome

CLASSES: tuple[Class, ...] = get_args(Class)
BEFORE = 60  # characters of the answer that are shown before a difference
SHOWN = 10  # answers of a class that are told one by one; JSON has all


def lines(outcome: AuditOutcome) -> Iterator[str]:
    """The page, line by line."""
    target, number = outcome.config.target, len(outcome.recording.answers)
    audited = len(outcome.verdicts)
    yield (
        f"{audited:,} of {number:,} answers, {outcome.tokens:,} tokens, held to plain decoding of {target.model} "
        f"({target.dtype}, {target.numerics} numerics)."
    )
    yield ""
    for kind in CLASSES:
        yield f"  {kind:10} {outcome.count(kind):>7,}"
    yield ""
    for kind in ("different", "near-tie"):
        alike = [entry for entry in outcome.judged if entry[1].kind == kind]
        for answer, verdict in alike[:SHOWN]:
            yield from _told(answer, verdict, outcome.tokenizer)
        if len(alike) > SHOWN:
            yield f"... and {len(alike) - SHOWN:,} more: --json has all of them."
    yield from (f"different: {lack.name}: {lack.reason}" for lack in outcome.recording.lacks if lack.missing)
    yield from _reasons(outcome)
    yield from outcome.recording.notes
    yield _meaning(outcome)


def as_object(outcome: AuditOutcome) -> dict[str, Any]:
    """The same for JSON, and every answer."""
    target, lacks = outcome.config.target, outcome.recording.lacks
    answers = [
        {"name": answer.name, "class": verdict.kind, "tokens": len(verdict.tokens)}
        | {"complaint": verdict.complaint or None}
        | {"differences": [_plain(difference, answer, verdict, outcome) for difference in verdict.differences]}
        for answer, verdict in outcome.judged
    ]
    left_out = [
        {"name": lack.name, "class": "different" if lack.missing else "skipped", "tokens": 0}
        | {"complaint": lack.reason, "differences": []}
        for lack in lacks
    ]
    return {
        "model": target.model,
        "dtype": target.dtype,
        "numerics": target.numerics,
        "near_tie": NEAR_TIE,
        "stopped": outcome.stopped,
        "tokens": outcome.tokens,
        "counts": {kind: outcome.count(kind) for kind in CLASSES},
        "notes": outcome.recording.notes,
        "answers": [*answers, *left_out],
    }


def _told(answer: NamedAnswer, verdict: AnswerVerdict, tokenizer: Tokenizer) -> Iterator[str]:
    """An answer, with its first difference and the complaint."""
    for difference in verdict.differences[:1]:
        before = tokenizer.raw.decode(list(verdict.tokens[: difference.position]), skip_special_tokens=False)
        more = f", the first of {len(verdict.differences)}" if len(verdict.differences) > 1 else ""
        yield f"{verdict.kind}: {answer.name}, behind {difference.position} tokens{more}"
        yield f"    {before[-BEFORE:]!r}"
        yield f"    answer {_text(difference.token, tokenizer)}, plain decoding {_text(difference.plain, tokenizer)}"
        yield f"    {_gap(difference)}"
    if verdict.complaint:
        if not verdict.differences:
            yield f"{verdict.kind}: {answer.name}, behind {len(verdict.tokens)} tokens"
            yield f"    {tokenizer.raw.decode(list(verdict.tokens), skip_special_tokens=False)[-BEFORE:]!r}"
        yield f"    {verdict.complaint}"


def _gap(difference: TokenDifference) -> str:
    if difference.token is None:
        return "no likely token has the answer's text"
    if difference.gap is None:
        return "the request allows no such token there"
    return f"the answer's token lies {difference.gap:.3f} logits below"


def _text(token: int | None, tokenizer: Tokenizer) -> str:
    return "?" if token is None else f"{tokenizer.raw.decode([token], skip_special_tokens=False)!r} ({token})"


def _reasons(outcome: AuditOutcome) -> Iterator[str]:
    """Why answers are skipped, each reason once."""
    names: dict[str, list[str]] = {}
    for lack in outcome.recording.lacks:
        if not lack.missing:
            names.setdefault(lack.reason, []).append(lack.name)
    for answer, verdict in outcome.judged:
        if verdict.skipped:
            names.setdefault(verdict.complaint, []).append(answer.name)
    for reason, those in names.items():
        more = f" and {len(those) - 1:,} more" if len(those) > 1 else ""
        yield f"skipped: {those[0]}{more}: {reason}"


def _meaning(outcome: AuditOutcome) -> str:
    if outcome.stopped:
        return "Stopped before the end: the other answers are not audited."
    if different := outcome.count("different"):
        return f"{different:,} differ by more than rounding, {NEAR_TIE} logits: they are not the target's answers."
    if outcome.count("near-tie"):
        return (
            "None is different. Near-ties are what another machine or other kernels round otherwise; the machine that "
            "answered would show none with exact numerics."
        )
    if not outcome.count("equal"):
        return "Nothing could be audited."
    skipped = " But for those that were skipped." if outcome.count("skipped") else ""
    return "Every one is the target's own answer, token for token." + skipped


def _plain(
    difference: TokenDifference, answer: NamedAnswer, verdict: AnswerVerdict, outcome: AuditOutcome
) -> dict[str, Any]:
    raw = outcome.tokenizer.raw
    prompt_length = answer.question.request.prompt_length
    return {
        "position": difference.position,
        "absolute_position": prompt_length + difference.position,
        "token": difference.token,
        "text": None if difference.token is None else raw.decode([difference.token], skip_special_tokens=False),
        "plain": difference.plain,
        "plain_text": raw.decode([difference.plain], skip_special_tokens=False),
        "gap": difference.gap,
        "before": raw.decode(list(verdict.tokens[: difference.position]), skip_special_tokens=False)[-BEFORE:],
    }
