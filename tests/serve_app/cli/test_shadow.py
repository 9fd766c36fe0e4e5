"""`taskspec bundles shadow`: what it prints, and what it says where it cannot."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from core.bundle.manifest import MeasuredCosts
from core.bundle.shadow_results import shadow_of
from core.errors import ConfigError
from core.family import DRAFT_DIR
from core.replay.speed import MOST_ROWS, draft_shape
from core.traces.store import TraceStore
from serve_app.cli.shadow import seconds
from tests.core.bundle.bundles import publish_adapters
from tests.core.replay.shadowed import PYTHON, SHIPPED, copied, traces, with_a_worse_adapter
from tests.serve_app.cli.test_bundles import run

Ask = Callable[..., tuple[int, str]]
SERVICE = """
name: family
target: {model: family:target, dtype: bfloat16}
draft: {model: family:draft, num_speculative_tokens: 6}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return copied(tmp_path / "bundles")


@pytest.fixture
def kept(tmp_path: Path) -> TraceStore:
    return TraceStore(tmp_path / "traces")


@pytest.fixture
def ask(tmp_path: Path, root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Exit code and output of `taskspec bundles shadow` for a service whose bundles are in `root`."""
    config = tmp_path / "service.yaml"
    config.write_text(f"{SERVICE}bundle: {root}\ntraces: {{directory: {tmp_path / 'traces'}}}\n")

    def asked(*arguments: str) -> tuple[int, str]:
        return run(capsys, monkeypatch, "shadow", *arguments, "--config", config)

    return asked


def test_people_see_both_bundles_by_task_and_one_sentence(
    tmp_path: Path, root: Path, kept: TraceStore, ask: Ask
) -> None:
    worse = with_a_worse_adapter(root, tmp_path / "worse").version
    kept.append(traces())
    code, out = ask(worse, "--against", SHIPPED)
    assert code == 0
    lines = out.splitlines()
    assert any(line.split()[:3] == [PYTHON, "8", "acceptance"] for line in lines)
    assert any(line.split()[:3] == ["all", "16", "acceptance"] for line in lines)
    assert f"Bundle {worse} is worse than bundle {SHIPPED}: -0." in out
    assert "Neither bundle knows what these drafts cost" in out
    assert "On 16 of 16 answers of the last 24h; 6 tokens drafted for every pass; intervals" in out
    assert "What the service itself measured" in out
    assert "acceptance rate 0.400 on 16 of them" in out
    assert f"Bundle {SHIPPED} is better than bundle {worse}: +0." in ask(SHIPPED)[1]  # which is live


def test_a_bundle_whose_retraining_measured_costs_is_judged_by_speed(
    tmp_path: Path, root: Path, kept: TraceStore, ask: Ask
) -> None:
    costs = MeasuredCosts(passes=(0.01,) * MOST_ROWS, tokens={draft_shape(None, DRAFT_DIR): 0.001})
    worse = with_a_worse_adapter(root, tmp_path / "worse", costs).version
    kept.append(traces())
    out = ask(worse, "--against", SHIPPED)[1]
    assert any(line.split()[:3] == [PYTHON, "8", "speedup"] for line in out.splitlines())
    assert re.search(rf"Bundle {worse} is worse than bundle {SHIPPED}: -\d+\.\d% .* tokens a second", out)
    assert "Neither bundle knows" not in out
    assert "6 tokens drafted for every pass, for speed as many of them as are best; intervals" in out
    found = json.loads(ask(worse, "--against", SHIPPED, "--json")[1])
    assert found["judged_by"] == "speedup"
    assert found["all"]["speedup"]["candidate"]["value"] < found["all"]["speedup"]["against"]["value"]


def test_scripts_get_the_same_and_the_console_the_last(kept: TraceStore, root: Path, ask: Ask) -> None:
    kept.append([*traces(), msgspec.structs.replace(traces()[0], bundle="0" * 16)])
    code, out = ask(SHIPPED, "--most", "10", "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["candidate"], found["against"], found["verdict"]) == (SHIPPED, SHIPPED, "not distinguishable")
    assert (found["num_speculative_tokens"], found["judged_by"]) == (6, "acceptance_rate")
    assert found["found"] == 16
    assert found["skipped"] == {"foreign": 1, "incomplete": 0, "unreadable_files": 0}
    assert sum(part["answers"] for part in found["tasks"].values()) == found["all"]["answers"] == 10
    for figure in ("acceptance_rate", "tokens_per_pass"):
        pair: dict[str, Any] = found["all"][figure]
        assert pair["candidate"] == pair["against"]
        assert pair["candidate"]["low"] <= pair["candidate"]["value"] <= pair["candidate"]["high"]
        assert pair["difference"] == {"difference": 0.0, "low": 0.0, "high": 0.0}
    assert found["all"]["measured_by_the_service"] == {"answers": 10, "proposed": 100, "accepted": 40}
    last = shadow_of(root, SHIPPED)
    assert last is not None
    assert (last.pop("period"), last.pop("at")[:2]) == ("24h", "20")
    assert last == found


def test_without_answers_it_says_what_to_write(ask: Ask) -> None:
    code, err = ask(SHIPPED, "--since", "90m")
    assert code == 2
    assert "no answer ended in the last 90m" in err
    assert "Write a longer --since or another --traces" in err


def test_answers_that_were_left_out_are_told(kept: TraceStore, ask: Ask) -> None:
    kept.append([msgspec.structs.replace(traces()[0], bundle="0" * 16)])
    code, err = ask(SHIPPED)
    assert code == 2
    assert "(skipped: 1 of other models or an unknown bundle)" in err


def test_a_service_without_traces_or_bundle_is_told_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "bare.yaml"
    config.write_text(SERVICE)
    code, err = run(capsys, monkeypatch, "shadow", SHIPPED, "--config", config)
    assert (code, err) == (2, f"taskspec: {config} has no `traces` section; write --traces DIR\n")
    code, err = run(capsys, monkeypatch, "shadow", SHIPPED, "--config", config, "--traces", tmp_path)
    assert code == 2
    assert "bundle: the configuration names none" in err


def test_a_bundle_of_other_models_is_refused(tmp_path: Path, root: Path, ask: Ask) -> None:
    other = publish_adapters(root, tmp_path, 1).version
    code, err = ask(SHIPPED, "--against", other)
    assert code == 2
    assert f"bundle {other} is for the target 'target-13b' and the draft 'draft-68m'" in err


def test_periods_are_minutes_hours_or_days() -> None:
    assert [seconds(period) for period in ("90m", "24h", "7d", "1.5h")] == [5400.0, 86400.0, 604800.0, 5400.0]


@pytest.mark.parametrize("period", ["", "24", "h", "-1h", "24 h", "1w", "1h30m", "inf"])
def test_other_periods_are_errors_that_name_the_forms(period: str, ask: Ask) -> None:
    with pytest.raises(ConfigError, match="such as 90m, 24h or 7d"):
        seconds(period)
    code, err = ask(SHIPPED, f"--since={period}")
    assert code == 2
    assert "such as 90m, 24h or 7d" in err
