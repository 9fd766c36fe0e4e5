"""Drafts made from their target: what is stored, what is shared, and that every loader and learner sees one model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from core.distill.dataset import DistillationBatches, distil
from core.distill.draft_making import evenly, make_from_layers, make_narrow
from core.distill.learner import DraftLearner
from core.errors import ConfigError
from core.family import TARGET_DIR
from core.model.causal_lm import CausalLM, load_draft_model, load_model
from core.model.config import ModelConfig
from core.model.draft_vocabulary import DraftVocabulary
from core.replay.replay import session_forward
from tests.core.family_records import answered, requests
from tests.core.model.random_models import save_model
from tests.core.model.test_parity import VARIANTS

IDS = [0, 1, 2, *range(3, 2048, 2)]
TEXT = [5, 300, 17, 42, 1999, 8]
Made = Callable[[Path], Path]


def of_layers(destination: Path) -> Path:
    make_from_layers(TARGET_DIR, "family:target", [0, 5], IDS, destination)
    return destination


def narrow(destination: Path) -> Path:
    make_narrow(TARGET_DIR, "family:target", 1, 64, IDS, destination)
    return destination


@pytest.fixture(params=[of_layers, narrow])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    make: Made = request.param
    return make(tmp_path / "made")


def draft(directory: Path | None, base: Path) -> CausalLM:
    return load_draft_model(directory, base, dtype=torch.float32, target=TARGET_DIR)


def logits(model: CausalLM) -> torch.Tensor:
    return session_forward(model)(TEXT, len(TEXT))


def test_nothing_that_the_target_has_is_stored_again(made: Path) -> None:
    with safe_open(made / "model.safetensors", framework="pt") as opened:
        names = set(opened.keys())
        assert opened.get_slice("lm_head.weight").get_shape()[0] == len(IDS)
    assert "model.embed_tokens.weight" not in names
    block = json.loads((made / "config.json").read_text())["speculators_config"]
    assert block["verifier"] == {"name_or_path": "family:target", "architectures": ["LlamaForCausalLM"]}
    assert DraftVocabulary.load(made).ids.tolist() == IDS


def test_all_layers_and_the_whole_head_are_the_target_itself(tmp_path: Path) -> None:
    make_from_layers(TARGET_DIR, "family:target", evenly(6, 6), range(2048), tmp_path / "made")
    whole = load_model(TARGET_DIR, dtype=torch.float32, num_pages=16)
    assert torch.equal(logits(draft(None, tmp_path / "made")), logits(whole))


@pytest.mark.parametrize("kind", [kind for kind in VARIANTS if kind.startswith(("gemma3", "phi3"))])
def test_a_draft_of_all_layers_is_the_target_whatever_its_architecture(kind: str, tmp_path: Path) -> None:
    model_type, changes = VARIANTS[kind]
    save_model(tmp_path / "target", model_type, **changes)
    config = ModelConfig.load(tmp_path / "target")
    layers, ids = evenly(config.num_layers, config.num_layers), range(config.vocab_size)
    make_from_layers(tmp_path / "target", "target", layers, ids, tmp_path / "made")
    whole = load_model(tmp_path / "target", dtype=torch.bfloat16, num_pages=16)
    copy = load_draft_model(None, tmp_path / "made", dtype=torch.bfloat16, target=tmp_path / "target")
    tokens = [token % config.vocab_size for token in TEXT] * 12
    torch.testing.assert_close(session_forward(copy)(tokens, 8), session_forward(whole)(tokens, 8), rtol=0, atol=0)


@pytest.mark.parametrize("kind", [kind for kind in VARIANTS if kind.startswith("gemma3")])
def test_the_layers_that_are_kept_stay_of_their_type(kind: str, tmp_path: Path) -> None:
    model_type, changes = VARIANTS[kind]
    save_model(tmp_path / "target", model_type, **changes)
    layers = ModelConfig.load(tmp_path / "target").layers
    last = len(layers) - 1
    make_from_layers(tmp_path / "target", "target", [last], range(64), tmp_path / "made")
    assert ModelConfig.load(tmp_path / "made").layers == (layers[last],)
    with pytest.raises(ConfigError, match="leave the width out"):
        make_narrow(tmp_path / "target", "target", 1, 64, range(64), tmp_path / "narrow")


def test_the_learner_computes_what_the_engine_does(made: Path) -> None:
    learner = DraftLearner(made, None, 0, target=TARGET_DIR)
    assert learner.head_ids is not None
    assert learner.head_ids.tolist() == IDS
    torch.testing.assert_close(learner.forward(TEXT, len(TEXT)), logits(draft(None, made)), rtol=1e-4, atol=1e-4)
    assert "model.embed_tokens.weight" not in learner.trained


def test_the_learners_ids_are_on_the_device_of_its_logits(made: Path) -> None:
    ids = DraftLearner(made, None, 0, "meta", target=TARGET_DIR).head_ids
    assert ids is not None
    assert ids.device == torch.device("meta")


@pytest.mark.parametrize("rank", [None, 4])
def test_what_was_learnt_is_saved_without_what_is_shared(made: Path, rank: int | None, tmp_path: Path) -> None:
    records = answered(requests("english", 2, 4, temperature=0.0))
    data = distil(load_model(TARGET_DIR, dtype=torch.float32, num_pages=16), records, 16, 512)
    learner = DraftLearner(made, rank, 0, target=TARGET_DIR)
    optimizer = torch.optim.AdamW(learner.trained.values(), lr=1e-2)
    losses = []
    for loss in ("kl", "lk", "kl", "lk", "kl", "lk"):
        found = learner.loss(DistillationBatches(data, 4096, 0)[range(len(data.lengths))], loss)
        torch.autograd.backward(found)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(found.detach()))
    assert losses[4] < losses[0]
    assert losses[5] < losses[1]
    learner.save(tmp_path / "learnt")
    loaded = draft(tmp_path / "learnt", made)
    # saved in bf16
    torch.testing.assert_close(learner.forward(TEXT, len(TEXT)), logits(loaded), rtol=0.05, atol=0.2)
    assert not torch.allclose(logits(loaded), logits(draft(None, made)), atol=0.5)
    again = DraftLearner(tmp_path / "learnt", None, 0, target=TARGET_DIR) if rank is None else None
    if again is not None:
        torch.testing.assert_close(again.forward(TEXT, 2), logits(loaded)[-2:], rtol=1e-4, atol=1e-4)


def test_a_task_may_use_a_part_of_the_head(made: Path) -> None:
    some = DraftVocabulary.from_ids([2, 3, 7, 1999], 2048)
    cut = load_draft_model(None, made, dtype=torch.float32, target=TARGET_DIR, vocabulary=some)
    places = torch.tensor([IDS.index(token) for token in some.ids.tolist()])
    assert torch.equal(logits(cut), logits(draft(None, made))[:, places])
    lacking = DraftVocabulary.from_ids([2, 4], 2048)
    with pytest.raises(ConfigError, match="has ids that the draft's head in its file lacks"):
        load_draft_model(None, made, dtype=torch.float32, target=TARGET_DIR, vocabulary=lacking)


def test_without_its_target_a_made_draft_says_what_it_lacks(made: Path) -> None:
    with pytest.raises(ConfigError, match="shares its target's is loaded with it"):
        load_draft_model(None, made, dtype=torch.float32)


@pytest.mark.parametrize(("layers", "kept", "found"), [(30, 1, [0]), (30, 2, [0, 29]), (30, 4, [0, 10, 19, 29])])
def test_layers_are_kept_evenly_the_first_and_last_among_them(layers: int, kept: int, found: list[int]) -> None:
    assert evenly(layers, kept) == found


def test_a_shape_that_no_draft_can_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="1 to 4 of its target's layers, not 5"):
        evenly(4, 5)
    with pytest.raises(ConfigError, match="a multiple of 64 below its target's, not 100"):
        make_narrow(TARGET_DIR, "family:target", 1, 100, IDS, tmp_path / "made")
    assert not (tmp_path / "made").exists()
