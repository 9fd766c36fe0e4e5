"""Compiled loops: torch's logits, whoever shares the pass and wherever pages lie, and tokens drawn as asked for."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from core.errors import OutOfPages
from core.model.base import Rows
from core.model.causal_lm import CausalLM, load_model
from core.model.cpu import build
from core.model.cpu.decoder import CompiledDecoder
from core.model.draft_tokens import DraftToken, StopRule
from core.model.tensor_views import as_tensor
from tests.core.model.random_models import random_tokens, save_model

BOTH_DECODERS: tuple[str, ...] = ("compiled", "torch")
BOTH = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    save_model(path)
    return path


def loaded(directory: Path, *, decoder: str, num_pages: int = 32, dtype: torch.dtype = torch.float32) -> CausalLM:
    return load_model(directory, dtype=dtype, num_pages=num_pages, decoder=decoder)


@pytest.fixture
def in_loops(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each pass had, or each draw's first, that the compiled loops computed."""
    rows: list[int] = []

    def counted(compute: Callable[..., Any]) -> Callable[..., Any]:
        def called(self: CompiledDecoder, tokens: Sequence[int], *rest: object) -> Any:
            rows.append(len(tokens))
            return compute(self, tokens, *rest)

        return called

    for name in ("__call__", "draw"):
        monkeypatch.setattr(CompiledDecoder, name, counted(getattr(CompiledDecoder, name)))
    return rows


@pytest.mark.parametrize("level", build.LEVELS)
@pytest.mark.parametrize(
    ("model_type", "changes"),
    [("llama", {}), ("qwen3", {}), ("gemma3_text", {"sliding_window": 40, "head_dim": 32})],
    ids=["llama", "qwen3", "gemma3"],
)
def test_every_level_has_the_logits_of_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str, model_type: str, changes: dict[str, object]
) -> None:
    if level == "amx" or not build._features().issuperset(build.LEVELS[level]):
        pytest.skip("this processor is a lesser one")
    monkeypatch.setattr(build, "level", lambda: level)
    save_model(tmp_path, model_type, **changes)
    models = [loaded(tmp_path, decoder=one) for one in BOTH_DECODERS]
    for model in models:
        model.open(0)
    for begin, end in ((0, 7), (7, 8), (8, 70), (70, 75)):
        rows = [Rows(0, random_tokens(75, 300)[begin:end], end - begin)]
        ours, torchs = (model.forward(rows) for model in models)
        torch.testing.assert_close(ours, torchs, atol=1e-4, rtol=0)


def test_a_walk_has_the_logits_of_torch(directory: Path, in_loops: list[int]) -> None:
    """Sessions that fork, are cut and grow side by side: pages are shared, copied and scattered."""
    dice = random.Random(3)
    models = [loaded(directory, decoder=one, num_pages=48) for one in BOTH_DECODERS]
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


@BOTH
def test_a_walk_has_the_bits_of_a_pass_over_all_of_it(directory: Path, dtype: torch.dtype) -> None:
    """In bf16 two tokens' values share their words, and a session may be cut between them."""
    dice = random.Random(4)
    walked, fresh = (loaded(directory, decoder="compiled", dtype=dtype) for _ in range(2))
    tokens: dict[int, list[int]] = {0: [], 1: []}
    for session in tokens:
        walked.open(session)
    for step in range(60):
        session, other = dice.sample([0, 1], 2)
        if dice.random() < 0.1:
            walked.close(other)
            walked.fork(session, other)
            tokens[other] = tokens[session].copy()
        del tokens[session][len(tokens[session]) - dice.randint(0, min(3, len(tokens[session]))) :]
        walked.rollback(session, len(tokens[session]))
        new = random_tokens(dice.choice([1, 2, 5, 9]), 300, step)
        tokens[session] += new
        fresh.open(step)
        expected = fresh.forward([Rows(step, tokens[session], len(new))])
        assert torch.equal(walked.forward([Rows(session, new, len(new))]), expected)
        fresh.close(step)


