"""A pool's directory is an adapter of the draft, or a whole model in its stead."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

from core.errors import ConfigError
from core.family import DRAFT_DIR, TARGET_DIR
from core.model.base import Model, Rows
from core.model.causal_lm import load_model
from core.model.draft_vocabulary import DraftVocabulary
from core.model.invariance import Found
from serve_app.config import Draft, Target
from serve_app.deployments.models import target_loading
from serve_app.deployments.models.draft_loading import draft_model, load_draft
from serve_app.deployments.models.target_loading import load_target

DRAFT = Draft(model="family:draft", max_sessions=1)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    yield
    torch.set_num_threads(1)


def logits(model: Model[Any]) -> torch.Tensor:
    model.open(1)
    return torch.as_tensor(model.forward([Rows(1, [5, 6, 7, 8], 4)]))


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """LoRA of one layer, with a random B."""
    directory = tmp_path_factory.mktemp("adapter")
    base = AutoModelForCausalLM.from_pretrained(DRAFT_DIR, dtype=torch.float32)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tuned = get_peft_model(base, LoraConfig(r=2, target_modules=["up_proj"], init_lora_weights=False))
        tuned.save_pretrained(str(directory))
    return directory


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, adapter: Path) -> Path:
    """The adapter merged, as a model of its own."""
    directory = tmp_path_factory.mktemp("whole")
    base = AutoModelForCausalLM.from_pretrained(DRAFT_DIR, dtype=torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        PeftModel.from_pretrained(base, str(adapter)).merge_and_unload().save_pretrained(directory)
    shutil.copy(DRAFT_DIR / "tokenizer.json", directory)
    return directory


def test_none_is_the_draft_as_it_is() -> None:
    plain = load_model(DRAFT_DIR, dtype=torch.float32, num_pages=16)
    assert torch.equal(logits(load_draft(DRAFT, None)), logits(plain))


def test_an_adapter_is_merged_and_a_whole_model_taken(adapter: Path, whole: Path) -> None:
    adapted, own = logits(load_draft(DRAFT, str(adapter))), logits(load_draft(DRAFT, str(whole)))
    assert not torch.allclose(adapted, logits(load_draft(DRAFT, None)), atol=1e-2)
    torch.testing.assert_close(adapted, own, atol=1e-4, rtol=0)
    assert draft_model(DRAFT, str(adapter)) == draft_model(DRAFT, None) == str(DRAFT_DIR)
    assert draft_model(DRAFT, str(whole)) == str(whole)


def test_a_slots_draft_vocabulary_cuts_its_head(adapter: Path, whole: Path, tmp_path: Path) -> None:
    vocabulary = DraftVocabulary.from_ids(range(0, 2048, 3), 2048)
    for source, name in ((adapter, "adapter"), (whole, "whole")):
        directory = Path(shutil.copytree(source, tmp_path / name))
        uncut = logits(load_draft(DRAFT, str(directory)))
        vocabulary.save(directory)
        assert torch.equal(logits(load_draft(DRAFT, str(directory))), uncut[:, vocabulary.ids])
        (directory / "draft_vocabulary.safetensors").write_bytes(b"")
        with pytest.raises(ConfigError, match=r"draft_vocabulary\.safetensors: not a readable"):
            load_draft(DRAFT, str(directory))


def test_a_target_keeps_its_whole_head(tmp_path: Path) -> None:
    directory = Path(shutil.copytree(DRAFT_DIR, tmp_path / "target"))
    DraftVocabulary.from_ids([1, 2], 2048).save(directory)
    target = Target(model=str(directory), threads=1, max_sessions=1, numerics="fast")
    assert logits(load_target(target)).shape == (4, 2048)


def test_a_directory_that_is_neither_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=str(tmp_path)):
        load_draft(DRAFT, str(tmp_path))


@pytest.mark.parametrize(("cache_tokens", "pages"), [(None, 3 * 16), (1024, 16), (1025, 17), (9999, 157)])
def test_the_target_has_the_cache_that_is_asked_for(cache_tokens: int | None, pages: int) -> None:
    target = Target(model="family:target", threads=1, max_sessions=3, cache_tokens=cache_tokens)
    assert load_target(target).num_free_pages == pages


def test_numerics_that_the_device_does_not_keep_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_loading, "differing", lambda _: Found(3, 160))
    with pytest.raises(ConfigError, match=r"exact does not hold on cpu: at 3 of 160 .*\nWrite numerics: fast"):
        load_target(Target(model="family:target", threads=1, max_sessions=1))
    load_target(Target(model="family:target", threads=1, max_sessions=1, numerics="fast"))


@pytest.mark.parametrize("threads", [1, 2])
def test_the_target_computes_on_the_threads_that_are_asked_for(threads: int) -> None:
    load_target(Target(model="family:target", threads=threads, decoder="torch", max_sessions=1))
    assert torch.get_num_threads() == threads


def test_left_open_they_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Path, torch.dtype, str]] = []

    def choose_threads(directory: Path, dtype: torch.dtype, *, decoder: str) -> int:
        asked.append((directory, dtype, decoder))
        torch.set_num_threads(2)
        return 2

    monkeypatch.setattr(target_loading, "choose_threads", choose_threads)
    load_target(Target(model="family:target", decoder="torch", max_sessions=1))
    assert asked == [(TARGET_DIR, torch.bfloat16, "torch")]
    assert torch.get_num_threads() == 2


def test_a_cache_of_less_than_one_context_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"target.cache_tokens: 1023 is less .*\nWrite 1024 or more"):
        load_target(Target(model="family:target", cache_tokens=1023))
