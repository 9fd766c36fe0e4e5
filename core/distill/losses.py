"""The losses that a draft can be trained with, by the name that a configuration writes.

To add a loss, write a function here and its line in `LOSSES`: the configuration, its errors and its help follow. The
function takes log-probabilities [positions, top] of the target and of the draft, at the target's most likely tokens,
and returns the mean over the positions. -inf of the target marks a token that is left out. The first line of
its docstring describes it.

Positions weigh the same. A pass ends at its first miss, and the next one drafts on from the true token. So every
position is judged once, but for the token after a run that is accepted whole, and passes are as many as misses and such
runs. What a draft says after its own wrong token is never judged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a configuration is read where PyTorch is not needed
    import torch

Loss = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]
_LK_DECAY = 3.0  # how fast the weight of KL falls with acceptance, as published


def kl_loss(target: torch.Tensor, draft: torch.Tensor) -> torch.Tensor:
    """Forward KL divergence from the target."""
    return (target.exp() * (target.nan_to_num(neginf=0.0) - draft)).sum(-1).mean()


def lk_loss(target: torch.Tensor, draft: torch.Tensor) -> torch.Tensor:
    """KL and total variation, mixed by acceptance.

    KL leads while little is accepted ("LK losses", hybrid form). A position is accepted with about the probability that
    both share, alpha = sum of min(p, q) = 1 - TV. The weight of KL is exp(-3 alpha), which gradients do not pass.
    """
    shared = target.exp().minimum(draft.exp()).sum(-1)
    weight = (-_LK_DECAY * shared.detach().mean()).exp()
    return weight * kl_loss(target, draft) + (1.0 - weight) * (1.0 - shared).mean()


LOSSES: dict[str, Loss] = {"kl": kl_loss, "lk": lk_loss}


def described() -> str:
    """The names of all losses, each with what it is."""
    return "; ".join(f"{name}: {(loss.__doc__ or '').splitlines()[0].rstrip('.')}" for name, loss in LOSSES.items())
