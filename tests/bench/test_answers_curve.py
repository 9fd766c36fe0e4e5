"""The curve of answers, all of it on the shipped family, and its figures on counts that are known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.distill.dataset import distil
from core.replay.replay import AcceptanceCounts
from core.sampling.params import SamplingParams
from core.traces.store import Trace, parquet_of
from tests.bench import answers_curve
from tests.bench.answers_page import points
from tests.core.family_records import answered, requests, target


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collect directory with a few short answers."""
    directory = tmp_path_factory.mktemp("collect")
    for place, (split, count) in enumerate({"train": 8, "stop": 2, "promotion": 2, "test": 2}.items()):
        records = answered(requests("math", count, place, max_tokens=12, temperature=0.0))
        traces = [Trace(prompt_ids=one.prompt_ids, output_ids=one.output_ids, params=one.params) for one in records]
        (directory / f"{split}-0000.parquet").write_bytes(parquet_of(traces))
        if split == "train":
            distil(target(), traces, top=8, context=1024).save(directory / "train-0000.safetensors")
    return directory


def test_every_number_has_its_draft_and_one_that_is_there_is_not_trained_again(
    answers: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    family = ["--target", "family:target", "--shipped", "family:draft", "--layers", "1", "--vocabulary", "300"]
    size = ["--steps", "10", "--numbers", "4", "8"]
    call = ["--answers", str(answers), "--work", str(tmp_path / "work"), "--out", str(tmp_path / "out"), *family, *size]
    answers_curve.main([*call, "--train-only", "4"])
    assert not (tmp_path / "out").exists()
    assert "4 answers: 10 of 10 steps" in capsys.readouterr().out
    answers_curve.main(call)
    printed = capsys.readouterr().out
    assert "8 answers: 10 of 10 steps" in printed
    assert "4 answers: 10 of 10 steps" not in printed
    found = json.loads((tmp_path / "out" / "answers_curve.json").read_text())["points"]
    judged = [(point["draft"], point["temperature"], point["answers"]) for point in found]
    assert judged == [("shipped", 0.0, 4), ("4", 0.0, 4), ("8", 0.0, 4)]
    assert (tmp_path / "out" / "answers_curve.png").stat().st_size > 1000
    with pytest.raises(SystemExit, match="has 8 answers to learn from"):
        answers_curve.main([*call, "--numbers", "9"])


def test_a_draft_stands_beside_the_one_before_it_at_its_own_temperature() -> None:
    judging = [
        Trace(
            prompt_ids=(number,),
            output_ids=(1, 2),
            params=SamplingParams(seed=1, max_tokens=2, temperature=temperature),
        )
        for number, temperature in enumerate((0.0, 1.0, 0.0))
    ]
    few = [AcceptanceCounts(10, 10, 0, 0), AcceptanceCounts(10, 10, 0, 0), AcceptanceCounts(10, 10, 0, 0)]
    many = [AcceptanceCounts(10, 5, 0, 0), AcceptanceCounts(10, 10, 0, 0), AcceptanceCounts(10, 5, 0, 0)]
    found = list(points(judging, {"1": few, "2": many}))
    assert [(point.temperature, point.answers, point.draft) for point in found] == [
        (0.0, 2, "1"),
        (0.0, 2, "2"),
        (1.0, 1, "1"),
        (1.0, 1, "2"),
    ]
    assert [point.more and point.more.difference for point in found] == [None, 1.0, None, 0.0]
