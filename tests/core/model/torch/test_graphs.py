"""Replayed passes and loops give the bits of launched ones, whatever came before; rare shapes are not recorded.

Here a recording is the function itself, called again: as a CUDA graph, it reads the tensors it was recorded with, so a
value that goes by them stays what it was then. That its kernels can be recorded is for a GPU to show.
"""

# mypy: disable-error-code="attr-defined"
# What a decoder keeps for itself is looked at.

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from core.errors import OutOfPages
from core.model.base import Rows
from core.model.causal_lm import CausalLM, load_model
from core.model.config import ModelConfig
from core.model.draft_tokens import StopRule, draft_tokens
from core.model.draft_vocabulary import DraftVocabulary
from core.model.torch import graphs
from core.model.torch.decoder import TorchDecoder
from tests.core.model.random_models import random_tokens, save_model


class Recordings:
    """Counts what was recorded and replayed."""

    def __init__(self) -> None:
        self.recorded = self.replayed = 0

    def __call__(self, run: Callable[[], torch.Tensor]) -> graphs.Recorded:
        self.recorded += 1
        result = run()

        def replay() -> None:
            self.replayed += 1
            result.copy_(run())

        return result, replay


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    save_model(path)
    return path


@pytest.fixture
def launched(directory: Path) -> CausalLM:
    return load_model(directory, dtype=torch.float32, num_pages=32, decoder="torch")


@pytest.fixture
def recordings() -> Recordings:
    return Recordings()


@pytest.fixture
def replayed(directory: Path, launched: CausalLM, recordings: Recordings) -> CausalLM:
    config, own = ModelConfig.load(directory), launched._decoder
    decoder = TorchDecoder(config, own._transformer, own._head, own.num_pages, recordings)
    return CausalLM(config.vocab_size, config.context, decoder)