@BOTH
def test_what_follows_a_token_is_nothing_to_it_not_even_where_it_is_no_number(
    directory: Path, dtype: torch.dtype
) -> None:
    beside, alone = (loaded(directory, decoder="compiled", dtype=dtype) for _ in range(2))
    as_tensor(beside._decoder.compiled.cache).fill_(torch.nan)  # type: ignore[attr-defined]
    for model in (beside, alone):
        model.open(0)
    for length in range(1, 6):
        model = loaded(directory, decoder="compiled", dtype=dtype)
        model._decoder.compiled._held[0][9] = np.nan  # type: ignore[attr-defined]  # the embedding
        model.open(0)
        both = model.forward([Rows(0, [*range(length), 9], 2)])
        assert both[1].isnan().all()
        expected = alone.forward([Rows(0, [length - 1], 1)])[0]
        assert torch.equal(both[0], expected)
        assert torch.equal(beside.forward([Rows(0, [length - 1], 1)])[0], expected)


@BOTH
def test_loops_compute_where_nothing_else_is_asked_for(
    directory: Path, in_loops: list[int], dtype: torch.dtype
) -> None:
    model = load_model(directory, dtype=dtype, num_pages=32)
    model.open(0)
    model.forward([Rows(0, random_tokens(40, model.vocab_size), 1)])
    model.draw([Rows(0, [1], 1)], 2, 300, None, StopRule.never(1))
    assert in_loops == [40, 1]


@BOTH
@pytest.mark.parametrize("num_pages", [1, 8])
def test_sizes_may_be_one(tmp_path: Path, dtype: torch.dtype, num_pages: int) -> None:
    """Drafts have one layer."""
    save_model(tmp_path, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1)
    model = load_model(tmp_path, dtype=dtype, num_pages=num_pages)
    model.open(0)
    model.forward([Rows(0, [1], 0)])
    for noise in (None, torch.zeros(1, 1, 1), torch.zeros(2, 1, 1)[::2]):
        [[only]] = model.draw([Rows(0, [2], 1)], 1, 1, noise, StopRule.never(1))
        assert only == DraftToken(0, np.inf, ())


def test_nothing_is_read_outside_of_what_is_given(directory: Path) -> None:
    """The kernels would read anything."""
    model = loaded(directory, decoder="compiled")
    for num_ids, noise in ((301, None), (300, torch.zeros(2, 1, 299)), (300, torch.zeros(1, 1, 300))):
        model.open(0)
        with pytest.raises(ValueError, match="ids"):
            model.draw([Rows(0, [2], 1)], 2, num_ids, noise, StopRule.never(1))
        model.close(0)
    model.open(0)
    for wrong in (StopRule.never(2), StopRule.never(1)._replace(chances=np.ones(0))):
        with pytest.raises(ValueError, match="ending"):
            model.draw([Rows(0, [2], 1)], 2, 300, None, wrong)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("num_ids", [290, 3, 1])
def test_what_is_drawn_is_what_torch_draws_one_by_one(
    directory: Path, in_loops: list[int], temperature: float, num_ids: int
) -> None:
    """Lines end where the chance that all of one is right gets too small; the last tokens drawn are not cached."""
    prompts = [random_tokens(70, 300, 1), random_tokens(61, 300, 2)]  # the second one's draws go on to a new page
    models = [loaded(directory, decoder=one) for one in BOTH_DECODERS]
    for model in models:
        for session, prompt in enumerate(prompts):
            model.open(session)
            model.forward([Rows(session, prompt, 0)])
    generator = torch.Generator().manual_seed(4)
    numbers = []
    for worth in (0.0, 0.7, 0.5, 0.3, 0.1, 2.0):
        noise = temperature * torch.randn(6, 2, num_ids, generator=generator) if temperature else None
        ending = StopRule(np.array([0.1, 0.3]), np.array([0.7, 0.8, 0.9]), np.array([0.9, 0.8]), np.array([worth, 0.0]))
        batch = [Rows(0, [5], 1), Rows(1, [6, 7], 1)]
        ours, torchs = (model.draw(batch, 6, num_ids, noise, ending) for model in models)
        assert _named(ours) == _named(torchs)
        np.testing.assert_allclose(_leads(ours), _leads(torchs), atol=1e-4)
        cached = [[model.num_cached(session) for session in range(2)] for model in models]
        numbers.append(len(ours[0]))
        assert cached == 2 * [[70 + numbers[-1], 61 + 1 + numbers[-1]]]
        for model in models:
            model.rollback(0, 70)
            model.rollback(1, 61)
    assert numbers[0] == 6
    assert numbers[-1] == 1
    assert numbers[1:-1] == sorted(numbers[1:-1])
    assert len(set(numbers)) > 2 or num_ids == 1
    assert in_loops == [70, 61, *6 * [3]]


