"""Blocks of rows and their page tables, as the kernel reads them. The kernel is for GPUs (`tests.bench.parity`)."""

# mypy: disable-error-code="attr-defined"
# What a decoder keeps for itself is looked at.

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch

from core.draft.proposer import Proposer
from core.draft.token_confidence import Confidence
from core.model.base import Rows
from core.model.causal_lm import CausalLM, load_model
from core.model.config import ModelConfig
from core.model.draft_tokens import StopRule
from core.model.pages import PAGE_SIZE, Span
from core.model.torch import graphs
from core.model.torch.decoder import TorchDecoder
from core.model.torch.paged import BlockLayouts, Blocks
from core.model.torch.plan import Laid
from tests.core.model.random_models import random_tokens, save_model
from tests.core.model.torch.test_graphs import Recordings


class ReadBlocks(Blocks):
    """What the kernel is to compute, block by block."""

    def attend(self, query: torch.Tensor, cache: torch.Tensor, window: int | None, scale: float) -> torch.Tensor:
        rows, heads, head_dim = query.shape
        kept = cache.view(2, cache.shape[0] // 2, -1, PAGE_SIZE, head_dim)
        out = torch.full((rows, heads, head_dim), torch.nan)
        for first, count, start, table in self.blocks.T.tolist():
            if not count:
                continue
            pages = self.pages[table][: (start + count - 1) // PAGE_SIZE + 1]
            keys, values = (half[:, pages].flatten(1, 2).repeat_interleave(heads // len(half), 0) for half in kept)
            behind = torch.arange(start, start + count)[:, None] - torch.arange(keys.shape[1])
            hidden = (behind < 0) | (behind >= (window or keys.shape[1]))
            own = slice(first, first + count)
            scores = (query[own].transpose(0, 1) @ keys.transpose(1, 2) * scale).masked_fill(hidden, -torch.inf)
            assert out[own].isnan().all()  # each row is in one block
            out[own] = (scores.softmax(-1) @ values).transpose(0, 1)
        return out.flatten(1)

    def with_tensors(self, tensors: Iterator[torch.Tensor]) -> ReadBlocks:
        return ReadBlocks(next(tensors), next(tensors))


class ReadLayouts(BlockLayouts):
    def lay(self, spans: Sequence[Span], num_rows: int) -> Laid:
        laid = super().lay(spans, num_rows)
        return laid._replace(made_of=lambda tensors: ReadBlocks(*laid.made_of(tensors)))


@pytest.fixture(scope="module", params=[{}, {"model_type": "gemma3_text", "sliding_window": 40, "head_dim": 24}])
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    save_model(path, **request.param)
    return path


def in_blocks(directory: Path, tiled: CausalLM, record: graphs.Recorder | None) -> CausalLM:
    """The same model, as a GPU has it."""
    own, config = tiled._decoder, ModelConfig.load(directory)
    layouts = ReadLayouts(config.num_heads // config.num_kv_heads)
    decoder = TorchDecoder(config, own._transformer, own._head, own.num_pages, record, layouts)
    return CausalLM(config.vocab_size, config.context, decoder)


@pytest.mark.parametrize("replays", [False, True])
def test_a_walk_over_blocks_has_the_logits_of_tiles(directory: Path, replays: bool) -> None:
    tiled = load_model(directory, dtype=torch.float32, num_pages=32, decoder="torch")
    recordings = Recordings()
    blocked = in_blocks(directory, tiled, recordings if replays else None)
    dice = random.Random(5)
    for session in range(3):
        for model in (tiled, blocked):
            model.open(session)
            model.forward([Rows(session, random_tokens(50 * session + 30, model.vocab_size, session), 0)])
    for step in range(60):
        batch = []
        for session in dice.sample(range(3), dice.choice([1, 2, 3])):
            if tiled.num_cached(session) > 180:
                for model in (tiled, blocked):
                    model.rollback(session, 40)
            count = dice.choice([1, 1, 5])
            batch.append(Rows(session, random_tokens(count, tiled.vocab_size, step), dice.randint(1, count)))
        torch.testing.assert_close(blocked.forward(batch), tiled.forward(batch), atol=1e-4, rtol=1e-4)
    assert (recordings.replayed > 30) == replays


def test_a_proposer_is_warmed_up_until_its_loops_are_replayed(directory: Path) -> None:
    tiled, recordings = load_model(directory, dtype=torch.float32, num_pages=32, decoder="torch"), Recordings()
    model = in_blocks(directory, tiled, recordings)
    Proposer(model, model.vocab_size, Confidence()).warm_up(40)
    assert model.num_used_pages == 0
    recorded = recordings.recorded
    assert recorded >= 4
    for session in range(3):  # as many lines were not drawn for, but as many rows
        model.open(session)
    model.draw([Rows(session, [1], 1) for session in range(3)], 6, 300, None, StopRule.never(3))
    assert recordings.recorded == recorded


@pytest.mark.parametrize(("least", "most"), [(0, 900), (1024, 1900)])
def test_rows_and_the_longest_session_say_the_shapes_of_a_short_pass(least: int, most: int) -> None:
    dice, layouts = random.Random(3), BlockLayouts(3)
    for num_rows in (4, 12, graphs.MOST_ROWS):
        shapes = set()
        for _ in range(50):
            lengths = list[int]()
            while sum(lengths) < num_rows - 3:
                lengths.append(dice.randint(1, num_rows - 3 - sum(lengths)))
            firsts = [sum(lengths[:index]) for index in range(len(lengths))]
            spans = [
                Span(index, first, dice.randrange(least, most), length, range(32))
                for index, (first, length) in enumerate(zip(firsts, lengths, strict=True))
            ]
            shapes.add(tuple(map(len, layouts.lay(spans, num_rows).lists)))
        assert len(shapes) == 1
