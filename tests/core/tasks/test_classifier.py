"""The task classifier: training, saving and loading, the window over a prompt, abstention."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import torch

from core.draft_key import GENERAL
from core.errors import ConfigError
from core.tasks.classifier import TaskClassifier, window
from core.tasks.classifier_training import ClassifierRecipe, Example, accuracy, train_classifier, winner

VOCAB = 60
TINY = ClassifierRecipe(steps=60, batch=32, learning_rate=1e-2)


def language(task: str, count: int, seed: int) -> list[Example]:
    """`low` and `high` use ids of their own half, `general` uses any; all share the ids below 10."""
    spoken = {"low": range(10, 35), "high": range(35, VOCAB), GENERAL: range(10, VOCAB)}[task]
    rng = Random(f"{task}/{seed}")
    words = [*range(10), *spoken, *spoken]
    return [([rng.choice(words) for _ in range(rng.randint(8, 20))], task) for _ in range(count)]


def languages(count: int, seed: int) -> list[Example]:
    return [example for task in ("low", "high", GENERAL) for example in language(task, count, seed)]


@pytest.fixture(scope="module")
def tiny() -> TaskClassifier:
    return train_classifier(languages(150, seed=1), languages(50, seed=2), VOCAB, TINY)


def test_two_token_languages_are_told_apart(tiny: TaskClassifier) -> None:
    assert tiny.tasks == ("high", "low")
    assert accuracy(tiny, language("low", 100, seed=3) + language("high", 100, seed=3)) > 0.95


def test_training_again_gives_the_same_weights() -> None:
    recipe = ClassifierRecipe(steps=3, batch=8)
    first, second = (train_classifier(languages(20, 1), languages(20, 2), VOCAB, recipe) for _ in range(2))
    assert first.config == second.config
    for name, weight in first.network.state_dict().items():
        assert torch.equal(weight, second.network.state_dict()[name])


def test_saved_and_loaded_it_predicts_the_same(tiny: TaskClassifier, tmp_path: Path) -> None:
    tiny.save(tmp_path)
    loaded = TaskClassifier.load(tmp_path)
    assert loaded.config == tiny.config
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "model.safetensors"}
    for tokens, _ in languages(10, seed=4):
        assert loaded.predict(tokens) == tiny.predict(tokens)


def test_a_prior_names_every_task_and_sums_to_one(tiny: TaskClassifier) -> None:
    for tokens, _ in languages(20, seed=5):
        prior = tiny.predict(tokens)
        assert list(prior) == ["high", "low", GENERAL]
        assert sum(prior.values()) == pytest.approx(1)
        assert min(prior.values()) > 0


def test_below_the_threshold_general_wins_and_the_tasks_keep_their_order(tiny: TaskClassifier) -> None:
    abstained = 0
    for tokens, _ in languages(60, seed=6):
        seen, prior = tiny.probabilities(tokens)[:-1], tiny.predict(tokens)
        winner = max(prior, key=lambda name: prior[name])
        if float(seen.max()) >= tiny.config.threshold:
            assert winner == tiny.tasks[int(seen.argmax())]
            continue
        abstained += 1
        assert winner == GENERAL
        assert prior[GENERAL] >= tiny.config.threshold
        assert prior["high"] / prior["low"] == pytest.approx(float(seen[0] / seen[1]), rel=1e-4)
    assert abstained > 20


def test_the_threshold_keeps_general_prompts_from_the_tasks(tiny: TaskClassifier) -> None:
    confidence = [float(tiny.probabilities(tokens)[:-1].max()) for tokens, _ in language(GENERAL, 50, 2)]
    assert sum(p >= tiny.config.threshold for p in confidence) <= 1  # 2 % of the 50 it was calibrated on


def test_a_long_prompt_is_read_at_both_ends(tiny: TaskClassifier) -> None:
    rng = Random(7)
    head, tail = ([rng.randrange(VOCAB) for _ in range(128)] for _ in range(2))
    assert window([*head, *tail]) == [*head, *tail]
    assert window([*head, *range(5), *tail]) == [*head, *tail]
    plain = tiny.predict([*head, *tail])
    assert tiny.predict([*head, *[59] * 500, *tail]) == plain
    assert tiny.predict([*head[:-1], (head[-1] + 1) % VOCAB, *[59] * 500, *tail]) != plain
    assert tiny.predict([*head, *[59] * 500, (tail[0] + 1) % VOCAB, *tail[1:]]) != plain


def test_padding_in_a_batch_changes_no_prediction(tiny: TaskClassifier) -> None:
    short, long = [11, 12, 13, 14], [40, 41, 42, 43, 44, 45, 46]
    batch = torch.tensor([[*short, 0, 0, 0], long])
    with torch.inference_mode():
        together = tiny.network(batch, torch.tensor([4, 7])).softmax(-1)
    for row, tokens in zip(together, (short, long), strict=True):
        torch.testing.assert_close(row, tiny.probabilities(tokens))


def test_examples_of_no_task_cannot_train() -> None:
    with pytest.raises(ValueError, match="at least one task"):
        train_classifier(language(GENERAL, 5, 1), languages(5, 2), VOCAB, TINY)


def test_without_general_prompts_noise_is_what_it_abstains_on() -> None:
    one_task = language("low", 150, 1)
    alone = train_classifier(
        one_task, one_task, VOCAB, ClassifierRecipe(steps=30, batch=16, learning_rate=1e-2, noise=0.3)
    )
    assert alone.config.threshold == 0.6
    assert accuracy(alone, language("low", 50, 2)) > 0.9
    assert winner(alone, range(35, VOCAB)) == GENERAL


def test_every_step_is_told() -> None:
    steps: list[int] = []
    train_classifier(languages(5, 1), languages(5, 2), VOCAB, ClassifierRecipe(steps=3, batch=4), on_step=steps.append)
    assert steps == [1, 2, 3]


def lose_the_config(directory: Path) -> None:
    (directory / "config.json").unlink()


def lose_the_weights(directory: Path) -> None:
    (directory / "model.safetensors").unlink()


def cut_the_config(directory: Path) -> None:
    whole = (directory / "config.json").read_text()
    (directory / "config.json").write_text(whole[: len(whole) // 2])


def cut_the_weights(directory: Path) -> None:
    whole = (directory / "model.safetensors").read_bytes()
    (directory / "model.safetensors").write_bytes(whole[: len(whole) // 2])


def name_another_task(directory: Path) -> None:
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "tasks": [*config["tasks"], "third"]}))


def add_a_knob(directory: Path) -> None:
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "treshold": 0.5}))


@pytest.mark.parametrize(
    ("spoil", "culprit"),
    [
        (lose_the_config, "config.json"),
        (cut_the_config, "config.json"),
        (add_a_knob, "treshold"),
        (lose_the_weights, "model.safetensors"),
        (cut_the_weights, "model.safetensors"),
        (name_another_task, "model.safetensors"),
    ],
)
def test_a_spoilt_directory_is_named(
    tiny: TaskClassifier, tmp_path: Path, spoil: Callable[[Path], None], culprit: str
) -> None:
    tiny.save(tmp_path)
    spoil(tmp_path)
    with pytest.raises(ConfigError, match=culprit):
        TaskClassifier.load(tmp_path)


def test_a_cpu_classifier_hides_cuda_kernels_from_transformers(tiny: TaskClassifier, tmp_path: Path) -> None:
    tiny.save(tmp_path / "router")
    for package in ("mamba_ssm", "causal_conv1d"):
        (tmp_path / "site" / package).mkdir(parents=True)
        (tmp_path / "site" / package / "__init__.py").write_text("raise SystemExit('CUDA kernels were bound')")
    program = f"""
import logging, sys
logging.basicConfig(level=logging.INFO)
sys.path.insert(0, {str(tmp_path / "site")!r})
from core.tasks.classifier import TaskClassifier
print(TaskClassifier.load({str(tmp_path / "router")!r}).predict([11, 12, 13]))
"""
    outcome = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr
    assert "'low'" in outcome.stdout
    assert "Mamba by plain torch" in outcome.stderr
