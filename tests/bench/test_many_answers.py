"""Answers in batches as transformers gives them; and the whole study on the shipped family, at tiny numbers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import torch

from core.distill.dataset import DistillationSet
from core.traces.store import Trace, parquet_of
from tests.bench.batched_answers import Batch, Llama
from tests.bench.many_answers import Study, learn, options
from tests.core.family_records import answered, requests
from tests.core.model.random_models import random_tokens, save_model
from tests.tree import ROOT

CPU = torch.device("cpu")
VOCAB_SIZE, STEPS = 300, 12
HEAD_IDS = list(range(3, VOCAB_SIZE, 2))
PROMPTS = [random_tokens(length, VOCAB_SIZE, seed=length) for length in (3, 16, 9)]


def parts(data: DistillationSet) -> list[tuple[list[int], torch.Tensor, torch.Tensor]]:
    """The tokens, ids and log-probabilities of each record."""
    outputs = (data.lengths - data.prompt_lengths).tolist()
    tokens = [part.tolist() for part in data.tokens.split(data.lengths.tolist())]
    return list(zip(tokens, data.ids.split(outputs), data.logprobs.split(outputs), strict=True))


@torch.inference_mode()
def test_greedy_answers_and_their_logprobs_are_those_of_transformers(tmp_path: Path) -> None:
    network = save_model(tmp_path, vocab_size=VOCAB_SIZE)
    llama = Llama(tmp_path, torch.float32, CPU)
    plain = Batch(llama, 4, 16, STEPS, [VOCAB_SIZE])(PROMPTS, [0.0] * 3)
    eos = parts(plain)[0][0][-1]  # which ends at least that answer at its first place
    batch = Batch(llama, 4, 16, STEPS, [eos], HEAD_IDS)
    for _ in range(2):  # the second time over what the first has left
        data = batch(PROMPTS, [0.0] * 3)
        assert data.prompt_lengths.tolist() == [3, 16, 9]
        for prompt, (tokens, ids, logprobs) in zip(PROMPTS, parts(data), strict=True):
            expected = prompt
            while len(expected) < len(prompt) + STEPS and (expected == prompt or expected[-1] != eos):
                [logits] = network(torch.tensor([expected])).logits
                expected = [*expected, int(logits[-1].argmax())]
            assert tokens == expected
            [logits] = network(torch.tensor([tokens[:-1]])).logits
            best = logits[len(prompt) - 1 :].log_softmax(-1)[:, HEAD_IDS].topk(64)
            assert torch.allclose(logprobs.float(), best.values, atol=2e-2)
            of_ids = logits[len(prompt) - 1 :].log_softmax(-1).gather(-1, ids.long())
            assert set(ids.flatten().tolist()) <= set(HEAD_IDS)
            assert torch.allclose(logprobs.float(), of_ids, atol=2e-2)


def test_answers_are_drawn_from_the_softmax_at_each_rows_temperature(tmp_path: Path) -> None:
    network, rows = save_model(tmp_path, vocab_size=VOCAB_SIZE), 4000
    torch.manual_seed(0)
    batch = Batch(Llama(tmp_path, torch.float32, CPU), rows, 16, 1, [VOCAB_SIZE])
    temperature = 0.5
    data = batch([PROMPTS[0]] * rows, [temperature] * (rows // 2) + [0.0] * (rows // 2))
    drawn = data.tokens.view(rows, -1)[:, -1].long()
    with torch.inference_mode():
        shares = (network(torch.tensor([PROMPTS[0]])).logits[0, -1] / temperature).softmax(-1)
    assert drawn[rows // 2 :].unique().tolist() == [int(shares.argmax())]
    often = drawn[: rows // 2].bincount(minlength=VOCAB_SIZE) / (rows // 2)
    assert float((often - shares).abs().max()) < 0.05
    assert len(drawn[: rows // 2].unique()) > 10


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prompts, and a few short held-out answers."""
    directory = tmp_path_factory.mktemp("answers")
    prompts = [request.tokens[: request.prompt_length] for request in requests("math", 6, 0, max_tokens=1)]
    (directory / "prompts.msgpack").write_bytes(msgspec.msgpack.encode(prompts))
    for place, split in enumerate(("stop", "promotion", "test")):
        records = answered(requests("math", 2, place + 1, max_tokens=12, temperature=0.0))
        traces = [Trace(prompt_ids=one.prompt_ids, output_ids=one.output_ids, params=one.params) for one in records]
        (directory / f"{split}-0000.parquet").write_bytes(parquet_of(traces))
    return directory


def arguments(answers: Path, tmp_path: Path) -> list[str]:
    family = ["--target", "family:target", "--target-name", "family:target", "--shipped", "family:draft"]
    places = ["--answers", str(answers), "--work", str(tmp_path / "work"), "--out", str(tmp_path / "out")]
    size = ["--layers", "1", "--vocabularies", "300", "200", "--batch", "4", "--max-tokens", "8", "--written", "4"]
    return [*family, *places, *size, "--threads", "1", "--numbers", "8", "1000", "--steps", "5"]


def test_every_number_has_its_draft_and_its_figures(answers: Path, tmp_path: Path) -> None:
    call = arguments(answers, tmp_path)
    command, environment = [sys.executable, "-m", "tests.bench.many_answers", *call], {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=os.environ | environment, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    data = DistillationSet.load(tmp_path / "work" / "answers.safetensors")
    count = len(data.lengths)
    assert f"{count} answers with" in done.stdout
    assert 6 * 3 + 6 * 2 * 3 <= count <= 6 * 3 + 6 * 2 * 3 + 4
    given = {tuple(prompt) for prompt in msgspec.msgpack.decode((answers / "prompts.msgpack").read_bytes())}
    records = zip(parts(data), data.prompt_lengths.tolist(), strict=True)
    prompts = [tuple(tokens[:length]) for (tokens, _, _), length in records]
    assert set(prompts[: 6 * 9]) == given
    assert not set(prompts[6 * 9 :]) & given
    found = json.loads((tmp_path / "out" / "many_answers.json").read_text())
    judged = {(head, point["draft"], point["answers"]) for head, of in found["points"].items() for point in of}
    assert judged == {(head, draft, 4) for head in ("whole", "cut") for draft in ("shipped", "8", str(count))}
    for draft in ("8", str(count)):
        assert [step for step, _ in found["curves"][draft]] == [0, 1, 2, 3, 4, 5]
    assert (tmp_path / "out" / "many_answers.png").stat().st_size > 1000
    late = Study(options().parse_args(call))
    place, curve = learn(late, 12, 5, until=0.0)  # ends after a step, and keeps what is best until then
    assert [evaluation.step for evaluation in curve] == [0, 1]
    assert (place / "model.safetensors").exists()
