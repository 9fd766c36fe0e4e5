"""From raw logits to a drawn token: penalties, logit bias and filters, then Gumbel noise, then the largest score.

Draft and target engine, and the replay of recorded answers, all draw through `score`, so they follow one law.

The adjusted logits z are not divided by the temperature T. The token is argmax(z + T * gumbel), which is a sample of
softmax(z / T). At T = 0 the same line gives the most likely token. The order is: penalties, logit bias, top-k, top-p,
min-p, each applied to what the step before it left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import torch

from core.sampling.filters import apply_filters, change_rows, column, selected_rows
from core.sampling.gumbel import Ids, NoiseWindow, num_ids
from core.sampling.params import SamplingParams

GeneratedCounts = Counter[int]  # how often each token was generated; the prompt is never counted

CPU_BATCH = 1 << 18  # logits scored together on a CPU: a larger batch leaves the caches and is slower than its parts
GPU_BATCH = 1 << 24  # logits scored together on a GPU: 128 MiB in float64, of which top-p holds several copies


class Sampling(NamedTuple):
    """The sampling state of one session in a pass. Row j follows the first j of the `proposed` tokens.

    `noise` is the session's, made from the request's seed and choice. The token of row j stands at absolute position
    `first_position + j`. `history` counts the generated tokens before row 0; only penalties read it.
    """

    params: SamplingParams
    noise: NoiseWindow
    first_position: int
    history: GeneratedCounts
    proposed: Sequence[int] = ()

    @property
    def rows(self) -> int:
        return 1 + len(self.proposed)


def sample(logits: torch.Tensor, sessions: Sequence[Sampling], ids: Ids) -> list[int]:
    """Draw one of `ids` per row of float32 logits [rows of all sessions, V]; ties go to the lowest id.

    `ids` are those of the first columns; none of the columns after them is drawn.
    """
    columns = score(logits, sessions, ids).argmax(-1)
    drawn: list[int] = (columns if isinstance(ids, int) else ids[columns]).tolist()
    return drawn


def score(logits: torch.Tensor, sessions: Sequence[Sampling], ids: Ids) -> torch.Tensor:
    """The scores z + T * gumbel of many sessions at once: float32 [rows of all sessions, ids].

    `ids` are those of the first columns of the logits; filters see no others. A banned token scores -inf. Each session
    is scored as it would be alone. Filters and noise run over the rows of many sessions together, so on a GPU a further
    session costs no launch or synchronisation, unless it has penalties or a bias or its noise has to be made.
    """
    z = logits[:, : num_ids(ids)]
    if all(one.params.greedy and not one.params.warped for one in sessions):
        return z
    batch = max(1, (GPU_BATCH if z.is_cuda else CPU_BATCH) // num_ids(ids))
    return _cat([_score(rows, some, ids) for rows, some in _batches(z, sessions, batch)])


def _batches(
    z: torch.Tensor, sessions: Sequence[Sampling], most_rows: int
) -> Iterator[tuple[torch.Tensor, list[Sampling]]]:
    """The sessions with their rows, in batches of at most `most_rows`; a session is never split."""
    begin = end = 0
    batch: list[Sampling] = []
    for one in sessions:
        if batch and end + one.rows - begin > most_rows:
            yield z[begin:end], batch
            begin, batch = end, []
        batch.append(one)
        end += one.rows
    yield z[begin:end], batch


def _score(z: torch.Tensor, sessions: Sequence[Sampling], ids: Ids) -> torch.Tensor:
    if any(one.params.penalised or one.params.logit_bias for one in sessions):
        split = torch.split(z, [one.rows for one in sessions])
        z = _cat([_adjusted(rows, one, ids) for one, rows in zip(sessions, split, strict=True)])
    z = apply_filters(z, [(one.params, one.rows) for one in sessions])
    noisy = [one for one in sessions if not one.params.greedy]
    if not noisy:
        return z
    noise = _cat([one.noise.rows(one.first_position, one.rows, ids, z.device) for one in noisy])
    temperature = column([one.params.temperature for one in noisy for _ in range(one.rows)], z)
    where = selected_rows([(not one.params.greedy, one.rows) for one in sessions], z)
    # two roundings, not one: a fused multiply-add would differ between kernels
    return change_rows(z, where, (noise * temperature).add_)


def _adjusted(logits: torch.Tensor, one: Sampling, ids: Ids) -> torch.Tensor:
    """The logits of one session after penalties and bias; `logits` itself is left unchanged."""
    z, params = logits, one.params
    if params.penalised:
        counts = count_rows(one.history, one.proposed, logits, ids)
        z = z - counts * params.frequency_penalty - (counts > 0) * params.presence_penalty
    if params.logit_bias:
        bias = z.new_zeros(num_ids(ids) + 1)
        bias[_columns(list(params.logit_bias), ids, z.device)] = z.new_tensor(list(params.logit_bias.values()))
        z = z + bias[:-1]
    return z


def count_rows(history: GeneratedCounts, proposed: Sequence[int], logits: torch.Tensor, ids: Ids) -> torch.Tensor:
    """Counts [n, V] for rows of `logits` [n, V]: the history, and in row j the first j proposed tokens."""
    counts = logits.new_zeros(len(logits), num_ids(ids) + 1)
    counts[:, _columns(list(history), ids, logits.device)] = logits.new_tensor(list(history.values()))
    followed = _columns(list(islice(proposed, len(logits) - 1)), ids, logits.device)
    for row, place in enumerate(followed.tolist(), start=1):
        counts[row:, place] += 1.0
    return counts[:, :-1]


def _columns(tokens: Sequence[int], ids: Ids, device: torch.device) -> torch.Tensor:
    """The column of each token; all that are not among `ids` share the one after the last."""
    wanted = torch.tensor(tokens, dtype=torch.int64, device=device)
    if isinstance(ids, int):
        return wanted
    columns = torch.searchsorted(ids, wanted)
    return columns.where(ids[columns.clamp_max(len(ids) - 1)] == wanted, len(ids))


def _cat(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
