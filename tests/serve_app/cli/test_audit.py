"""`taskspec audit`: its exit codes, its page and its JSON, on traces and on a file of requests and answers."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from core.audit.audit import audit
from core.errors import FAILED, INTERRUPTED, USAGE
from core.traces.memory_files import mark
from core.traces.store import Trace, TraceStore
from serve_app.audit import work
from serve_app.cli.main import main
from tests.core.family_records import TOKENIZER, answered, requests

Ask = Callable[..., tuple[int, str, str]]
SERVICE = "name: small\ntarget: {model: family:target}\ndraft: {model: family:draft}\n"
CORPUS = "english"


@pytest.fixture
def ask(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Exit code and both outputs for a service that records in `traces`."""
    config = tmp_path / "service.yaml"
    config.write_text(f"{SERVICE}traces: {{directory: {tmp_path / 'traces'}}}\n")

    def asked(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["taskspec", "audit", *map(str, arguments), "--config", str(config)])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capsys.readouterr()

    return asked


def kept(tmp_path: Path, change: Callable[[Trace], Trace] = lambda trace: trace, count: int = 4) -> list[Trace]:
    """Traces of the family's target, the first one changed."""
    records = answered(requests(CORPUS, count, 5, max_tokens=24))
    traces = [
        Trace(**{name: getattr(record, name) for name in record.__struct_fields__}, constrained=False, ended_at=now)
        for record in records
        for now in [time.time()]
    ]
    traces = [change(traces[0]), *traces[1:]]
    TraceStore(tmp_path / "traces").append(traces)
    return traces


def wrong_at(place: int) -> Callable[[Trace], Trace]:
    def changed(trace: Trace) -> Trace:
        ids = list(trace.output_ids)
        ids[place] = 7
        return msgspec.structs.replace(trace, output_ids=tuple(ids))

    return changed


def test_traces_of_a_sound_service_are_equal(tmp_path: Path, ask: Ask) -> None:
    kept(tmp_path)
    code, out, err = ask()
    assert code == 0
    assert "4 of 4 answers" in out
    assert "equal            4" in out
    assert "Every one is the target's own answer, token for token." in out
    assert "Decoded plainly" in err


def test_a_changed_trace_fails_and_the_page_shows_where(tmp_path: Path, ask: Ask) -> None:
    first, *_ = kept(tmp_path, wrong_at(3))
    code, out, _ = ask()
    assert code == FAILED
    assert "different        1" in out
    assert f"seed {first.seed}, choice 0, behind 3 tokens" in out
    assert repr(TOKENIZER.raw.decode([7])) in out
    assert "logits below" in out
    assert "they are not the target's answers" in out


def test_scripts_read_every_answer_as_json(tmp_path: Path, ask: Ask) -> None:
    first, *others = kept(tmp_path, wrong_at(3))
    code, out, _ = ask("--json")
    assert code == FAILED
    told = json.loads(out)
    assert told["counts"] == {"equal": 3, "near-tie": 0, "different": 1, "skipped": 0}
    [different] = [answer for answer in told["answers"] if answer["class"] == "different"]
    [difference] = different["differences"]
    assert (difference["position"], difference["token"]) == (3, 7)
    assert difference["absolute_position"] == first.prompt_length + 3
    assert difference["gap"] is None or difference["gap"] > told["near_tie"]
    assert told["tokens"] == sum(len(trace.output_ids) for trace in others) + 4


def test_a_near_tie_fails_nothing(tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a limit as wide as that, any token that may be drawn is one."""
    monkeypatch.setattr("core.audit.audit.NEAR_TIE", 1000.0)
    kept(tmp_path, wrong_at(3))
    code, out, _ = ask()
    assert code == 0
    assert "near-tie         1" in out
    assert "None is different." in out


def test_what_a_grammar_held_is_skipped_and_old_traces_are_told(tmp_path: Path, ask: Ask) -> None:
    kept(tmp_path, lambda trace: msgspec.structs.replace(trace, constrained=True))
    kept(tmp_path, lambda trace: msgspec.structs.replace(trace, constrained=None))
    code, out, _ = ask()
    assert code == 0
    assert "skipped          1" in out
    assert "a grammar held it" in out
    assert "1 traces of earlier versions" in out


def test_traces_in_memory_have_no_stop_strings_and_are_audited_as_beginnings(tmp_path: Path, ask: Ask) -> None:
    kept(tmp_path, lambda trace: msgspec.structs.replace(trace, output_ids=trace.output_ids[:-2]))
    assert ask()[0] == FAILED
    mark(tmp_path / "traces")
    code, out, _ = ask()
    assert code == 0
    assert "where an answer ends is not audited" in out


def test_a_file_is_audited_and_a_bad_line_is_named(tmp_path: Path, ask: Ask) -> None:
    file = tmp_path / "answers.jsonl"
    [record] = answered(requests(CORPUS, 1, 5, max_tokens=24))
    request: dict[str, Any] = {"model": "any", "prompt": list(record.prompt_ids), "seed": record.seed, "max_tokens": 24}
    choice = {"index": 0, "token_ids": list(record.output_ids)}
    choice["finish_reason"] = "length" if len(record.output_ids) == 24 else "stop"
    line = {"request": request, "answer": {"choices": [choice]}}
    file.write_text(json.dumps(line) + "\n")
    assert ask(file)[0] == 0
    file.write_text(json.dumps(line) + "\n" + json.dumps(line | {"request": request | {"n": "two"}}))
    code, _, err = ask(file)
    assert code == USAGE
    assert f"{file}, line 2: 'request.n'" in err


def test_nothing_to_audit_is_an_error_that_says_what_to_write(tmp_path: Path, ask: Ask) -> None:
    assert ask(tmp_path / "nowhere")[0] == USAGE
    (tmp_path / "traces").mkdir()
    code, _, err = ask()
    assert code == USAGE
    assert "there is no answer to audit" in err


def test_ctrl_c_tells_what_is_known_by_then(tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(tmp_path)
    whole = audit

    def interrupted(*arguments: Any) -> Any:
        yield next(whole(*arguments))
        raise KeyboardInterrupt

    monkeypatch.setattr(work, "audit", interrupted)
    code, out, _ = ask()
    assert code == INTERRUPTED
    assert "1 of 4 answers" in out
    assert "Stopped before the end" in out
