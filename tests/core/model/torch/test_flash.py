"""Attention over page tables, by what torch says of `varlen_attn`, written down here: its kernels are for GPUs only.

Whether those that are installed do the same is asked of them when a model is loaded; here, of right and wrong ones.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from core.model.base import Rows
from core.model.causal_lm import CausalLM, load_model
from core.model.config import ModelConfig
from core.model.torch import flash
from core.model.torch.decoder import TorchDecoder
from core.model.torch.flash import installed
from tests.core.model.random_models import random_tokens, save_model
from tests.core.model.torch.test_graphs import Recordings

CPU = torch.device("cpu")


def varlen(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seq_q: torch.Tensor,
    cu_seq_k: torch.Tensor | None,
    max_q: int,
    max_k: int,
    *,
    scale: float,
    window_size: tuple[int, int],
    enable_gqa: bool,
    seqused_k: torch.Tensor,
    block_table: torch.Tensor,
) -> torch.Tensor:
    """Each session's rows are its last, and see what is before them; rows of none are whatever was there."""
    assert (window_size[1], enable_gqa, cu_seq_k) == (0, True, None)
    assert {cu_seq_q.dtype, seqused_k.dtype, block_table.dtype} == {torch.int32}
    out = torch.full_like(query, torch.nan)
    starts = cu_seq_q.tolist()
    for index, (length, table) in enumerate(zip(seqused_k.tolist(), block_table, strict=True)):
        own = slice(starts[index], starts[index + 1])
        rows = own.stop - own.start
        assert rows <= max_q
        assert length <= max_k
        if not rows:
            continue
        keys, values = (kept[table].flatten(0, 1)[:length].transpose(0, 1)[None] for kept in (key, value))
        visible = torch.ones(rows, length, dtype=torch.bool).tril(length - rows)
        if window_size[0] >= 0:
            visible = visible.triu(length - rows - window_size[0])
        each = query[own].transpose(0, 1)[None]
        attended = F.scaled_dot_product_attention(each, keys, values, attn_mask=visible, enable_gqa=True, scale=scale)
        out[own] = attended[0].transpose(0, 1)
    return out


def one_key_less(*given: Any, seqused_k: torch.Tensor, **named: Any) -> torch.Tensor:
    return varlen(*given, seqused_k=seqused_k - 1, **named)


def first_pages(*given: Any, block_table: torch.Tensor, **named: Any) -> torch.Tensor:
    pages = torch.arange(block_table.shape[1], dtype=torch.int32)
    return varlen(*given, block_table=pages.expand_as(block_table), **named)


def of_large_pages(*_: Any, **__: Any) -> torch.Tensor:
    raise RuntimeError("Paged KV cache block size must be divisible by 256")


@pytest.fixture(scope="module", params=[{}, {"model_type": "gemma3_text", "sliding_window": 40, "head_dim": 24}])
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    save_model(path, **request.param)
    return path


@pytest.mark.parametrize("replays", [False, True])
def test_a_walk_over_page_tables_has_the_logits_of_tiles(
    directory: Path, monkeypatch: pytest.MonkeyPatch, replays: bool
) -> None:
    monkeypatch.setattr(flash, "varlen_attn", varlen)
    tiled = load_model(directory, dtype=torch.float32, num_pages=32, decoder="torch")
    own, recordings = tiled._decoder, Recordings()
    assert isinstance(own, TorchDecoder)
    parts = (ModelConfig.load(directory), own._transformer, own._head, own.num_pages)
    decoder = TorchDecoder(*parts, record=recordings if replays else None, flash=True)
    tabled = CausalLM(parts[0].vocab_size, parts[0].context, decoder)
    dice = random.Random(5)
    for session in range(3):
        for model in (tiled, tabled):
            model.open(session)
            model.forward([Rows(session, random_tokens(50 * session + 30, model.vocab_size, session), 0)])
    for step in range(60):
        batch = []
        for session in dice.sample(range(3), dice.choice([1, 2, 3])):
            if tiled.num_cached(session) > 180:
                for model in (tiled, tabled):
                    model.rollback(session, 40)
            count = dice.choice([1, 1, 5])
            batch.append(Rows(session, random_tokens(count, tiled.vocab_size, step), dice.randint(1, count)))
        torch.testing.assert_close(tabled.forward(batch), tiled.forward(batch), atol=1e-4, rtol=1e-4)
    assert (recordings.replayed > 5) == replays


@pytest.mark.parametrize(
    ("kernel", "found"), [(varlen, "torch"), (one_key_less, None), (first_pages, None), (of_large_pages, None)]
)
def test_what_attends_otherwise_than_tiles_is_not_used(
    directory: Path, monkeypatch: pytest.MonkeyPatch, kernel: Callable[..., torch.Tensor], found: str | None
) -> None:
    monkeypatch.setattr(flash, "varlen_attn", kernel)
    for dtype in (torch.float32, torch.bfloat16):
        assert installed(ModelConfig.load(directory), dtype, CPU) == found


def test_there_is_none_for_a_cpu(directory: Path) -> None:
    assert installed(ModelConfig.load(directory), torch.bfloat16, CPU) is None
