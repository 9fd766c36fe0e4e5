"""A draft replica on a CPU: what it keeps in memory, and that its arrays of NumPy draft what tensors would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from tokenizers import Tokenizer

from core.draft.engine import DraftConfig, DraftEngine
from core.family import BUNDLE_DIR, DRAFT_DIR, held_out_prompts
from core.model.base import Model
from core.model.causal_lm import load_draft_model
from core.sampling.params import SamplingParams
from core.wire.messages import Address, Commit, OpenSession
from serve_app.config import Draft
from serve_app.deployments.models.draft_loading import load_draft

DRAFT = Draft(model="family:draft", max_sessions=4)
ADAPTERS = sorted(file.parent for file in BUNDLE_DIR.glob("parts/*/adapter_config.json"))
LAWS: list[dict[str, object]] = [
    {"temperature": 0.0},
    {"temperature": 0.7},
    {"temperature": 1.0},
    {"temperature": 1.0, "top_p": 0.9},
    {"temperature": 0.7, "top_k": 20},
    {"temperature": 1.0, "min_p": 0.02, "presence_penalty": 0.5, "frequency_penalty": 0.2, "logit_bias": {7: 1.0}},
]
MOST = 250  # MB, of which an idle replica of Ray Serve takes 205

# A replica without Ray around it: the deployment's class, as Serve calls it, and a verifier that it drafts for.
REPLICA = """
import asyncio, json, sys
import psutil, zmq
from core.sampling.params import SamplingParams
from core.wire.messages import OpenSession
from core.wire.transport import VerifierWire
from serve_app.config import load_config
from serve_app.deployments.actors.draft_pool import DraftPool

SESSIONS = 8

async def drafted():
    pool, wire = DraftPool(load_config("family"), "general", None), VerifierWire(zmq.Context(), "127.0.0.1")
    calls = []
    for number in range(SESSIONS):
        warped = {"top_p": 0.9, "presence_penalty": 0.5} if number % 4 == 3 else {}
        params = SamplingParams(seed=number, max_tokens=100, temperature=number % 2, **warped)
        asked = OpenSession(
            session=number, epoch=0, verifier=wire.address, tokens=tuple(range(5, 305)), prompt_length=300,
            params=params, choice=0, num_speculative_tokens=6,
        )
        calls.append(pool.session(asked))  # kept, for it lasts as long as the session
        assert await anext(calls[-1]) is None
    proposed, names = {}, set()
    while len(proposed) < SESSIONS:
        for peer, message in wire.receive():
            names.add(peer.rpartition(b"#")[0].decode())
            proposed |= {message.session: message.tokens} if message.tokens else {}
        await asyncio.sleep(0.01)
    return proposed, names

proposed, names = asyncio.run(drafted())
heavy = sorted({"torch", "transformers", "scipy", "sklearn"} & set(sys.modules))
megabytes = psutil.Process().memory_info().rss / 1e6
print(json.dumps({"proposed": list(proposed.values()), "names": list(names), "heavy": heavy, "megabytes": megabytes}))
sys.stdout.flush()
__import__("os")._exit(0)
"""


class Replica(msgspec.Struct):
    """What a replica in a process of its own said."""

    proposed: list[list[int]]
    names: list[str]
    heavy: list[str]
    megabytes: float


def test_a_replica_drafts_without_torch_in_little_memory_under_the_name_of_its_task() -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # as Ray sets it for a share of a core
    run = subprocess.run(
        [sys.executable, "-c", REPLICA], capture_output=True, text=True, env=environment, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    said = msgspec.json.decode(run.stdout.splitlines()[-1], type=Replica)
    assert len(said.proposed) == 8
    assert all(said.proposed)
    assert said.names == ["general"]
    assert said.heavy == []
    assert said.megabytes < MOST


def proposals(model: Model[Any], law: dict[str, object], prompts: list[list[int]]) -> list[tuple[int, ...]]:
    """What is drafted for each prompt where every draft is accepted."""
    engine = DraftEngine(model, 2048, DraftConfig(), lambda: 0.0)
    said: list[tuple[int, ...]] = []
    for number, prompt in enumerate(prompts):
        params = msgspec.convert({"seed": number, "max_tokens": 100, **law}, SamplingParams)
        asked = OpenSession(
            session=number,
            epoch=0,
            verifier=Address("", ""),
            tokens=tuple(prompt),
            prompt_length=len(prompt),
            params=params,
            choice=number % 2,
            num_speculative_tokens=8,
            lookahead=False,
        )
        engine.open(asked, b"verifier")
        known = len(prompt)
        for _ in range(5):
            while engine.drafting:
                engine.step()
            [(_, proposal)] = engine.outgoing()
            said.append(proposal.tokens)
            engine.receive(b"verifier", Commit(number, known, proposal.tokens))
            known += len(proposal.tokens)
        engine.close(number)
    return said


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    tokenizer = Tokenizer.from_file(str(DRAFT_DIR / "tokenizer.json"))
    return [tokenizer.encode(prompt.prompt).ids for prompt in held_out_prompts()[:8] if prompt.prompt]


@pytest.mark.parametrize("adapter", [None, *ADAPTERS], ids=lambda path: "the draft" if path is None else path.name[:6])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_tokens_are_those_that_tensors_draft(adapter: Path | None, dtype: str, prompts: list[list[int]]) -> None:
    directory = None if adapter is None else str(adapter)
    draft = DRAFT.model_copy(update={"dtype": dtype})
    light = load_draft(draft, directory)
    in_torch = load_draft_model(directory, DRAFT_DIR, dtype=getattr(torch, dtype))
    said = [proposals(light, law, prompts) for law in LAWS]
    assert said == [proposals(in_torch, law, prompts) for law in LAWS]
    assert all(len(tokens) == 8 for of_law in said for tokens in of_law)
    assert len({str(of_law) for of_law in said}) >= 4  # a filter may ban nothing that would be drawn
