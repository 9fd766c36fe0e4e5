"""Light models: torch's logits, whoever shares the pass and wherever pages lie, and tokens drawn as asked for."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path

import pytest
import torch

from core.errors import OutOfPages
from core.model import causal_lm, light
from core.model.base import Rows
from core.model.causal_lm import CausalLM, load_model
from core.model.config import ModelConfig
from core.model.kernels import Array, Integers
from tests.core.model.random_models import random_tokens, save_model


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    save_model(path)
    return path


def loaded(directory: Path, *, is_light: bool, num_pages: int = 32, dtype: torch.dtype = torch.float32) -> CausalLM:
    return load_model(directory, dtype=dtype, num_pages=num_pages, light=is_light)


@pytest.fixture
def in_loops(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each pass had that the compiled loops computed."""
    rows: list[int] = []
    compute = light.LightDecoder._pass

    def counted(self: light.LightDecoder, tokens: Integers, *rest: object) -> Array:
        rows.append(len(tokens))
        return compute(self, tokens, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(light.LightDecoder, "_pass", counted)
    return rows


def test_a_walk_has_the_logits_of_torch(directory: Path, in_loops: list[int]) -> None:
    """Sessions that fork, are cut and grow side by side: pages are shared, copied and scattered."""
    dice = random.Random(3)
    models = [loaded(directory, is_light=one, num_pages=48) for one in (True, False)]
    sessions = list(range(4))
    for model in models:
        for session in sessions:
            model.open(session)
    for step in range(150):
        batch = []
        for session in dice.sample(sessions, dice.choice([1, 1, 2, 4])):
            cached = models[0].num_cached(session)
            if cached > 150 or dice.random() < 0.2:
                kept = dice.randrange(cached // 2, cached + 1)
                for model in models:
                    model.rollback(session, kept)
            count = 40 if step < 4 else dice.choice([1, 1, 2, 5, 30])
            tokens = random_tokens(count, models[0].vocab_size, step * 10 + session)
            batch.append(Rows(session, tokens, dice.randint(0, count)))
        ours, torchs = (model.forward(batch) for model in models)
        torch.testing.assert_close(ours, torchs, atol=1e-4, rtol=0)
        if step % 30 == 29:  # one gives way to another's fork
            gone, source = dice.sample(sessions, 2)
            for model in models:
                model.close(gone)
                model.fork(source, gone)
    assert len(in_loops) > 50
    assert max(in_loops) > 10


def test_only_small_passes_of_small_models_in_fp32_are_light(
    directory: Path, in_loops: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for dtype, rows in ((torch.float32, light.LightDecoder.most_rows + 1), (torch.bfloat16, 1)):
        model = loaded(directory, is_light=True, dtype=dtype)
        model.open(0)
        model.forward([Rows(0, random_tokens(rows, model.vocab_size), 1)])
        next(model.draw([Rows(0, random_tokens(rows, model.vocab_size), 1)], 2, 300, None))
    monkeypatch.setattr(causal_lm, "_MOST_LIGHT", ModelConfig.load(directory).num_weights - 1)
    model = loaded(directory, is_light=True)
    model.open(0)
    model.forward([Rows(0, [1], 1)])
    assert in_loops == []


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_what_is_drawn_is_fed_until_nobody_listens(directory: Path, temperature: float) -> None:
    drawing, fed = (loaded(directory, is_light=one) for one in (True, False))
    prompts = [random_tokens(70, 300, 1), random_tokens(61, 300, 2)]  # the second one's draws go on to a new page
    for model in (drawing, fed):
        for session, prompt in enumerate(prompts):
            model.open(session)
            model.forward([Rows(session, prompt, 0)])
    noise = temperature * torch.randn(6, 2, 290, generator=torch.Generator().manual_seed(4))
    batch = [Rows(0, [5], 1), Rows(1, [6, 7], 1)]
    heard = list(islice(drawing.draw(batch, 6, 290, noise if temperature else None), 4))
    for step, scores in enumerate(heard):
        expected = fed.forward(batch)[:, :290] + noise[step]
        torch.testing.assert_close(scores, expected, atol=1e-4, rtol=0)
        batch = [Rows(session, [int(row.argmax())], 1) for session, row in enumerate(scores)]
    assert [drawing.num_cached(session) for session in range(2)] == [70 + 4, 61 + 5]


def test_sessions_that_shared_a_page_draw_on_copies_of_their_own(directory: Path) -> None:
    def drawn(*, forked: bool) -> list[torch.Tensor]:
        model = loaded(directory, is_light=True)
        model.open(0)
        model.forward([Rows(0, random_tokens(61, 300), 0)])
        if forked:
            model.fork(0, 1)
        list(model.draw([Rows(0, [6], 1)], 2, 300, None))
        if forked:
            list(model.draw([Rows(1, [5], 1)], 3, 300, None))
        return list(model.draw([Rows(0, [7], 1)], 4, 300, None))

    torch.testing.assert_close(drawn(forked=True), drawn(forked=False), atol=0, rtol=0)


def test_drawing_begins_where_there_are_pages_for_all_of_it(directory: Path) -> None:
    model = loaded(directory, is_light=True, num_pages=1)
    model.open(0)
    model.forward([Rows(0, random_tokens(61, 300), 0)])
    with pytest.raises(OutOfPages):
        next(model.draw([Rows(0, [5], 1)], 4, 300, None))
    assert model.num_cached(0) == 61
    assert len(list(model.draw([Rows(0, [5], 1)], 3, 300, None))) == 3
    assert model.num_cached(0) == 64


def test_pages_for_what_nobody_listened_to_are_given_back(directory: Path) -> None:
    model = loaded(directory, is_light=True, num_pages=2)
    model.open(0)
    model.forward([Rows(0, random_tokens(61, 300), 0)])
    drawn = model.draw([Rows(0, [5], 1)], 6, 300, None)
    next(drawn)
    assert model.num_free_pages == 0
    del drawn
    assert (model.num_cached(0), model.num_free_pages) == (62, 1)
