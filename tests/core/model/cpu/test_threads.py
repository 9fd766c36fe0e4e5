"""Threads are doubled while that is worth the cores; what other work disturbs is not what counts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

import pytest
import torch

from core.model.base import Model, Rows
from core.model.causal_lm import load_model
from core.model.config import ModelConfig
from core.model.cpu import threads
from core.model.cpu.threads import choose_threads, worthwhile
from tests.core.model.random_models import save_model


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    yield
    torch.set_num_threads(1)


class Machine:
    """Its clock stands but for passes, which take `seconds` of the number of threads; every `disturbed`th turn of two
    passes somebody else has the core, for ten times as long."""

    def __init__(self, seconds: Callable[[int], float], disturbed: int = 0) -> None:
        self.now, self.passes, self.displaced = 0.0, 0, 0
        self.tried: list[int] = []
        self._seconds = seconds
        self._disturbed = disturbed

    def load(self) -> Model:
        self.tried.append(torch.get_num_threads())
        return cast("Model", _Timed(self, torch.get_num_threads()))

    def compute(self, number: int) -> None:
        assert torch.get_num_threads() == number
        self.passes += 1
        if self._disturbed and self.passes // 2 % self._disturbed == 0:
            self.displaced += 1
            self.now += 9 * self._seconds(number)
        self.now += self._seconds(number)


class _Timed:
    def __init__(self, machine: Machine, number: int) -> None:
        self._machine = machine
        self._number = number
        self._open = False

    def open(self, _: int) -> None:
        assert not self._open
        self._open = True

    def close(self, _: int) -> None:
        self._open = False

    def forward(self, batch: Sequence[Rows]) -> None:
        assert self._open
        assert len(batch) == 1
        self._machine.compute(self._number)


def chosen(monkeypatch: pytest.MonkeyPatch, machine: Machine, most: int) -> int:
    monkeypatch.setattr(time, "perf_counter", lambda: machine.now)
    monkeypatch.setattr(threads, "_displaced", lambda: machine.displaced)
    number = worthwhile(machine.load, most)
    assert torch.get_num_threads() == number
    return number


@pytest.mark.parametrize(
    ("seconds", "most", "number", "tried"),
    [
        (lambda n: 1 / n, 1, 1, [1]),
        (lambda n: 1 / n, 6, 4, [1, 2, 4]),
        (lambda n: 1 / min(n, 3), 16, 4, [1, 2, 4, 8]),  # memory is busy with three
        (lambda n: 1 / min(n, 1.2), 16, 1, [1, 2]),  # nearly with one
        (lambda n: 1 + n / 10, 16, 1, [1, 2]),
    ],
)
def test_they_are_doubled_while_a_pass_takes_a_fifth_less(
    monkeypatch: pytest.MonkeyPatch, seconds: Callable[[int], float], most: int, number: int, tried: list[int]
) -> None:
    machine = Machine(lambda n: seconds(n) / 1000)
    assert chosen(monkeypatch, machine, most) == number
    assert machine.tried == tried


@pytest.mark.parametrize("every", [2, 3, 5])
def test_disturbed_turns_do_not_count(monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    assert chosen(monkeypatch, Machine(lambda n: 0.001 / n, every), 2) == 2
    assert chosen(monkeypatch, Machine(lambda n: 0.001 - 0.00005 * n, every), 2) == 1


def test_a_machine_that_is_never_calm_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(lambda n: 0.01 / n, 1)
    assert chosen(monkeypatch, machine, 2) == 2
    assert machine.now < 2 * threads._PATIENCE


def test_a_real_model_is_timed_by_some_of_its_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_model(tmp_path)
    config = ModelConfig.load(tmp_path)
    monkeypatch.setattr(threads, "_SAMPLE", 2 * config.layer_weights)  # of bf16
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    loaded: list[int] = []

    def counted(*given: object, num_layers: int, **named: object) -> Model:
        loaded.append(num_layers)
        return load_model(*given, num_layers=num_layers, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(threads, "load_model", counted)
    assert choose_threads(tmp_path, torch.bfloat16, decoder="torch") == torch.get_num_threads()
    assert torch.get_num_threads() in {1, 2}
    assert loaded == [1, 1]
    assert config.num_layers > 1


@pytest.mark.parametrize("cores", [{0}, {0, 1}])
def test_the_last_core_is_left_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: set[int]) -> None:
    save_model(tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: cores)
    monkeypatch.setattr(threads, "worthwhile", lambda *_: pytest.fail("there is nothing to choose"))
    torch.set_num_threads(2)
    assert choose_threads(tmp_path, torch.bfloat16) == torch.get_num_threads() == 1


def test_a_core_is_left_only_where_others_want_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_model(tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr(threads, "worthwhile", lambda _, limit: limit)
    assert [choose_threads(tmp_path, torch.bfloat16, others=others) for others in (0, 1, 2)] == [4, 3, 2]


def test_what_a_layer_weighs_is_what_its_matrices_hold(tmp_path: Path) -> None:
    model = save_model(tmp_path)
    matrices = [weight for name, weight in model.state_dict().items() if ".layers.0." in name and weight.dim() == 2]
    assert ModelConfig.load(tmp_path).layer_weights == sum(weight.numel() for weight in matrices)
