"""One side of `before_after`: answers questions on its input, a line each, by the code that its PYTHONPATH leads to.

It is run by its path, in older checkouts, too, so it uses only what they have.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec


class Question(msgspec.Struct, frozen=True, array_like=True):
    """The number of a held-out prompt, and the contender that is to answer it."""

    item: int
    temperature: float
    contender: str


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """Seconds to the last token, target passes after the prompt's, and the tokens."""

    seconds: float
    passes: int
    tokens: tuple[int, ...]


def main(directory: str, threads: str, per_task: str) -> None:
    from core.generation import GenerationRequest
    from core.sampling.params import SamplingParams
    from core.verify.engine import VerifyConfig
    from tests.bench.decode import draft_of
    from tests.bench.engines import Asked, Engines, processes
    from tests.bench.items import draft_directories, held_out

    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anything else prints is no reply
    config, items = VerifyConfig(max_sessions=4, num_speculative_tokens=12), held_out(int(per_task))
    with Engines(Path(directory), processes(draft_directories()), config, threads=int(threads)) as engines:
        out.write(b"ready\n")
        out.flush()
        for line in sys.stdin:
            question = msgspec.json.decode(line, type=Question)
            item = items[question.item]
            params = SamplingParams(seed=item.number, max_tokens=128, temperature=question.temperature)
            request = GenerationRequest(tokens=item.tokens, prompt_length=len(item.tokens), params=params)
            [answered] = engines.answer([Asked(request, draft_of(question.contender, item))])
            out.write(msgspec.json.encode(Reply(answered.seconds, answered.passes, answered.tokens)) + b"\n")
            out.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
