"""Our engines without Ray: the verifier in this process, every draft in one of its own, the real wire between them."""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import NamedTuple, Protocol

import torch
from msgspec import structs

from core.draft.drafter import Drafter
from core.draft.engine import DraftConfig
from core.draft_key import DraftKey
from core.family import DRAFT_DIR, TARGET_DIR
from core.generation import GenerationRequest, Run
from core.model.base import Model
from core.model.causal_lm import load_draft_model, load_model
from core.model.cpu.threads import choose_threads
from core.policy.draft_policy import OTHERS
from core.text.tokenizer import load_tokenizer
from core.text.vocabulary import same_id_map
from core.verify.engine import VerifyConfig
from core.verify.verifier import Verifier
from core.wire.messages import OpenSession

WINDOW = 16


class Asked(NamedTuple):
    """A request and the label of its draft; None decodes plainly."""

    request: GenerationRequest
    draft: str | None


class Answered(NamedTuple):
    """What came back: `seconds` from the request to its last token, `first` to its first.

    `passes` are those after the prefill's.
    """

    tokens: tuple[int, ...]
    seconds: float
    first: float
    passes: int
    proposed: int
    accepted: int


DRAFT_SESSIONS = 32  # that a draft's cache holds


@dataclass(frozen=True)
class ShippedDraft:
    """The shipped draft as it is, a PEFT adapter of its base, or a whole model."""

    directory: str | None
    device: str = "cpu"

    def load(self) -> Model:
        dtype = torch.float32 if self.device == "cpu" else torch.bfloat16
        return load_draft_model(
            self.directory, DRAFT_DIR, dtype=dtype, sessions=DRAFT_SESSIONS, device=self.device, exact=False
        )


class Loaded(Protocol):
    """What a draft process makes its model of, there."""

    def load(self) -> Model: ...


class DraftProcess:
    """A drafter in a process of its own; `serial` keeps it from drafting ahead."""

    def __init__(self, label: str, draft: Loaded, *, serial: bool = False) -> None:
        ours, theirs = multiprocessing.Pipe()
        self._pipe = ours
        self._serial = serial
        self._process = multiprocessing.get_context("spawn").Process(
            target=_draft, args=(theirs, label, draft), daemon=True
        )
        self._process.start()
        theirs.close()

    def ready(self) -> None:
        self._pipe.recv()

    def open(self, opened: OpenSession) -> None:
        self._pipe.send(structs.replace(opened, lookahead=opened.lookahead and not self._serial))

    def counts(self) -> Counter[str]:
        self._pipe.send(None)
        counts: Counter[str] = self._pipe.recv()
        return counts

    def close(self) -> None:
        self._pipe.close()
        self._process.join()


def _draft(pipe: Connection, label: str, draft: Loaded) -> None:
    torch.set_num_threads(1)
    drafter = Drafter(draft.load(), same_id_map(TARGET_DIR, DRAFT_DIR), DraftConfig(), DraftKey.parse(label))
    drafter.start()
    pipe.send(None)
    try:
        while True:
            opened = pipe.recv()
            if opened is None:
                pipe.send(drafter.counts().result())
            else:
                drafter.open(opened, lambda: None).result()
    except EOFError:
        drafter.stop()


class Engines:
    """A target in this process, in bf16, and drafts beside it; a context manager.

    `threads` are torch's from here on, on the engine's thread, the only one that should compute.
    """

    def __init__(
        self,
        target: Path,
        drafts: Mapping[str, DraftProcess],
        config: VerifyConfig,
        device: str = "cpu",
        threads: int = 1,
    ) -> None:
        torch.set_num_threads(threads)
        self._drafts = drafts
        pages = 16 * config.max_sessions
        load = partial(load_model, target, dtype=torch.bfloat16, num_pages=pages, device=device)
        self._verifier = Verifier(load, load_tokenizer(target), config)
        self._length = config.num_speculative_tokens
        for draft in set(self._drafts.values()):
            draft.ready()

    def __enter__(self) -> Engines:
        self._verifier.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._verifier.stop()
        for draft in set(self._drafts.values()):
            draft.close()

    def counts(self, draft: str | None = None) -> Counter[str]:
        """Of the verifier since it started, or of a draft."""
        return self._verifier.counts().result() if draft is None else self._drafts[draft].counts()

    def answer(self, asked: Sequence[Asked], streams: int = 1) -> list[Answered]:
        """All answers, in order; `streams` run at a time, the next beginning as one ends."""
        arrived: SimpleQueue[tuple[int, Run | BaseException, float]] = SimpleQueue()
        began: dict[int, float] = {}
        runs: dict[int, list[tuple[Run, float]]] = {}
        waiting = iter(enumerate(asked))

        def begin(count: int) -> None:
            for index, (request, draft) in islice(waiting, count):
                began[index], runs[index] = time.perf_counter(), []
                self._begin(request, draft, partial(_arrive, arrived, index))

        begin(streams)
        unfinished = len(asked)
        while unfinished:
            index, run, at = arrived.get()
            if isinstance(run, BaseException):
                raise run
            runs[index].append((run, at - began[index]))
            if run.finish_reason is not None:
                unfinished -= 1
                begin(1)
        return [_answered(runs[index]) for index in range(len(asked))]

    def _begin(self, request: GenerationRequest, draft: str | None, sink: partial[None]) -> None:
        if draft is None:
            request = structs.replace(request, num_speculative_tokens=0)
        (session,), declined = self._verifier.open([request], sink).result()
        if draft is None or declined.get(DraftKey.parse(draft), declined.get(OTHERS, False)):
            return
        self._drafts[draft].open(
            OpenSession(
                session=session,
                epoch=0,
                verifier=self._verifier.address,
                tokens=request.tokens,
                prompt_length=request.prompt_length,
                params=request.params,
                choice=request.choice,
                num_speculative_tokens=self._length,
            )
        )


def threads_worth(target: Path, *, left: int = 1) -> int:
    """What it is worth here, found in a process of its own: torch keeps a team where it computed.

    `left`: cores that are others', as a service has it.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(choose_threads, target, torch.bfloat16, others=left).result()


def processes(drafts: Mapping[str, str | None], device: str = "cpu") -> dict[str, DraftProcess]:
    """A process for each of the shipped draft's adapters, by label."""
    return {label: DraftProcess(label, ShippedDraft(directory, device)) for label, directory in drafts.items()}


def _arrive(
    arrived: SimpleQueue[tuple[int, Run | BaseException, float]], index: int, _: int, run: Run | BaseException
) -> None:
    arrived.put((index, run, time.perf_counter()))


def _answered(runs: Sequence[tuple[Run, float]]) -> Answered:
    return Answered(
        tokens=tuple(token for run, _ in runs for token in run.tokens),
        seconds=runs[-1][1],
        first=runs[0][1],
        passes=len(runs) - 1,
        proposed=sum(run.proposed for run, _ in runs),
        accepted=sum(run.accepted for run, _ in runs),
    )
