"""Guesses: the best token, by how much it leads, and what else it might have been."""

from __future__ import annotations

import math

import torch

from core.guess import Guess, guesses


def test_the_best_four_in_order() -> None:
    scores = torch.tensor([[0.5, 3.0, -1.0, 2.5, 2.0, 1.0], [9.0, 8.0, 7.5, 7.0, 6.0, 5.0]])
    assert guesses(scores) == [Guess(1, 0.5, (3, 4, 5)), Guess(0, 1.0, (1, 2, 3))]


def test_ties_go_to_the_lowest_id() -> None:
    assert guesses(torch.tensor([[1.0, 4.0, 4.0, 4.0, 4.0, 4.0]])) == [Guess(1, 0.0, (2, 3, 4))]


def test_what_cannot_be_is_not_guessed() -> None:
    masked = torch.full((2, 50), -math.inf)
    masked[0, 7] = 1.0
    masked[1, [9, 3]] = torch.tensor([2.0, 1.5])
    assert guesses(masked) == [Guess(7, math.inf, ()), Guess(9, 0.5, (3,))]
    assert torch.isinf(masked[0, :7]).all()  # they are left as they were


def test_a_vocabulary_of_one() -> None:
    assert guesses(torch.tensor([[2.0]])) == [Guess(0, math.inf, ())]
