"""One end of a generation in a process of its own: `python two_processes.py target|draft`.

The target prints its address, then reads lists of requests, a JSON line each: for each list it prints the session
numbers at once and the answers when they are complete. The draft reads lists of sessions to join. Both print what they
have counted when their input ends.
"""

from __future__ import annotations

import sys
from functools import partial
from queue import SimpleQueue

import msgspec
import torch

from core.draft.drafter import Drafter
from core.draft.engine import DraftConfig
from core.draft_key import GENERAL, DraftKey
from core.family import DRAFT_DIR, TARGET_DIR
from core.generation import GenerationRequest, Run
from core.model.causal_lm import CausalLM, load_model
from core.text.tokenizer import load_tokenizer
from core.text.vocabulary import same_id_map
from core.verify.engine import VerifyConfig
from core.verify.verifier import Verifier
from core.wire.messages import OpenSession
from tests.core.unhurried import unhurried


def say(message: object) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.buffer.flush()


def load_target() -> CausalLM:
    return unhurried(load_model(TARGET_DIR, dtype=torch.bfloat16, num_pages=128))


def run_target() -> None:
    verifier = Verifier(load_target, load_tokenizer(TARGET_DIR), VerifyConfig())
    verifier.start()
    say(verifier.address)
    for line in sys.stdin:
        requests = msgspec.json.decode(line, type=list[GenerationRequest])
        runs = [SimpleQueue[Run | BaseException]() for _ in requests]
        say(
            [
                verifier.open([request], partial(deliver, at)).result().sessions[0]
                for request, at in zip(requests, runs, strict=True)
            ]
        )
        say([answer(at) for at in runs])
    say(verifier.counts().result())
    verifier.stop()


def deliver(queue: SimpleQueue[Run | BaseException], _: int, run: Run | BaseException) -> None:
    queue.put(run)


def answer(runs: SimpleQueue[Run | BaseException]) -> list[int]:
    tokens: list[int] = []
    while True:
        run = runs.get(timeout=60)
        if isinstance(run, BaseException):
            raise run
        tokens += run.tokens
        if run.finish_reason is not None:
            return tokens


def run_draft() -> None:
    model = load_model(DRAFT_DIR, dtype=torch.float32, num_pages=128)
    drafter = Drafter(model, same_id_map(TARGET_DIR, DRAFT_DIR), DraftConfig(), DraftKey(GENERAL))
    drafter.start()
    for line in sys.stdin:
        for opened in msgspec.json.decode(line, type=list[OpenSession]):
            drafter.open(opened, lambda: None).result()
    say(drafter.counts().result())
    drafter.stop()


if __name__ == "__main__":
    torch.set_num_threads(1)
    {"target": run_target, "draft": run_draft}[sys.argv[1]]()
