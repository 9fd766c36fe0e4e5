"""The task classifier: it learns, keeps what it learned on disk, reads both ends of a prompt, and abstains."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest
import torch

from core.classifier import GENERAL, TaskClassifier, window
from core.classifier_training import Example, Recipe, accuracy, train_classifier
from core.errors import ConfigError
from core.family import ROUTER_DIR, TARGET_DIR
from core.family.corpora import TASKS
from core.family.router import prompts
from core.tokenizer import Tokenizer, load_tokenizer

VOCAB = 60
TINY = Recipe(steps=60, batch=32, learning_rate=1e-2)


def language(task: str, count: int, seed: int) -> list[Example]:
    """`low` and `high` speak with ids of their own half; `general` with any; all share the ids below 10."""
    spoken = {"low": range(10, 35), "high": range(35, VOCAB), GENERAL: range(10, VOCAB)}[task]
    rng = Random(f"{task}/{seed}")
    words = [*range(10), *spoken, *spoken]
    return [([rng.choice(words) for _ in range(rng.randint(8, 20))], task) for _ in range(count)]


def languages(count: int, seed: int) -> list[Example]:
    return [example for task in ("low", "high", GENERAL) for example in language(task, count, seed)]


@pytest.fixture(scope="module")
def tiny() -> TaskClassifier:
    return train_classifier(languages(150, seed=1), languages(50, seed=2), VOCAB, TINY)


@pytest.fixture(scope="module")
def router() -> TaskClassifier:
    return TaskClassifier.load(ROUTER_DIR)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(TARGET_DIR)


@pytest.fixture(scope="module")
def held_out(tokenizer: Tokenizer) -> list[Example]:
    """300 prompts of the tasks and 100 general texts that neither training nor calibration has seen."""
    return prompts(50, seed=1234, split="held_out", tokenizer=tokenizer)


def test_two_token_languages_are_told_apart(tiny: TaskClassifier) -> None:
    assert tiny.tasks == ("high", "low")
    assert accuracy(tiny, language("low", 100, seed=3) + language("high", 100, seed=3)) > 0.95


def test_training_again_gives_the_same_weights() -> None:
    recipe = Recipe(steps=3, batch=8)
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
        if seen.max() >= tiny.config.threshold:
            assert winner == tiny.tasks[int(seen.argmax())]
            continue
        abstained += 1
        assert winner == GENERAL
        assert prior[GENERAL] >= tiny.config.threshold
        assert prior["high"] / prior["low"] == pytest.approx(float(seen[0] / seen[1]), rel=1e-4)
    assert abstained > 20


def test_the_threshold_keeps_general_prompts_from_the_tasks(tiny: TaskClassifier) -> None:
    routed = [tiny.probabilities(tokens)[:-1].max() >= tiny.config.threshold for tokens, _ in language(GENERAL, 50, 2)]
    assert sum(routed) <= 1  # 2 % of the 50 it was calibrated on


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


def test_examples_of_one_class_cannot_train() -> None:
    with pytest.raises(ValueError, match="two classes"):
        train_classifier(language("low", 5, 1), languages(5, 2), VOCAB, TINY)


def test_a_threshold_needs_general_prompts() -> None:
    with pytest.raises(ValueError, match="general prompts"):
        train_classifier(languages(5, 1), language("low", 5, 2), VOCAB, Recipe(steps=2, batch=4))


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
from core.classifier import TaskClassifier
print(TaskClassifier.load({str(tmp_path / "router")!r}).predict([11, 12, 13]))
"""
    outcome = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr
    assert "'low'" in outcome.stdout
    assert "Mamba by plain torch" in outcome.stderr


def test_the_shipped_router_is_small_and_knows_the_familys_tasks(router: TaskClassifier) -> None:
    assert sum(path.stat().st_size for path in ROUTER_DIR.iterdir()) <= 500_000
    assert set(router.tasks) == set(TASKS)


def test_the_shipped_router_finds_the_task_of_unseen_prompts(router: TaskClassifier, held_out: list[Example]) -> None:
    of_tasks = [example for example in held_out if example[1] != GENERAL]
    assert len(of_tasks) == 300
    assert accuracy(router, of_tasks) >= 0.95


def test_the_shipped_router_abstains_on_general_texts(router: TaskClassifier, held_out: list[Example]) -> None:
    assert accuracy(router, [example for example in held_out if example[1] == GENERAL]) >= 0.9


# None of these comes from the corpora: strangers to every task.
STRANGERS = (
    "Who won the match yesterday?",
    "Tell me a story about a dragon who is afraid of fire.",
    "Bonjour, comment allez-vous ?",
    "<html><body><p>hello</p></body></html>",
    "asdkj qwe zxc vbn",
    "How do I cook rice for four people?",
    "Plan a trip to Rome for 3 days.",
    "SELECT name FROM users ORDER BY age;",
    "Привет, как дела?",
    "🙂🙂🙂🙂",
    "I feel sad today and do not know why.",
    "the the the the the the",
)


def certain(router: TaskClassifier, tokenizer: Tokenizer, texts: Sequence[str]) -> int:
    """How many texts get a task's draft with nearly all of the mass."""
    priors = [router.predict(tokenizer.encode_chat([{"role": "user", "content": text}])) for text in texts]
    return sum(max(prior[task] for task in router.tasks) > 0.9 for prior in priors)


def test_the_shipped_router_is_not_certain_of_strangers(router: TaskClassifier, tokenizer: Tokenizer) -> None:
    assert certain(router, tokenizer, STRANGERS) <= len(STRANGERS) // 4