def test_a_walk_of_replayed_passes_has_the_bits_of_launched_ones(
    launched: CausalLM, replayed: CausalLM, recordings: Recordings
) -> None:
    dice = random.Random(7)
    for model in (launched, replayed):
        for session in range(3):
            model.open(session)
    logits = []
    for step in range(120):
        batch = []
        for session in dice.sample(range(3), dice.choice([1, 1, 2, 3])):
            cached = launched.num_cached(session)
            if cached > 150 or dice.random() < 0.2:  # a proposal was rejected
                kept = dice.randrange(cached // 2, cached + 1)
                for model in (launched, replayed):
                    model.rollback(session, kept)
            count = 40 if step < 3 else dice.choice([1, 5, 5])
            batch.append(Rows(session, random_tokens(count, launched.vocab_size, step), dice.randint(0, count)))
        logits.append(launched.forward(batch))
        assert torch.equal(replayed.forward(batch), logits[-1])
    assert recordings.recorded >= 5
    assert recordings.replayed >= 30


def test_a_walk_of_replayed_loops_has_the_bits_of_one_token_at_a_time(
    launched: CausalLM, replayed: CausalLM, recordings: Recordings
) -> None:
    dice = random.Random(8)
    for model in (launched, replayed):
        for session in range(3):
            model.open(session)
            model.forward([Rows(session, random_tokens(30 * session + 40, model.vocab_size, session), 0)])
    for number in range(60):
        sessions = dice.sample(range(3), dice.choice([1, 1, 2, 3]))
        batch = [Rows(one, random_tokens(dice.choice([1, 2]), launched.vocab_size, number), 1) for one in sessions]
        steps, valid = dice.choice([1, 4, 4]), launched.vocab_size - 7
        noise = torch.randn(steps, len(batch), valid, generator=torch.Generator().manual_seed(number))
        drawn = replayed.draw(batch, steps, valid, noise, StopRule.never(len(batch)))
        tokens = [list(rows.tokens) for rows in batch]
        for step in range(steps):
            fed = [Rows(one, given, 1) for one, given in zip(sessions, tokens, strict=True)]
            guessed = draft_tokens(launched.forward(fed)[:, :valid] + noise[step])
            assert [line[step] for line in drawn] == guessed
            tokens = [[guess.token] for guess in guessed]
        for one in sessions:
            assert replayed.num_cached(one) == launched.num_cached(one)
            if launched.num_cached(one) > 200 or dice.random() < 0.3:  # a verdict cut it
                kept = dice.randrange(40, launched.num_cached(one))
                for model in (launched, replayed):
                    model.rollback(one, kept)
    assert recordings.recorded >= 3
    assert recordings.replayed >= 10


def test_a_replayed_loop_over_a_cut_head_feeds_the_tokens_of_its_columns(
    directory: Path, recordings: Recordings
) -> None:
    vocabulary = DraftVocabulary.from_ids(range(0, 300, 7), 300)
    launched = load_model(directory, dtype=torch.float32, num_pages=32, vocabulary=vocabulary, decoder="torch")
    own = launched._decoder
    parts = (ModelConfig.load(directory), own._transformer, own._head, own.num_pages, recordings)
    decoder = TorchDecoder(*parts, head_ids=launched.head_ids)
    replayed = CausalLM(parts[0].vocab_size, parts[0].context, decoder)
    batch = [Rows(0, random_tokens(9, 300), 1), Rows(1, random_tokens(9, 300, 1), 1)]
    for number in range(6):
        noise = torch.randn(4, 2, 40, generator=torch.Generator().manual_seed(number))
        lines = []
        for model in (launched, replayed):
            model.open(0)
            model.open(1)
            lines.append(model.draw(batch, 4, 40, noise, StopRule.never(2)))
            model.close(0)
            model.close(1)
        assert lines[0] == lines[1]
        assert all(guess.token % 7 == 0 for line in lines[1] for guess in line)
    assert recordings.replayed >= 2


def test_a_loop_wants_room_for_all_that_it_will_draw(replayed: CausalLM) -> None:
    replayed.open(0)
    replayed.forward([Rows(0, random_tokens(replayed.context - 4, 300), 0)])
    with pytest.raises(ValueError, match="context"):
        replayed.draw([Rows(0, [1], 1)], 5, 300, None, StopRule.never(1))
    replayed.rollback(0, 64)
    for session in range(1, replayed.num_free_pages):  # others leave it one page
        replayed.open(session)
        replayed.forward([Rows(session, [1], 0)])
    with pytest.raises(OutOfPages):
        replayed.draw([Rows(0, [1], 1)], 65, 300, None, StopRule.never(1))
    assert (replayed.num_cached(0), replayed.num_free_pages) == (64, 1)
    assert len(replayed.draw([Rows(0, [1], 1)], 4, 300, None, StopRule.never(1))[0]) == 4
    assert replayed.num_cached(0) == 64 + 4


def test_a_result_outlives_the_next_pass(replayed: CausalLM, recordings: Recordings) -> None:
    replayed.open(0)
    replayed.forward([Rows(0, random_tokens(40, 300), 0)])
    results = []
    for token in range(graphs.SIGHTINGS + 6):
        replayed.rollback(0, 40)
        results.append(replayed.forward([Rows(0, [token], 1)]))
    assert recordings.replayed >= 6
    assert not any(torch.equal(one, other) for one, other in itertools.pairwise(results))


def test_large_and_rare_passes_are_launched(replayed: CausalLM, recordings: Recordings) -> None:
    for session in range(6):
        replayed.open(session)
        replayed.forward([Rows(session, random_tokens(graphs.MOST_ROWS + 1, 300), 1)])
    replayed.forward([Rows(0, [1], 1)])
    assert recordings.recorded == 0


def test_the_least_recent_recording_gives_way(
    replayed: CausalLM, recordings: Recordings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "MOST_GRAPHS", 1)
    replayed.open(0)
    for count in (1, 9, 1):
        for _ in range(graphs.SIGHTINGS + 1):
            replayed.forward([Rows(0, random_tokens(count, 300), 1)])
            replayed.rollback(0, 0)
    assert recordings.recorded == 3
