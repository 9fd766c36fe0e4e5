"""The contenders of `vllm_target`, their turns, and the answers that must be equal."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import yaml
from rich.console import Console

from core.errors import TaskSpecError
from core.model.loader import resolve
from core.model_names import locate
from core.text.tokenizer import load_tokenizer
from serve_app.client import AS_ROUTED, OFF, Client, Speculation
from serve_app.config import load_config
from serve_app.terminal.progress import Step, step
from tests.bench import machine
from tests.bench.engines import Answered
from tests.bench.output import header, save
from tests.bench.real_model_page import Load, Measured, Question
from tests.bench.real_model_run import Competing, Contender, Served, begin, held_out_questions, measure, under_load
from tests.bench.rival_process import Answering, Job
from train_jobs.config import load_config as load_retraining

VLLM, NGRAM = "vLLM", "vLLM, its n-gram drafts"
OVER_PLAIN, OVER = "TaskSpec over vLLM, no drafts", "TaskSpec over vLLM"
OWN_PLAIN, OWN = "TaskSpec, no drafts", "TaskSpec"
MODES: dict[str, Speculation] = {
    "as the service decides": AS_ROUTED,
    "1 token drafted": {"num_speculative_tokens": 1},
    "6 tokens drafted": {"num_speculative_tokens": 6},
}
KILLED = "as it decides, the draft killed every 20 s"
TEMPERATURES = (0.0, 0.7, 1.0)
AT_ONCE = 8
ADDRESS = re.compile(r"OpenAI base_url: (\S+)/v1 +model: (\S+)")
IN_VLLM = {"enforce_eager": True, "max_model_len": 2048}
LOOKUP = {"method": "ngram", "num_speculative_tokens": 6, "prompt_lookup_max": 4, "prompt_lookup_min": 2}


@dataclass(frozen=True)
class Vllm:
    """vLLM itself, in this process: plainly, or with the drafts of its `speculative_config`."""

    directory: str
    dtype: str
    threads: int
    eos_ids: tuple[int, ...]
    drafts: Mapping[str, object] | None = None

    def load(self) -> Answering:
        os.environ |= {
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_LOGGING_LEVEL": "ERROR",
            "OMP_NUM_THREADS": str(self.threads),
        }
        torch: Any = import_module("torch")
        torch.set_num_threads(self.threads)
        vllm: Any = import_module("vllm")
        engine = vllm.LLM(
            model=self.directory,
            dtype=self.dtype,
            skip_tokenizer_init=True,
            max_num_seqs=16,
            kv_cache_memory_bytes=1 << 30,
            speculative_config=None if self.drafts is None else dict(self.drafts),
            **IN_VLLM,
        )
        return lambda job: self._answer(engine, vllm.SamplingParams, job)

    def _answer(self, engine: Any, params: Any, job: Job) -> Answered:
        how = params(
            temperature=job.temperature,
            seed=job.seed,
            max_tokens=job.max_tokens,
            stop_token_ids=list(self.eos_ids),
            detokenize=False,
        )
        began = time.perf_counter()
        [found] = engine.generate([{"prompt_token_ids": list(job.tokens)}], how, use_tqdm=False)
        tokens = tuple(found.outputs[0].token_ids)
        return Answered(tokens, time.perf_counter() - began, 0.0, len(tokens) - 1, 0, 0)


class Running(NamedTuple):
    """A service in a process of its own."""

    url: str
    model: str
    process: psutil.Process


@contextmanager
def serving(config: str | Path) -> Iterator[Running]:
    """`taskspec serve`, as users start it; it ends with the block."""
    command = [str(Path(sys.executable).parent / "taskspec"), "serve", "--config", str(config), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    told = []
    try:
        for line in process.stdout:
            told.append(line)
            if found := ADDRESS.search(line):
                threading.Thread(target=process.stdout.read, daemon=True).start()  # or the pipe would fill
                yield Running(found[1], found[2], psutil.Process(process.pid))
                return
        raise TaskSpecError(f"it ended before it served:\n{''.join(told)}")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


async def answered(
    running: Running, asked: Sequence[Question], speculation: Speculation, max_tokens: int, shown: Step
) -> list[tuple[int, ...]]:
    """The tokens of all answers, some prompts at a time."""
    gate = asyncio.Semaphore(AT_ONCE)
    async with Client(f"{running.url}/v1") as client:

        async def one(question: Question) -> tuple[int, ...]:
            body = {
                "model": running.model,
                **question.prompt.chat_fields,
                "temperature": TEMPERATURES[question.number % len(TEMPERATURES)],
                "seed": question.number,
                "max_tokens": max_tokens,
                "speculation": dict(speculation),
            }
            async with gate:
                answer = await client.ask(body)
            shown.reach(shown.done + 1)
            return tuple(answer.tokens)

        return list(await asyncio.gather(*map(one, asked)))


@contextmanager
def killing_drafts(running: Running, every: float = 20.0) -> Iterator[list[int]]:
    """Kills the replicas of drafts again and again; whom it has killed."""
    killed, ended = list[int](), threading.Event()

    def kill() -> None:
        while not ended.wait(every):
            for child in running.process.children(recursive=True):
                with suppress(psutil.Error):  # it may have ended by itself
                    if "ServeReplica:draft-" in " ".join(child.cmdline()):
                        child.kill()
                        killed.append(child.pid)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        ended.set()
        thread.join()


class Equal(NamedTuple):
    """How many answers of a mode were those without drafts; `killed` replicas died meanwhile."""

    mode: str
    equal: int
    asked: int
    killed: int = 0


def compare(running: Running, asked: Sequence[Question], max_tokens: int, shown: Step) -> list[Equal]:
    def tokens(speculation: Speculation) -> list[tuple[int, ...]]:
        return asyncio.run(answered(running, asked, speculation, max_tokens, shown))

    plain = tokens(OFF)
    found = []
    for mode, speculation in MODES.items():
        alike = sum(ours == theirs for ours, theirs in zip(tokens(speculation), plain, strict=True))
        found.append(Equal(mode, alike, len(asked)))
    with killing_drafts(running) as killed:
        alike = sum(ours == theirs for ours, theirs in zip(tokens(AS_ROUTED), plain, strict=True))
    return [*found, Equal(KILLED, alike, len(asked), len(killed))]


def page(equal: Sequence[Equal], measured: Sequence[Measured], loads: Mapping[str, Sequence[Load]]) -> str:
    """Markdown."""
    lines = header(("over HTTP, eight at a time", "answers as without drafts", "replicas killed"))
    lines += [f"| {one.mode} | {one.equal} of {one.asked} | {one.killed} |" for one in equal]
    lines += ["", *header(("temperature", "contender", "ms per token", "times vLLM (95 %)", "tokens per pass"))]
    for at in measured:
        for name in at.contenders:
            passes = "" if name in (VLLM, NGRAM) else f"{at.tokens_per_pass(name):.2f}"
            ratio, each = at.durations.overall(name, VLLM), 1e3 * at.seconds_per_token(name)
            lines.append(f"| {at.temperature:g} | {name} | {each:.1f} | {ratio} | {passes} |")
    lines += ["", *header(("streams", "temperature", "service", "tokens/s, no drafts", "with", "equal answers"))]
    for name, of in loads.items():
        for load in of:
            rates = " | ".join(f"{figures.tokens_per_s or 0:.0f}" for figures in (load.plain, load.speculation))
            alike = f"{load.paired.equal} of {load.paired.pairs}"
            lines.append(f"| {load.streams} | {load.temperature:g} | {name} | {rates} | {alike} |")
    return "\n".join(lines)


def as_json(
    equal: Sequence[Equal], measured: Sequence[Measured], loads: Mapping[str, Sequence[Load]]
) -> dict[str, object]:
    return {
        "equal": [one._asdict() for one in equal],
        "temperatures": [
            {
                "temperature": at.temperature,
                "contenders": {
                    name: {
                        "seconds_per_token": at.seconds_per_token(name),
                        "times_vllm": at.durations.overall(name, VLLM)._asdict(),
                    }
                    for name in at.contenders
                },
            }
            for at in measured
        ],
        "streams": {
            name: [
                {"streams": load.streams, "plain": load.plain.tokens_per_s, "drafts": load.speculation.tokens_per_s}
                for load in of
            ]
            for name, of in loads.items()
        },
    }


def configurations(chosen: argparse.Namespace) -> tuple[Path, Path]:
    """Files of the service with its target in vLLM, and with its own decoder, on as many threads."""
    chosen.out.mkdir(parents=True, exist_ok=True)
    plain = load_config(chosen.config).model_dump(mode="json", exclude_unset=True)
    files = []
    for name, more in (("vllm", {"decoder": "vllm", "vllm": IN_VLLM}), ("own", {})):
        file = chosen.out / f"{name}.yaml"
        file.write_text(yaml.safe_dump(plain | {"target": plain["target"] | {"threads": chosen.threads} | more}))
        files.append(file)
    return files[0], files[1]


def run(chosen: argparse.Namespace, console: Console) -> None:
    """Measure what the options ask for, and write it."""
    config = load_config(chosen.config)
    directory = resolve(locate(config.target.model))
    retraining = load_retraining(chosen.retraining)
    files = len(retraining.collect.files or ())
    asked = held_out_questions(retraining, max(chosen.per_task, -(-chosen.asked // files)))
    timed, compared = asked[: chosen.per_task * files], asked[: chosen.asked]
    eos_ids = tuple(load_tokenizer(directory).eos_ids)
    vllm = (Vllm(str(directory), config.target.dtype, chosen.threads, eos_ids, drafts) for drafts in (None, LOOKUP))
    rivals = [Competing(one, {name: None}) for one, name in zip(vllm, (VLLM, NGRAM), strict=True)]
    over, own = configurations(chosen)
    measured, loads = list[Measured](), dict[str, list[Load]]()
    with ExitStack() as running:
        with step(console, "Starting the service over vLLM"):
            service = running.enter_context(serving(over))
        total = len(compared) * (len(MODES) + 2)
        with step(console, "Comparing answers", "Comparing answers", total) as shown:
            equal = compare(service, compared, chosen.max_tokens, shown)
        with step(console, "Starting vLLM twice, and the service with its own decoder"):
            others = begin(rivals, chosen.max_tokens, running)
            ours = running.enter_context(serving(own))
        asking = {name: Served(one.url, one.model, chosen.max_tokens) for name, one in ((OVER, service), (OWN, ours))}
        contenders: dict[str, Contender] = dict(others)
        for plain, name in ((OVER_PLAIN, OVER), (OWN_PLAIN, OWN)):
            served = asking[name]
            contenders[plain] = lambda question, heat, served=served: served.answer(question, heat, OFF)
            contenders[name] = lambda question, heat, served=served: served.answer(question, heat, AS_ROUTED)
        for temperature in chosen.temperatures:
            doing = f"One stream, {len(contenders)} contenders, temperature {temperature:g}"
            with step(console, doing, doing, len(timed) * len(contenders)) as shown:
                measured.append(measure(contenders, timed[:1], timed, temperature, shown))
        for name, one in ((OVER, service), (OWN, ours)):
            loads[name] = under_load(one.url, one.model, timed, 0.0, chosen, console)
    notes = [f"{len(timed)} prompts timed, answers to {chosen.max_tokens} tokens.", machine.line()]
    text = "\n\n".join([page(equal, measured, loads), "\n".join(f"- {note}" for note in notes)])
    save(chosen, "vllm_target", f"{text}\n", as_json(equal, measured, loads), notes=notes)
    if wrong := [one.mode for one in equal if one.equal < one.asked]:
        raise SystemExit(f"answers differ: {'; '.join(wrong)}")
