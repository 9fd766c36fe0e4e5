"""A draft with a cut head as transformers' assistant, and the page of a real model from invented measurements."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import torch

from core.distill.draft_making import make_from_layers
from core.family import TARGET_DIR
from core.model.causal_lm import load_draft_model
from core.replay.replay import session_forward
from core.text.prompts import Prompt
from tests.bench.engines import Answered
from tests.bench.hugging_face import LOOKUP, Transformers, assistant
from tests.bench.real_model_page import DRAFT, PLAIN, Measured, Question, Reply, Turn, as_json, differing, page
from tests.bench.real_model_rivals import ASSISTED, GENERATE
from tests.bench.real_model_run import held_out_questions, in_turn
from tests.bench.rival_process import Job
from train_jobs.config import RetrainConfig
from train_jobs.prompts.sources import gather

IDS = [0, 1, 2, *range(3, 2048, 2)]
TEXT = [5, 300, 17, 42, 1999, 8]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("real_model") / "draft"
    make_from_layers(TARGET_DIR, "family:target", [0, 5], IDS, directory)
    return directory


def test_the_assistant_is_our_draft_and_gives_other_ids_no_chance(made: Path) -> None:
    ours = load_draft_model(None, made, dtype=torch.float32, target=TARGET_DIR)
    theirs = assistant(None, str(made), str(TARGET_DIR), torch.float32)
    with torch.no_grad():
        logits = theirs(torch.tensor([TEXT])).logits[0]
    assert logits.shape == (len(TEXT), 2048)
    torch.testing.assert_close(logits[:, IDS], session_forward(ours)(TEXT, len(TEXT)), rtol=1e-4, atol=1e-4)
    others = torch.ones(2048, dtype=torch.bool).index_fill_(0, torch.tensor(IDS), 0)
    assert (logits[:, others] == -torch.inf).all()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_transformers_answers_in_all_ways(made: Path, temperature: float) -> None:
    answer = Transformers(str(TARGET_DIR), {ASSISTED: None}, str(made), "float32", length=4, threads=1).load()
    plain, *others = (answer(Job(tuple(TEXT), 12, temperature, 1, way)) for way in (None, ASSISTED, LOOKUP))
    assert plain.passes == len(plain.tokens) - 1
    for answered in (plain, *others):
        assert 0 < answered.first <= answered.seconds
        assert 0 < len(answered.tokens) <= 12
        assert answered.passes < len(answered.tokens)


def test_prompts_of_the_test_split_are_asked_the_files_in_turns(tmp_path: Path) -> None:
    files = [tmp_path / "sums.jsonl", tmp_path / "words.jsonl"]
    for file in files:
        lines = (f'{{"messages": [{{"role": "user", "content": "{file.stem} {at}"}}]}}' for at in range(80))
        file.write_text("\n".join(lines))
    models = {"target": {"model": "family:target"}, "draft": "family:draft", "work": tmp_path, "bundles": tmp_path}
    config = RetrainConfig.model_validate(models | {"collect": {"files": files, "held_out_share": 0.5}})
    asked = held_out_questions(config, 3)
    assert [question.of for question in asked] == ["sums", "words"] * 3
    test = {trace.prompt_ids for trace in gather(config, 1024)["test"]}
    assert {question.tokens for question in asked} < test


def test_of_two_contenders_each_comes_second_as_often() -> None:
    orders = [in_turn(["plain", "draft", "other"], turn) for turn in range(6)]
    assert sum(order.index("plain") < order.index("draft") for order in orders) == 3
    assert sorted(order[0] for order in orders) == ["draft", "draft", "other", "other", "plain", "plain"]


def invented(*, wrong: bool = False) -> Measured:
    measured = Measured(0.0)
    for number in range(4):
        of = "maths" if number % 2 else "chat"
        question = Question(number, Prompt(prompt=f"question {number}"), (1, 2), of)
        for name, seconds, passes in ((PLAIN, 0.4, 3), (DRAFT, 0.2, 1), (GENERATE, 0.8, 3), (ASSISTED, 0.5, 2)):
            last = 9 if wrong and name == DRAFT and number == 2 else 4
            counts = {"draft": 2, "own_text": 1} if name == DRAFT else {}
            reply = Reply(Answered((1, 2, 3, last), seconds, 0.05, passes, 0, 0), Counter(counts), Counter(counts))
            measured.turns.append(Turn(name, question, reply))
    return measured


def test_the_page_is_written() -> None:
    text = page([invented()], [], ["a note"])
    assert f"| 0 | {DRAFT} | 50.0 | 20 | 2.00 (2.00 to 2.00) | 3.00 | 50 |" in text
    assert "| chat | 2 | 2.00 (2.00 to 2.00) | 2.50 (2.50 to 2.50) | 3.00 | draft 4 of 4, own_text 2 of 2 |" in text
    assert "| **all** | 4 |" in text
    assert "ours answered 4 of 4 prompts alike" in text
    assert "- a note" in text
    assert differing([invented()], []) == []
    assert "maths" in json.dumps(as_json([invented()], []))


def test_an_answer_that_differs_is_told() -> None:
    assert differing([invented(wrong=True)], []) == ["1 of 4 prompts at temperature 0"]
