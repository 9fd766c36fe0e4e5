"""A row's product keeps its bits whatever the number of rows, also where only plain kernels exist."""

# mypy: disable-error-code="attr-defined"
# What a decoder keeps for itself is looked at.

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import torch

from core.family import TARGET_DIR
from core.model.causal_lm import load_model
from core.model.torch import linear
from core.model.torch.linear import Linear, padded
from core.model.torch.transformer import Transformer

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 14, 15, 16, 17, 31, 33, 41, 100, 127, 256, 257, 259, 514)
KERNELS = {"oneDNN": linear._packed, "plain": linear._plain}


@pytest.fixture(params=KERNELS)
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain kernels are what a torch without oneDNN has; they are not row-invariant by themselves on two threads."""
    monkeypatch.setattr(linear, "_kernel", lambda _: KERNELS[request.param])


@pytest.fixture
def two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("shape", [(96, 64), (131, 60), (64, 2048)])
def test_bits_do_not_depend_on_the_number_of_rows(shape: tuple[int, int], bias: bool, dtype: torch.dtype) -> None:
    check_rows(shape, bias, dtype, ROWS)


@pytest.mark.usefixtures("kernels", "two_threads")
def test_bits_do_not_depend_on_the_number_of_rows_on_two_threads() -> None:
    check_rows((96, 64), False, torch.float32, (4, 5, 9, 16, 33))


def check_rows(shape: tuple[int, int], bias: bool, dtype: torch.dtype, counts: Sequence[int]) -> None:
    torch.manual_seed(0)
    layer = Linear(torch.randn(shape, dtype=dtype), torch.randn(shape[0], dtype=dtype) if bias else None)
    x = torch.randn(max(counts), shape[1], dtype=dtype)
    wanted = layer(x)
    assert wanted.shape == (len(x), shape[0])
    for rows in counts:
        assert torch.equal(layer(x[:rows]), wanted[:rows])
        assert torch.equal(layer(x[-rows:]), wanted[-rows:])


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_the_product_is_right(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    weight, bias = torch.randn(96, 64).bfloat16().to(dtype), torch.randn(96).bfloat16().to(dtype)
    x = torch.randn(7, 64).to(dtype)
    near = {"rtol": 0.01, "atol": 0.01} if x.dtype == torch.bfloat16 else {}
    torch.testing.assert_close(Linear(weight, bias)(x).float(), x.float() @ weight.float().T + bias, **near)


@pytest.mark.parametrize(("amx", "fed"), [(False, 33), (True, 48)])
def test_rows_fill_the_tiles_of_amx_where_that_is_quicker(monkeypatch: pytest.MonkeyPatch, amx: bool, fed: int) -> None:
    monkeypatch.setattr(linear, "has_tiles", lambda: amx)
    large, small = (Linear(torch.randn(shape, dtype=torch.bfloat16)) for shape in [(1024, 512), (64, 64)])
    assert padded(33, large.sizes) == fed
    assert padded(32, large.sizes) == 32
    assert padded(33, small.sizes) == 33


@pytest.fixture
def fed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The row counts that reach a kernel which sums in halves for seven rows, a row left over after 16, and over 32."""
    fed: list[int] = []

    def sometimes_otherwise(weight: torch.Tensor, _: torch.Tensor | None) -> linear.Product:
        halves = [part.contiguous() for part in weight.chunk(2, 1)]

        def in_halves(row: torch.Tensor) -> torch.Tensor:
            return sum(half @ part for half, part in zip(halves, row.chunk(2), strict=True))

        def product(x: torch.Tensor) -> torch.Tensor:
            rows = len(x)
            fed.append(rows)
            otherwise = range(16, 17) if rows == 17 else range(rows if rows == 7 or rows > 32 else 0)
            return torch.stack([in_halves(row) if i in otherwise else weight @ row for i, row in enumerate(x)])

        return product

    monkeypatch.setattr(linear, "_kernel", lambda _: sometimes_otherwise)
    return fed


@pytest.mark.parametrize(
    ("rows", "pieces"), [(6, [6]), (7, [8]), (8, [8]), (17, [18]), (32, [32]), (33, [32, 1]), (71, [32, 32, 8])]
)
def test_a_kernel_never_sees_a_number_of_rows_that_it_sums_otherwise(
    fed: list[int], rows: int, pieces: list[int]
) -> None:
    weight, x = torch.randn(96, 64), torch.randn(rows, 64)
    layer = Linear(weight)
    assert padded(rows, layer.sizes) == sum(pieces)
    fed.clear()
    assert torch.equal(layer(x), torch.stack([weight @ row for row in x]))
    assert fed == pieces


def test_a_pass_has_the_rows_that_the_most_demanding_layer_wants() -> None:
    usual = load_model(TARGET_DIR, dtype=torch.float32, num_pages=1, decoder="torch")._decoder._transformer
    usual._layers[-1].down.sizes = (7, 9)
    transformer = Transformer(usual._config, usual._embedding, usual._layers, usual._norm)
    assert [transformer.padded(rows) for rows in (1, 8, 10)] == [7, 9, 16]
