"""From raw logits to a drawn token: penalties, logit bias and filters, then Gumbel noise, then the largest score.

Draft and target engine, and the replay of recorded answers, all draw through `sample` or `score`, so they follow one
law.

The adjusted logits z are not divided by the temperature T. The token is argmax(z + T * gumbel), which is a sample of
softmax(z / T). At T = 0 the same line gives the most likely token. The order is: what is allowed, penalties, logit
bias, top-k, top-p, min-p, each applied to what the step before it left.

On a CPU `sample` makes noise only for the few tokens that can win (`_contenders`). On a GPU whole rows cost little, and
choosing among their tokens would wait for the device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, islice, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from core.arrays import Array, converted, namespace, on_cpu
from core.sampling.filters import BANNED, apply_filters, change_rows, column, selected_rows
from core.sampling.gumbel import Ids, gumbel, gumbel_of, keys, lanes, lowest_word, num_ids, words
from core.sampling.params import SamplingParams

GeneratedCounts = Counter[int]  # how often each token was generated; the prompt is never counted

CPU_BATCH = 1 << 18  # logits scored together on a CPU: a larger batch leaves the caches and is slower than its parts
GPU_BATCH = 1 << 24  # logits scored together on a GPU: 128 MiB in float64, of which top-p holds several copies
LEAD = 6.0  # of noise, over that of the likeliest token; few others have it
FEW = 1 << 15  # logits: noise for all of so few takes less time than choosing among them
WORDS_AT_ONCE = 1 << 14  # compared together: with what is computed on the way they stay in a core's caches


class Sampling(NamedTuple):
    """The sampling state of one session in a pass. Row j follows the first j of the `proposed` tokens.

    `choice` is the index in `n`; with the request's seed it fixes the noise. The token of row j stands at absolute
    position `first_position + j`. `history` counts the generated tokens before row 0; only penalties read it. The
    tokens of the `prompt` are penalised as repeated, too. `allowed`, bool [rows, V], bans the other tokens; None bans
    nothing.
    """

    params: SamplingParams
    choice: int
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
    names: Any = ids
    if on_cpu(logits.device):
        names = ids if isinstance(ids, int) else np.asarray(ids)
        scores = _scores(np.asarray(logits), sessions, names, _contenders)
    else:
        scores = score(logits, sessions, ids)
    columns = scores.argmax(-1)
    tokens: list[int] = (columns if isinstance(names, int) else names[columns]).tolist()
    return tokens


def score(logits: Array, sessions: Sequence[Sampling], ids: Ids[Array]) -> Array:
    """The scores z + T * gumbel of many sessions at once: float32 [rows of all sessions, ids].

    `ids` are those of the first columns of the logits; filters see no others. A banned token scores -inf. Each session
    is scored as it would be alone. Filters and noise run over the rows of many sessions together, so on a GPU a further
    session costs no launch or synchronisation, unless it has penalties or a bias.
    """
    scores: Array = _scores(logits, sessions, ids, _noisy)
    return scores


def _scores(logits: Array, sessions: Sequence[Sampling], ids: Ids[Array], add_noise: Callable[..., Any]) -> Any:
    z: Array = logits[:, : num_ids(ids)]
    if not any(session.adjusted or session.params.warped or not session.params.greedy for session in sessions):
        return z
    batch = max(1, (CPU_BATCH if on_cpu(z.device) else GPU_BATCH) // num_ids(ids))
    return _joined([_score(rows, some, ids, add_noise) for rows, some in _batches(z, sessions, batch)])


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


def _score(z: Array, sessions: Sequence[Sampling], ids: Ids[Array], add_noise: Callable[..., Any]) -> Any:
    if any(session.adjusted for session in sessions):
        ends = accumulate((session.rows for session in sessions), initial=0)
        parts = [z[begin:end] for begin, end in pairwise(ends)]
        z = _joined([_adjusted(rows, session, ids) for session, rows in zip(sessions, parts, strict=True)])
    z = apply_filters(z, [(session.params, session.rows) for session in sessions])
    noisy = [session for session in sessions if not session.params.greedy]
    if not noisy:
        return z
    places = [(each.params.seed, each.choice, each.first_position + row) for each in noisy for row in range(each.rows)]
    temperature = column([session.params.temperature for session in noisy for _ in range(session.rows)], z)
    where = selected_rows([(not session.params.greedy, session.rows) for session in sessions], z)
    return change_rows(z, where, add_noise(z if where is None else z[where], temperature, keys(places), ids))


def _noisy(z: Array, temperature: Array, row_keys: NDArray[np.int64], ids: Ids[Array]) -> Any:
    """The scores of rows z [n, ids], at a temperature [n, 1] and a key [n] each."""
    scores = gumbel(namespace(z.device).asarray(row_keys, device=z.device), ids)
    scores *= temperature  # and added by itself: a fused multiply-add would round once, and differ by kernel
    scores += z
    return scores


def _contenders(
    z: NDArray[np.float32],
    temperature: NDArray[np.float32],
    row_keys: NDArray[np.int64],
    ids: Ids[NDArray[np.int64]],
) -> Any:
    """The scores of `_noisy` for those ids alone that can be the highest of their row; -inf for the others.

    The likeliest id sets a floor, and its noise a ceiling: `LEAD` more. An id stays under the floor if its noise is
    under the ceiling and its logit would stay under the floor with that. Scores rise with logit and noise, however they
    are rounded, so no id is left out that could win. What is not a number is never left out.
    """
    if z.size <= FEW:
        return _noisy(z, temperature, row_keys, ids)
    rows, likeliest, id_lanes = np.arange(len(z)), z.argmax(-1), lanes(ids, z.device)
    noise = gumbel_of(words(row_keys, id_lanes[likeliest]))[:, None]
    floor = noise * temperature + z[rows, likeliest][:, None]
    ceiling = noise + np.float32(LEAD)
    lift, lowest = ceiling * temperature, lowest_word(ceiling)
    contends, width = np.empty(z.shape, np.bool_), max(1, WORDS_AT_ONCE // len(z))
    for begin in range(0, z.shape[1], width):
        part = slice(begin, begin + width)
        loud = words(row_keys[:, None], id_lanes[part]).view(np.uint64) >= lowest
        contends[:, part] = loud | ~(z[:, part] + lift < floor)
    rows, columns = np.divmod(np.flatnonzero(contends), z.shape[1])  # much faster than nonzero
    noise_of_contenders = gumbel_of(words(row_keys[rows], id_lanes[columns]))
    scores = np.full_like(z, BANNED)
    scores[rows, columns] = noise_of_contenders * temperature[rows, 0] + z[rows, columns]
    return scores


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
