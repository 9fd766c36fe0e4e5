"""The contenders of `real_model` and their turns: the service over HTTP, and what else decodes the same model."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from core.draft_key import GENERAL
from core.model.loader import public_name
from core.model_names import locate
from core.text.prompt_files import read_prompts
from core.text.tokenizer import load_tokenizer
from serve_app.client import AS_ROUTED, OFF, Client, Speculation
from serve_app.config import load_config
from serve_app.deployments.models.served_models import ServedModels, with_bundle
from serve_app.hosting import local_service
from serve_app.load.figures import GoodputLimits, figures
from serve_app.load.pairs import paired
from serve_app.load.run import LoadRun, Settings
from serve_app.load.sending import Streams
from serve_app.local_cluster import LOOPBACK, free_port
from serve_app.terminal.progress import Step, bar, step
from tests.bench import machine
from tests.bench.engines import Answered
from tests.bench.hugging_face import Transformers
from tests.bench.output import save
from tests.bench.paired import rotated
from tests.bench.real_model_page import (
    DRAFT,
    PLAIN,
    Load,
    Measured,
    Question,
    Reply,
    Turn,
    as_json,
    differing,
    page,
)
from tests.bench.real_model_rivals import (
    ASSISTED,
    INSTALL,
    LLAMA_CPP,
    WAYS,
    LlamaCpp,
    gguf_file,
    has_llama_cpp,
)
from tests.bench.rival_process import Job, Rival, RivalProcess
from train_jobs.config import RetrainConfig
from train_jobs.config import load_config as load_retraining
from train_jobs.prompts.sources import gather
from train_jobs.work.models import context, target_tokenizer

Contender = Callable[[Question, float], Reply]

WARM = 2  # prompts of each file, before those that count
CONTEXT = 8192  # tokens, of llama.cpp


class Competing(NamedTuple):
    """A rival, and its way of answering by the contender that it is."""

    rival: Rival
    ways: Mapping[str, str | None]


class Served:
    """Asks a running service one question at a time, always on the same loop and connection."""

    def __init__(self, url: str, model: str, max_tokens: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._client = Client(f"{url}/v1")  # without a key, so earlier answers are not looked up
        self._model = model
        self._max_tokens = max_tokens

    def answer(self, question: Question, temperature: float, speculation: Speculation) -> Reply:
        body = {
            "model": self._model,
            **question.prompt.chat_fields,
            "temperature": temperature,
            "seed": question.number,
            "max_tokens": self._max_tokens,
            "speculation": dict(speculation),
        }
        began = time.perf_counter()
        answer = self._loop.run_until_complete(self._client.ask(body))
        seconds, first = time.perf_counter() - began, answer.arrivals[0] - began
        answered = Answered(
            tuple(answer.tokens), seconds, first, len(answer.runs) - 1, answer.proposed, answer.accepted
        )
        counts = answer.speculation.get("sources", {})
        proposed, accepted = (
            Counter({source: of[kind] for source, of in counts.items()}) for kind in ("proposed", "accepted")
        )
        return Reply(answered, proposed, accepted)

    def close(self) -> None:
        self._loop.run_until_complete(self._client.close())
        self._loop.close()


@contextmanager
def service(served: ServedModels, max_tokens: int, console: Console) -> Iterator[tuple[str, Served]]:
    """The base URL of the service, and what asks it."""
    with local_service(served, LOOPBACK, free_port(LOOPBACK), console) as running:
        asking = Served(running.url, served.config.name, max_tokens)
        try:
            yield running.url, asking
        finally:
            asking.close()


def held_out_questions(config: RetrainConfig, number: int) -> list[Question]:
    """So many prompts of each file that are in the test split of a retraining, the files taking turns."""
    tokenizer = target_tokenizer(config)
    held_out = {trace.prompt_ids for trace in gather(config, context(config.target.model))["test"]}
    found = []
    for file in config.collect.files or ():
        told = ((prompt, tuple(tokenizer.encode_chat(prompt.chat_fields["messages"]))) for prompt in read_prompts(file))
        found.append(list(islice(((file.stem, *one) for one in told if one[1] in held_out), number)))
    in_turns = [of[place] for place in range(number) for of in found if place < len(of)]
    return [Question(count, prompt, tokens, of) for count, (of, prompt, tokens) in enumerate(in_turns)]


def in_turn(names: Sequence[str], turn: int) -> list[str]:
    """The order of a turn: rotated, and after each round turned back.

    The service remembers a prompt, so whoever of ours comes second reads it faster. This way each comes second as often
    as the other.
    """
    return rotated(names if turn // len(names) % 2 == 0 else names[::-1], turn)


def measure(
    contenders: Mapping[str, Contender],
    warm: Sequence[Question],
    asked: Sequence[Question],
    temperature: float,
    shown: Step,
) -> Measured:
    """Every contender answers all that is asked. Before, the draft answers `warm`, the others the first of it."""
    for name, contender in contenders.items():
        for question in warm if name == DRAFT else warm[:1]:
            contender(question, temperature)
    measured = Measured(temperature)
    for turn, question in enumerate(asked):
        for name in in_turn(list(contenders), turn):
            measured.turns.append(Turn(name, question, contenders[name](question, temperature)))
            shown.reach(shown.done + 1)
    return measured


def ours(asking: Served) -> dict[str, Contender]:
    return {
        PLAIN: lambda question, temperature: asking.answer(question, temperature, OFF),
        DRAFT: lambda question, temperature: asking.answer(question, temperature, AS_ROUTED),
    }


def rivals(served: ServedModels, target: str, threads: int) -> list[Competing]:
    """Those that can run here."""
    draft, drafts = served.config.draft, {ASSISTED: served.drafts[GENERAL]}
    length = draft.num_speculative_tokens
    found = [Competing(Transformers(target, drafts, locate(draft.model), draft.dtype, length, threads), WAYS)]
    file = gguf_file(served.config.target.model)
    if file is not None and has_llama_cpp():
        eos_ids = tuple(load_tokenizer(Path(target)).eos_ids)
        found.append(Competing(LlamaCpp(str(file), CONTEXT, threads, eos_ids), {LLAMA_CPP: None}))
    return found


def begin(found: Sequence[Competing], max_tokens: int, running: ExitStack) -> dict[str, Contender]:
    """Their processes run until `running` is closed."""

    def contender(process: RivalProcess, way: str | None) -> Contender:
        def answer(question: Question, temperature: float) -> Reply:
            job = Job(question.tokens, max_tokens, temperature, question.number, way)
            return Reply(process.answer(job), Counter(), Counter())

        return answer

    contenders = dict[str, Contender]()
    for rival, ways in found:
        process = running.enter_context(RivalProcess(rival))
        contenders |= {name: contender(process, way) for name, way in ways.items()}
    return contenders


def under_load(
    url: str, model: str, asked: Sequence[Question], temperature: float, chosen: argparse.Namespace, console: Console
) -> list[Load]:
    """Our plain decoding against our speculation, each number of streams."""
    many = [streams for streams in chosen.streams if streams > 1]
    if not many:
        return []
    settings = Settings(
        levels=tuple(map(Streams, many)),
        requests=None,
        temperature=temperature,
        seed=0,
        max_tokens=chosen.max_tokens,
        speculation="both",
    )
    run = LoadRun(f"{url}/v1", model, None, [question.prompt for question in asked], settings)
    console.print(f"{settings.requests_sent} requests of {many} streams, temperature {temperature:g} ...")
    with bar(console, settings.requests_sent) as progress:
        asyncio.run(run.go(progress))
    return [
        Load(streams, temperature, figures(at, "off", GoodputLimits()), figures(at, "on", GoodputLimits()), paired(at))
        for streams, at in zip(many, run.measured, strict=True)
    ]


def notes(chosen: argparse.Namespace, served: ServedModels, asked: Sequence[Question]) -> list[str]:
    """What the tables are of."""
    target, draft = served.config.target, served.config.draft
    told = [
        f"{len(asked)} prompts of the test split, on which nothing was trained or chosen.",
        f"Target {public_name(target.model)} in {target.dtype}, draft {public_name(draft.model)} in {draft.dtype}.",
        f"Answers up to {chosen.max_tokens} tokens, at most {draft.num_speculative_tokens} drafted for a pass.",
        f"Others in process, on {chosen.their_threads} threads; ours over HTTP on as many cores as there are.",
        "The service keeps prompts: of ours the second to be asked one reads it faster, and who is varies.",
        "Our lookup without the draft is no row: a request turns off both or neither.",
    ]
    if max(chosen.streams) > 1:
        most = target.max_sessions
        told.append(
            f"Under load these prompts are asked in turns, with other seeds; {most} are answered at once at most."
        )
    if not has_llama_cpp():
        told.append(f"llama.cpp was not measured; get it with: {INSTALL}")
    return [*told, machine.line()]


def run(chosen: argparse.Namespace, console: Console) -> None:
    """Measure what the options ask for, and write it."""
    with step(console, "Reading target and prompts"):  # a GGUF file is converted the first time
        served = with_bundle(load_config(chosen.config))
        target, retraining = locate(served.config.target.model), load_retraining(chosen.retraining)
        questions = held_out_questions(retraining, chosen.per_task + WARM)
    at = WARM * len(retraining.collect.files or ())
    warm, asked = questions[:at], questions[at:]
    found = rivals(served, target, chosen.their_threads) if 1 in chosen.streams else []
    told = notes(chosen, served, asked)
    if not has_llama_cpp():
        console.print(f"llama.cpp is left out; get it with: {INSTALL}", highlight=False, soft_wrap=True)
    measured, loads = list[Measured](), list[Load]()
    with ExitStack() as running:
        with step(console, f"Starting others: {', '.join(chain.from_iterable(one.ways for one in found)) or 'none'}"):
            others = begin(found, chosen.max_tokens, running)
        url, asking = running.enter_context(service(served, chosen.max_tokens, console))
        contenders = ours(asking) | others
        for temperature in chosen.temperatures:
            if 1 in chosen.streams:
                doing = f"One stream, {len(contenders)} contenders, temperature {temperature:g}"
                with step(console, doing, doing, len(asked) * len(contenders)) as shown:
                    measured.append(measure(contenders, warm, asked, temperature, shown))
            loads += under_load(url, served.config.name, asked, temperature, chosen, console)
    chosen.config = public_name(chosen.config)
    save(chosen, "real_model", f"{page(measured, loads, told)}\n", as_json(measured, loads), notes=told)
    if wrong := differing(measured, loads):
        raise SystemExit(f"answers differ: {'; '.join(wrong)}")
