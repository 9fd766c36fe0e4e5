"""Attention over paged keys and values as a Triton kernel, which reads the pages in place.

A program takes a block of rows and one head of keys. It goes over the session's pages in order and keeps a running
softmax in fp32. A row's products, sums and their order follow from its position alone: a row is one line of each
product, and a page behind a row's own adds exact zeros. So its bits do not depend on the other rows of a pass.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# Values of Triton's language have no types of Python.

from __future__ import annotations

import torch
import triton
import triton.language as tl

from core.model.pages import PAGE_SIZE

_PLACES = 16  # lines of a product, the fewest that tensor cores take
_LOG2_E = 1.4426950408889634


def attend(
    query: torch.Tensor,
    cache: torch.Tensor,
    blocks: torch.Tensor,
    pages: torch.Tensor,
    window: int | None,
    scale: float,
) -> torch.Tensor:
    """As `Layout.attend`, of the `blocks` and `pages` of `core.model.torch.paged.Blocks`.

    What rows of no block attend to is left undefined.
    """
    rows, heads, head_dim = query.shape
    kv_heads, num_blocks = cache.shape[0] // 2, blocks.shape[1]
    out = torch.empty(rows, heads * head_dim, dtype=query.dtype, device=query.device)
    _attend[(num_blocks, kv_heads)](
        query,
        cache,
        out,
        blocks,
        pages,
        scale * _LOG2_E,
        num_blocks,
        pages.shape[1],
        cache.stride(0),
        query.stride(0),
        window or 0,
        HEADS=heads,
        KV_HEADS=kv_heads,
        HEAD_DIM=head_dim,
        PADDED_DIM=max(_PLACES, triton.next_power_of_2(head_dim)),
        PLACES=max(_PLACES, triton.next_power_of_2(heads // kv_heads)),
        PAGE=PAGE_SIZE,
        num_warps=4,
    )
    return out


@triton.jit
def _with_page(scores, value, best, total, mixed):
    """The highest score, the sum of shares and the mixed values of each line, after the scores of one more page."""
    higher = tl.maximum(best, tl.max(scores, 1))
    level = tl.where(higher == float("-inf"), 0.0, higher)  # of a line that has seen no key yet
    shares = tl.exp2(scores - level[:, None])
    fade = tl.exp2(best - level)
    total = total * fade + tl.sum(shares, 1)
    mixed = mixed * fade[:, None] + tl.dot(shares.to(value.dtype), value, input_precision="ieee")
    return higher, total, mixed


@triton.jit(do_not_specialize=["num_blocks", "longest", "window"])
def _attend(
    query,
    cache,
    out,
    blocks,
    pages,
    scale,
    num_blocks,
    longest,
    head_stride,
    row_stride,
    window,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    PLACES: tl.constexpr,
    PAGE: tl.constexpr,
):
    """One block and one head of keys; line `m` of a product is row `m // group` of the block and head `m % group`."""
    block, kv_head = tl.program_id(0), tl.program_id(1)
    num_rows = tl.load(blocks + num_blocks + block)
    if num_rows == 0:
        return
    first_row = tl.load(blocks + block)
    start = tl.load(blocks + 2 * num_blocks + block)
    table = pages + tl.load(blocks + 3 * num_blocks + block) * longest
    group: tl.constexpr = HEADS // KV_HEADS
    lines, dims, offsets = tl.arange(0, PLACES), tl.arange(0, PADDED_DIM), tl.arange(0, PAGE)
    row, head = lines // group, kv_head * group + lines % group
    mask = (row < num_rows)[:, None] & (dims < HEAD_DIM)[None, :]
    queries = tl.load(
        query + ((first_row + row) * row_stride + head * HEAD_DIM)[:, None] + dims[None, :], mask=mask, other=0.0
    )
    position = start + row
    keys = cache + kv_head.to(tl.int64) * head_stride
    values = cache + (KV_HEADS + kv_head).to(tl.int64) * head_stride
    best = tl.full([PLACES], float("-inf"), tl.float32)
    total = tl.zeros([PLACES], tl.float32)
    mixed = tl.zeros([PLACES, PADDED_DIM], tl.float32)
    first_page = tl.where(window > 0, tl.maximum(start - window + 1, 0) // PAGE, 0)
    for number in range(first_page, (start + num_rows - 1) // PAGE + 1):
        at = (tl.load(table + number) * PAGE + offsets)[:, None] * HEAD_DIM + dims[None, :]
        key = tl.load(keys + at, mask=(dims < HEAD_DIM)[None, :], other=0.0)
        value = tl.load(values + at, mask=(dims < HEAD_DIM)[None, :], other=0.0)
        behind = position[:, None] - (number * PAGE + offsets)[None, :]
        visible = (behind >= 0) & ((window == 0) | (behind < window))
        scores = tl.dot(queries, tl.trans(key), input_precision="ieee") * scale
        best, total, mixed = _with_page(tl.where(visible, scores, float("-inf")), value, best, total, mixed)
    result = mixed / total[:, None]
    at_out = ((first_row + row) * HEADS + head) * HEAD_DIM
    tl.store(out + at_out[:, None] + dims[None, :], result.to(out.dtype.element_ty), mask=mask)
