"""From raw logits to a drawn token: penalties, logit bias and filters, then Gumbel noise, then the largest score.

Draft and target engine, and the replay of recorded answers, all draw through `score`, so they follow one law.

The adjusted logits z are not divided by the temperature T. The token is argmax(z + T * gumbel), which is a sample of
softmax(z / T). At T = 0 the same line gives the most likely token. The order is: what is allowed, penalties, logit
bias, top-k, top-p, min-p, each applied to what the step before it left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice, pairwise
from typing import Any, NamedTuple

import numpy as np

from core.arrays import Array, converted, namespace, on_cpu
from core.sampling.filters import BANNED, apply_filters, change_rows, column, selected_rows
from core.sampling.gumbel import Ids, NoiseWindow, num_ids
from core.sampling.params import SamplingParams

GeneratedCounts = Counter[int]  # how often each token was generated; the prompt is never counted

CPU_BATCH = 1 << 18  # logits scored together on a CPU: a larger batch leaves the caches and is slower than its parts
GPU_BATCH = 1 << 24  # logits scored together on a GPU: 128 MiB in float64, of which top-p holds several copies


class Sampling(NamedTuple):
    """The sampling state of one session in a pass. Row j follows the first j of the `proposed` tokens.

    `noise` is the session's, made from the request's seed and choice. The token of row j stands at absolute position
    `first_position + j`. `history` counts the generated tokens before row 0; only penalties read it. The tokens of the
    `prompt` are penalised as repeated, too. `allowed`, bool [rows, V], bans the other tokens; None bans nothing.
    """

    params: SamplingParams
    noise: NoiseWindow
    first_position: int
    history: GeneratedCounts
    proposed: Sequence[int] = ()
    prompt: Sequence[int] = ()
    allowed: Any = None

    @property
    def adjusted(self) -> bool:
        """Whether its logits are changed one session at a time, not together with those of others."""
        return self.allowed is not None or self.params.penalised or bool(self.params.logit_bias)

    @property
    def rows(self) -> int:
        return 1 + len(self.proposed)


def sample(logits: Array, sessions: Sequence[Sampling], ids: Ids[Array]) -> list[int]:
    """Draw one of `ids` per row of float32 logits [rows of all sessions, V]; ties go to the lowest id.

    `ids` are those of the first columns; none of the columns after them is drawn.
    """
    columns = score(logits, sessions, ids).argmax(-1)
    tokens: list[int] = (columns if isinstance(ids, int) else ids[columns]).tolist()
    return tokens


def score(logits: Array, sessions: Sequence[Sampling], ids: Ids[Array]) -> Array:
    """The scores z + T * gumbel of many sessions at once: float32 [rows of all sessions, ids].

    `ids` are those of the first columns of the logits; filters see no others. A banned token scores -inf. Each session
    is scored as it would be alone. Filters and noise run over the rows of many sessions together, so on a GPU a further
    session costs no launch or synchronisation, unless it has penalties or a bias or its noise has to be made.
    """
    z: Array = logits[:, : num_ids(ids)]
    if not any(session.adjusted or session.params.warped or not session.params.greedy for session in sessions):
        return z
    batch = max(1, (CPU_BATCH if on_cpu(z.device) else GPU_BATCH) // num_ids(ids))
    scores: Array = _joined([_score(rows, some, ids) for rows, some in _batches(z, sessions, batch)])
    return scores


def _batches(z: Array, sessions: Sequence[Sampling], most_rows: int) -> Iterator[tuple[Array, list[Sampling]]]:
    """The sessions with their rows, in batches of at most `most_rows`; a session is never split."""
    begin = end = 0
    batch: list[Sampling] = []
    for session in sessions:
        if batch and end + session.rows - begin > most_rows:
            yield z[begin:end], batch
            begin, batch = end, []
        batch.append(session)
        end += session.rows
    yield z[begin:end], batch


def _score(z: Array, sessions: Sequence[Sampling], ids: Ids[Array]) -> Any:
    if any(session.adjusted for session in sessions):
        ends = accumulate((session.rows for session in sessions), initial=0)
        parts = [z[begin:end] for begin, end in pairwise(ends)]
        z = _joined([_adjusted(rows, session, ids) for session, rows in zip(sessions, parts, strict=True)])
    z = apply_filters(z, [(session.params, session.rows) for session in sessions])
    noisy = [session for session in sessions if not session.params.greedy]
    if not noisy:
        return z
    noise = _joined([session.noise.rows(session.first_position, session.rows, ids, z.device) for session in noisy])
    temperature = column([session.params.temperature for session in noisy for _ in range(session.rows)], z)
    where = selected_rows([(not session.params.greedy, session.rows) for session in sessions], z)
    scaled = noise * temperature  # and added by itself: a fused multiply-add would round once, and differ by kernel
    scaled += z if where is None else z[where]
    return change_rows(z, where, scaled)


def _adjusted(logits: Array, session: Sampling, ids: Ids[Array]) -> Any:
    """The logits of one session after bans, penalties and bias; `logits` itself is left unchanged."""
    z, params, xp = logits, session.params, namespace(logits.device)
    if session.allowed is not None:
        z = _masked(z, session.allowed)
    if params.penalised:
        counts = count_rows(session.history, session.proposed, logits, ids)
        if params.repetition_penalty != 1.0:
            z = _repeated(z, counts > 0, session, ids)
        generated = converted(counts > 0, "float32")
        z = z - counts * params.frequency_penalty - generated * params.presence_penalty
    if params.logit_bias:
        bias = _zeros((num_ids(ids) + 1,), z)
        values = xp.asarray(list(params.logit_bias.values()), dtype=z.dtype, device=z.device)
        bias[_columns(list(params.logit_bias), ids, z)] = values
        z = z + bias[:-1]
    return z


def _masked(z: Array, allowed: Any) -> Any:
    """The logits of what is allowed. NumPy masks in a third of torch's time on a CPU."""
    xp = namespace(z.device)
    if not on_cpu(z.device):
        return xp.where(xp.asarray(allowed, device=z.device), z, BANNED)
    masked: Any = xp.asarray(z, copy=True)
    np.copyto(masked if isinstance(masked, np.ndarray) else masked.numpy(), BANNED, where=~allowed)
    return masked


