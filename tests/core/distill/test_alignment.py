"""Alignment of the shipped draft to the shipped target: better acceptance, equal bytes after a resume, plain files."""

from __future__ import annotations

import math
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

from core.confidence_intervals import Difference, compare
from core.distill.alignment import Alignment, AlignmentRecipe, OnStep, TrainingStep, align, rate
from core.distill.dataset import DistillationSet, distil
from core.distill.losses import kl_loss, lk_loss
from core.errors import ConfigError
from core.family import DRAFT_DIR, TARGET_DIR
from core.model.causal_lm import CausalLM
from core.replay.promotion import promote
from core.replay.replay import score_draft, session_forward, total
from core.replay.speed import DraftCosts
from core.text.vocabulary import same_id_map
from core.traces.record import Record
from tests.core.family_records import TERMS, answered, draft, requests, target

pytestmark = [
    # peft, loading: LoRA on a tied lm_head leaves the embedding alone, as intended
    pytest.mark.filterwarnings("ignore:.*tie.*"),
    pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning"),
]
RECIPE = AlignmentRecipe(steps=40, evaluate_every=20)
TINY = AlignmentRecipe(steps=10, budget=512, evaluate_every=4)
ROOT = Path(__file__).parents[3]


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
    where: Path,
    recipe: AlignmentRecipe,
    distilled: DistillationSet | None = None,
    on_step: OnStep = lambda _: None,
    adapter: Path | None = None,
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
        adapter=adapter,
    )


def against_general(candidate: CausalLM) -> Difference:
    return compare(
        score_draft(candidate, held_out(), TERMS),
        score_draft(draft(), held_out(), TERMS),
        [r.prompt_ids for r in held_out()],
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


@pytest.mark.thorough
def test_a_draft_trained_on_shuffled_answers_is_not_promoted(tmp_path: Path) -> None:
    order = torch.randperm(len(data().ids), generator=torch.Generator().manual_seed(4))
    shuffled = replace(data(), ids=data().ids[order], logprobs=data().logprobs[order])
    run(tmp_path, RECIPE, shuffled)
    taught = {"general": draft(), "task": draft(adapter=tmp_path / "best")}
    costs = DraftCosts(0.05, (1.0,) * TERMS.num_speculative_tokens)
    candidates = {name: score_draft(model, held_out(), TERMS, costs) for name, model in taught.items()}
    choice = promote(candidates, [record.prompt_ids for record in held_out()])
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


def test_training_goes_on_from_an_earlier_adapter_of_the_same_rank(
    tmp_path: Path, aligned: tuple[Alignment, Path]
) -> None:
    earlier, adapter = aligned
    continued = run(tmp_path, TINY, adapter=adapter)
    assert continued.curve[0].acceptance == pytest.approx(earlier.best.acceptance, abs=0.01)  # it was saved in bf16
    with pytest.raises(ConfigError, match="not an adapter of this draft and rank"):
        run(tmp_path / "other", replace(TINY, rank=8), adapter=adapter)


@pytest.mark.thorough
@pytest.mark.parametrize("rank", [8, None])
def test_lk_raises_acceptance(tmp_path: Path, rank: int | None) -> None:
    found = run(tmp_path, replace(RECIPE, loss="lk", rank=rank))
    assert found.best.acceptance > 1.3 * found.curve[0].acceptance


def test_lk_is_kl_where_nothing_is_shared_and_total_variation_where_all_is() -> None:
    apart = torch.tensor([[0.0]]), torch.tensor([[-20.0]])
    assert lk_loss(*apart) == pytest.approx(20.0)
    same = torch.tensor([[0.5, 0.5]]).log()
    assert lk_loss(same, same) == pytest.approx(0.0, abs=1e-6)
    theirs, ours = torch.tensor([[0.6, 0.4]]).log(), torch.tensor([[0.4, 0.6]]).log()
    weight = math.exp(-3 * 0.8)
    assert lk_loss(theirs, ours) == pytest.approx(weight * kl_loss(theirs, ours) + (1 - weight) * 0.2)


def test_the_best_weights_are_kept(tmp_path: Path) -> None:
    spoiled = run(tmp_path, replace(TINY, learning_rate=3.0, steps=6, evaluate_every=2))
    assert spoiled.best.step == 0
    assert [evaluation.step for evaluation in spoiled.curve] == [0, 2, 4, 6]
    adapted = score_draft(draft(adapter=tmp_path / "best"), selection(), TERMS)
    assert adapted == score_draft(draft(), selection(), TERMS)
    assert total(adapted).acceptance_rate == pytest.approx(spoiled.best.acceptance, abs=0.01)


def stop_at(step: int) -> Callable[[TrainingStep], None]:
    def on_step(progress: TrainingStep) -> None:
        if progress.step == step:
            raise KeyboardInterrupt

    return on_step


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Alignment, dict[str, bytes]]:
    where = tmp_path_factory.mktemp("undisturbed")
    return run(where, TINY), contents(where / "best")


@pytest.mark.thorough
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
from tests.core.distill.test_alignment import TINY, run

def on_step(progress):
    if progress.step == 6:
        os.kill(os.getpid(), signal.SIGKILL)

run(Path(sys.argv[1]), TINY, on_step=on_step)
"""


@pytest.mark.soak
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
    steps: list[TrainingStep] = []
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
