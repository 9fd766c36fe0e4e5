"""Drafted tokens: the best token, its margin, and its runners-up."""

from __future__ import annotations

import math

import torch

from core.model.draft_tokens import DraftToken, draft_tokens


def test_the_best_four_in_order() -> None:
    scores = torch.tensor([[0.5, 3.0, -1.0, 2.5, 2.0, 1.0], [9.0, 8.0, 7.5, 7.0, 6.0, 5.0]])
    assert draft_tokens(scores) == [DraftToken(1, 0.5, (3, 4, 5)), DraftToken(0, 1.0, (1, 2, 3))]


def test_ties_go_to_the_lowest_id() -> None:
    assert draft_tokens(torch.tensor([[1.0, 4.0, 4.0, 4.0, 4.0, 4.0]])) == [DraftToken(1, 0.0, (2, 3, 4))]


def test_columns_are_named_by_their_ids() -> None:
    scores = torch.tensor([[0.5, 3.0, -math.inf], [9.0, 8.0, 7.5]])
    ids = torch.tensor([4, 70, 900])
    assert draft_tokens(scores, ids) == [DraftToken(70, 2.5, (4,)), DraftToken(4, 1.0, (70, 900))]


def test_what_cannot_be_is_not_guessed() -> None:
    masked = torch.full((2, 50), -math.inf)
    masked[0, 7] = 1.0
    masked[1, [9, 3]] = torch.tensor([2.0, 1.5])
    assert draft_tokens(masked) == [DraftToken(7, math.inf, ()), DraftToken(9, 0.5, (3,))]
    assert torch.isinf(masked[0, :7]).all()  # they are left as they were


def test_a_vocabulary_of_one() -> None:
    assert draft_tokens(torch.tensor([[2.0]])) == [DraftToken(0, math.inf, ())]