def _repeated(z: Array, generated: Array, session: Sampling, ids: Ids[Array]) -> Any:
    """Less likely what stands in the prompt or was generated: its logit is divided or, below 0, multiplied."""
    xp, penalty = namespace(z.device), session.params.repetition_penalty
    in_prompt = xp.zeros((num_ids(ids) + 1,), dtype=generated.dtype, device=z.device)
    in_prompt[_columns(session.prompt, ids, z)] = True
    return xp.where(generated | in_prompt[:-1], xp.where(z > 0, z / penalty, z * penalty), z)


def count_rows(history: GeneratedCounts, proposed: Sequence[int], logits: Array, ids: Ids[Array]) -> Any:
    """Counts [n, V] for rows of `logits` [n, V]: the history, and in row j the first j proposed tokens."""
    counts = _zeros((len(logits), num_ids(ids) + 1), logits)
    xp = namespace(logits.device)
    often = xp.asarray(list(history.values()), dtype=logits.dtype, device=logits.device)
    counts[:, _columns(list(history), ids, logits)] = often
    followed = _columns(list(islice(proposed, len(logits) - 1)), ids, logits)
    for row, place in enumerate(followed.tolist(), start=1):
        counts[row:, place] += 1.0
    return counts[:, :-1]


def _columns(tokens: Sequence[int], ids: Ids[Array], z: Array) -> Any:
    """The column of each token; all that are not among `ids` share the one after the last."""
    xp = namespace(z.device)
    ids_of_tokens = xp.asarray(tokens, dtype=xp.int64, device=z.device)
    if isinstance(ids, int):
        return ids_of_tokens
    columns = xp.searchsorted(ids, ids_of_tokens)
    return xp.where(ids[xp.clip(columns, None, len(ids) - 1)] == ids_of_tokens, columns, len(ids))


def _zeros(shape: tuple[int, ...], z: Array) -> Any:
    return namespace(z.device).zeros(shape, dtype=z.dtype, device=z.device)


def _joined(parts: Sequence[Array]) -> Any:
    return parts[0] if len(parts) == 1 else namespace(parts[0].device).concatenate(list(parts))