def test_a_draw_may_go_on_until_all_lines_have_ended(directory: Path) -> None:
    """One has with its first token, the other after some: it is as long for both in loops and one by one."""
    ending = StopRule(np.array([0.1]), np.array([0.8, 0.8]), np.ones(2), np.array([2.0, 0.5]))
    for decoder in BOTH_DECODERS:
        model = loaded(directory, decoder=decoder)
        model.open(0)
        model.open(1)
        batch = [Rows(0, [5], 1), Rows(1, [6, 7], 1)]
        assert [len(line) for line in model.draw(batch, 6, 300, None, ending)] == [1, 1]
        model.rollback(0, 0)
        model.rollback(1, 0)
        assert [len(line) for line in model.draw(batch, 6, 300, None, ending._replace(enough=2))] == [4, 4]


def test_ids_that_cannot_be_are_no_guesses_even_where_all_are_not_numbers(directory: Path) -> None:
    model = loaded(directory, decoder="compiled")
    model.open(0)
    noise = torch.full((3, 1, 300), -torch.inf)
    noise[0] = torch.nan
    noise[1, 0, [7, 9]] = torch.tensor([1e3, 0.0])
    noise[2] = torch.nan
    [[first, second, third]] = model.draw([Rows(0, [5], 1)], 3, 300, noise, StopRule.never(1))
    assert (second.token, second.runners_up) == (7, (9,))
    assert second.margin > 100
    for guess in (first, third):  # as unsure as can be, lest much be built upon it
        assert guess == DraftToken(0, 0.0, ())
    fed = [model.forward([Rows(0, [token], 1)]) for token in (0, 7) if not model.rollback(0, 1 + (token == 7))]
    again = loaded(directory, decoder="compiled")
    again.open(0)
    assert torch.equal(torch.cat(fed), again.forward([Rows(0, [5, 0, 7], 2)]))


def test_sessions_that_shared_a_page_draw_on_copies_of_their_own(directory: Path) -> None:
    def drawn(*, forked: bool) -> list[list[DraftToken]]:
        model = loaded(directory, decoder="compiled")
        model.open(0)
        model.forward([Rows(0, random_tokens(61, 300), 0)])
        if forked:
            model.fork(0, 1)
        model.draw([Rows(0, [6], 1)], 2, 300, None, StopRule.never(1))
        if forked:
            model.draw([Rows(1, [5], 1)], 3, 300, None, StopRule.never(1))
        return model.draw([Rows(0, [7], 1)], 4, 300, None, StopRule.never(1))

    assert drawn(forked=True) == drawn(forked=False)


def test_drawing_begins_where_there_are_pages_for_all_of_it(directory: Path) -> None:
    model = loaded(directory, decoder="compiled", num_pages=1)
    model.open(0)
    model.forward([Rows(0, random_tokens(61, 300), 0)])
    with pytest.raises(OutOfPages):
        model.draw([Rows(0, [5], 1)], 4, 300, None, StopRule.never(1))
    assert model.num_cached(0) == 61
    assert len(model.draw([Rows(0, [5], 1)], 3, 300, None, StopRule.never(1))[0]) == 3
    assert model.num_cached(0) == 64


def test_pages_for_what_was_not_drawn_are_given_back(directory: Path) -> None:
    model = loaded(directory, decoder="compiled", num_pages=2)
    model.open(0)
    model.forward([Rows(0, random_tokens(61, 300), 0)])
    ending = StopRule.never(1)._replace(worths=np.array([2.0]))
    assert len(model.draw([Rows(0, [5], 1)], 6, 300, None, ending)[0]) == 1
    assert (model.num_cached(0), model.num_free_pages) == (62, 1)


def _named(lines: list[list[DraftToken]]) -> list[list[tuple[int, ...]]]:
    return [[(guess.token, *guess.runners_up) for guess in line] for line in lines]


def _leads(lines: list[list[DraftToken]]) -> list[list[float]]:
    return [[guess.margin for guess in line] for line in lines]
