"""Aligning the shipped draft to the shipped target: it helps, it resumes to the same bytes, and anyone can load it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from core.acceptance import score, session_forward, total
from core.alignment import Alignment, OnStep, Progress, Recipe, align, rate
from core.bootstrap import Difference, compare
from core.distillation import DistillationSet, distil
from core.family import DRAFT_DIR, TARGET_DIR
from core.gate import choose
from core.id_map import same_id_map
from core.model.causal_lm import CausalLM
from core.record import Record
from tests.core.family_records import TERMS, answered, draft, requests, target

pytestmark = [
    # peft, loading: a tied lm_head is changed apart from the embedding, which is what is meant
    pytest.mark.filterwarnings("ignore:.*tie.*"),
    pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning"),
]
RECIPE = Recipe(steps=40, evaluate_every=20)
TINY = Recipe(steps=10, budget=512, evaluate_every=4)
ROOT = Path(__file__).parent.parent.parent


@cache
def data() -> DistillationSet:
    return distil(target(), answered(requests("english", 160, 1, "train")), top=64, context=1024)


@cache
def selection() -> list[Record]:
    return answered(requests("english", 24, 2, "train"))


@cache
def held_out() -> list[Record]:
    return answered(requests("english", 48, 3, "held_out"))


def run(
    where: Path, recipe: Recipe, distilled: DistillationSet | None = None, on_step: OnStep = lambda _: None
) -> Alignment:
    return align(
        DRAFT_DIR,
        distilled or data(),
        selection(),
        TERMS,
        recipe,
        checkpoint=where / "checkpoint.pt",
        destination=where / "best",
        on_step=on_step,
    )


def against_general(candidate: CausalLM) -> Difference:
    return compare(
        score(candidate, held_out(), TERMS), score(draft(), held_out(), TERMS), [r.prompt_ids for r in held_out()]
    )


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.fixture(scope="module")
def aligned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Alignment, Path]:
    where = tmp_path_factory.mktemp("aligned")
    return run(where, RECIPE), where / "best"


def test_an_adapter_of_the_task_is_better_on_held_out_prompts(aligned: tuple[Alignment, Path]) -> None:
    found, adapter = aligned
    assert found.best == found.curve[-1]
    assert found.best.acceptance > 1.3 * found.curve[0].acceptance
    difference = against_general(draft(adapter=adapter))
    assert difference.better
    assert difference.difference > 0.05


def test_the_gate_refuses_one_taught_shuffled_answers(tmp_path: Path) -> None:
    order = torch.randperm(len(data().ids), generator=torch.Generator().manual_seed(4))
    shuffled = replace(data(), ids=data().ids[order], logprobs=data().logprobs[order])
    run(tmp_path, RECIPE, shuffled)
    taught = {"general": draft(), "task": draft(adapter=tmp_path / "best")}
    candidates = {name: score(model, held_out(), TERMS) for name, model in taught.items()}
    choice = choose(candidates, [record.prompt_ids for record in held_out()])
    assert choice.name == "general"
    assert "not better than general" in choice.reason


def test_anyone_can_load_the_adapter(aligned: tuple[Alignment, Path]) -> None:
    _, adapter = aligned
    base = AutoModelForCausalLM.from_pretrained(DRAFT_DIR, dtype=torch.float32)
    tokens = held_out()[0].tokens
    with torch.inference_mode():
        expected = PeftModel.from_pretrained(base, str(adapter)).eval()(torch.tensor([tokens])).logits[0]
    ours = session_forward(draft(adapter=adapter))(tokens, len(tokens))
    torch.testing.assert_close(ours, expected, atol=1e-4, rtol=0)
    assert (session_forward(draft())(tokens, len(tokens)) - expected).abs().max() > 1.0
    assert sorted(path.name for path in adapter.iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
    # the lm_head's own weight (2,048 x 64 in float32) is not in it
    assert (adapter / "adapter_model.safetensors").stat().st_size < 4 * 2048 * 64
    assert str(DRAFT_DIR.parent) not in (adapter / "adapter_config.json").read_text()


def test_a_full_fine_tune_is_a_model_of_its_own(tmp_path: Path) -> None:
    found = run(tmp_path, replace(RECIPE, rank=None))
    assert found.best.acceptance > found.curve[0].acceptance
    assert same_id_map(TARGET_DIR, tmp_path / "best") == same_id_map(TARGET_DIR, DRAFT_DIR)
    assert against_general(draft(path=tmp_path / "best")).better


def test_the_best_weights_are_kept_and_a_run_that_gets_worse_ends(tmp_path: Path) -> None:
    steps: list[Progress] = []
    spoiled = run(
        tmp_path, replace(TINY, learning_rate=3.0, steps=100, evaluate_every=2, patience=3), on_step=steps.append
    )
    assert spoiled.best.step == 0
    assert [evaluation.step for evaluation in spoiled.curve] == [0, 2, 4, 6]
    assert steps[-1].step == 6
    adapted = score(draft(adapter=tmp_path / "best"), selection(), TERMS)
    assert adapted == score(draft(), selection(), TERMS)
    assert total(adapted).acceptance_rate == pytest.approx(spoiled.best.acceptance, abs=0.01)


def stop_at(step: int) -> Callable[[Progress], None]:
    def on_step(progress: Progress) -> None:
        if progress.step == step:
            raise KeyboardInterrupt

    return on_step


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Alignment, dict[str, bytes]]:
    where = tmp_path_factory.mktemp("undisturbed")
    return run(where, TINY), contents(where / "best")


@pytest.mark.parametrize("stops", [(1,), (4,), (7,), (3, 5, 9, 10)], ids=str)
def test_a_run_stopped_anywhere_goes_on_to_the_same_bytes(
    tmp_path: Path, undisturbed: tuple[Alignment, dict[str, bytes]], stops: tuple[int, ...]
) -> None:
    for step in stops:
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, TINY, on_step=stop_at(step))
    assert run(tmp_path, TINY) == undisturbed[0]
    assert contents(tmp_path / "best") == undisturbed[1]
    assert run(tmp_path, TINY) == undisturbed[0]  # finished long since
    assert contents(tmp_path / "best") == undisturbed[1]


KILLED = """
import os, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from tests.core.test_alignment import TINY, run

def on_step(progress):
    if progress.step == 6:
        os.kill(os.getpid(), signal.SIGKILL)

run(Path(sys.argv[1]), TINY, on_step=on_step)
"""


def test_a_killed_process_leaves_what_another_goes_on_from(
    tmp_path: Path, undisturbed: tuple[Alignment, dict[str, bytes]]
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "1"}
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], cwd=ROOT, env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert (tmp_path / "checkpoint.pt").exists()
    assert not (tmp_path / "best").exists()
    assert run(tmp_path, TINY) == undisturbed[0]
    assert contents(tmp_path / "best") == undisturbed[1]


def test_progress_tells_of_every_step(tmp_path: Path) -> None:
    steps: list[Progress] = []
    found = run(tmp_path, TINY, on_step=steps.append)
    assert [progress.step for progress in steps] == list(range(1, 11))
    assert {progress.steps for progress in steps} == {10}
    assert [(p.step, p.acceptance) for p in steps if p.acceptance is not None] == list(found.curve[1:])
    assert steps[-1].loss < steps[0].loss


def test_the_learning_rate_rises_and_falls() -> None:
    shares = [rate(step, 100) for step in range(100)]
    assert shares[:5] == sorted(shares[:5])
    assert max(shares) == 1.0
    assert shares[5:] == sorted(shares[5:], reverse=True)
    assert 0 < shares[-1] < 0.01
