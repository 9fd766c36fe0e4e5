"""The first token of long prompts to a real model: ours over HTTP, transformers, llama.cpp, and what arithmetic allows.

    python -m tests.bench.prefill [--prompt-tokens 400] [--turns 24] [--retraining train_jobs/configs/smollm2.yaml]

Every prompt begins with another one of the test split, goes on with those after it, and is cut to the same number of
tokens. In a turn every contender is asked a prompt that nobody was asked before, so nothing that a service remembers of
prompts helps. Their order rotates, and with it who gets which prompt. Ours is asked without speculation, and as the
service decides: then router and draft read the prompt beside the target.

The floor is what the prompt's products and sums take at the rate at which torch multiplies large matrices of bfloat16
on all cores: two for each weight of the layers and token, those of the causal attention, and the head for one token.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import cycle, islice
from pathlib import Path

import torch
from matplotlib.figure import Figure
from rich.console import Console

from core.model.config import ModelConfig
from core.text.prompts import Message, Prompt
from core.text.tokenizer import Tokenizer
from serve_app.config import load_config
from serve_app.deployments.models.served_models import with_bundle
from serve_app.terminal.progress import Step, step
from tests.bench import machine
from tests.bench.bars import NEUTRAL, bars
from tests.bench.output import header, save
from tests.bench.paired import Durations, rotated
from tests.bench.real_model_page import DRAFT, PLAIN, Question
from tests.bench.real_model_rivals import GENERATE, LLAMA_CPP
from tests.bench.real_model_run import Contender, begin, held_out_questions, ours, rivals, service
from train_jobs.config import load_config as load_retraining
from train_jobs.work.models import model_directory, target_tokenizer

CONTENDERS = (PLAIN, DRAFT, GENERATE, LLAMA_CPP)
MAX_TOKENS = 16
WARM = 3  # turns before those that count
MOST = 1000  # prompts of a file
_WORD = "word"  # of a prompt that shows how many tokens the template adds
SIDE, PRODUCTS = 4096, 5  # of the matrices that are multiplied, and how often


def long_questions(short: Sequence[Question], tokenizer: Tokenizer, length: int) -> list[Question]:
    """Prompts of about `length` tokens, each of which begins otherwise: as many as there are short ones."""
    texts = [question.prompt.chat_fields["messages"][-1]["content"] for question in short]
    around = len(tokenizer.encode_chat([{"role": "user", "content": _WORD}])) - len(tokenizer.encode_answer(_WORD))
    found = []
    for number, question in enumerate(short):
        text = texts[number]
        for following in islice(cycle(texts), number + 1, None):
            if len(tokens := tokenizer.encode_answer(text)) >= length - around:
                break
            text = f"{text}\n\n{following}"
        content = tokenizer.raw.decode(tokens[: length - around])
        prompt = Prompt(messages=(Message(role="user", content=content),))
        found.append(
            Question(number, prompt, tuple(tokenizer.encode_chat(prompt.chat_fields["messages"])), question.of)
        )
    return found


def measure(
    contenders: Mapping[str, Contender], questions: Sequence[Question], turns: int, shown: Step
) -> tuple[Durations, list[int]]:
    """Seconds to the first token of every contender at every turn, and the lengths of the prompts that counted."""
    durations, lengths, fresh = Durations(), list[int](), iter(questions)
    for turn in range(-WARM, turns):
        for name in rotated(list(contenders), turn):
            question = next(fresh)
            seconds = contenders[name](question, 0.0).answered.first
            shown.reach(shown.done + 1)
            if turn >= 0:
                durations.add(name, turn, seconds)
                lengths.append(len(question.tokens))
    return durations, lengths


def prompt_flops(config: ModelConfig, tokens: int) -> int:
    """Products and sums of a prompt's pass up to its first token."""
    of_weights = 2 * tokens * config.num_layers * config.layer_weights + 2 * config.hidden_size * config.vocab_size
    pairs = tokens * (tokens + 1) // 2  # of a token and one that it sees
    return of_weights + 4 * pairs * config.num_layers * config.num_heads * config.head_dim


def peak_flops(threads: int, side: int = SIDE) -> float:
    """Products and sums a second of torch's bfloat16 at its best."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    ours, theirs = (torch.randn(side, side).to(torch.bfloat16) for _ in range(2))
    seconds = []
    for _ in range(1 + PRODUCTS):  # the first lays out memory
        began = time.perf_counter()
        torch.mm(ours, theirs)
        seconds.append(time.perf_counter() - began)
    torch.set_num_threads(before)
    return 2 * side**3 / min(seconds[1:])


def page(durations: Durations, floor: float) -> str:
    """Markdown."""
    lines = header(["contender", "first token, ms (quartiles)", f"times {GENERATE} (95 %)", "times the floor"])
    for name in durations.contenders:
        median, low, high = durations.quartiles(name)
        quartiles = f"{1e3 * median:.0f} ({1e3 * low:.0f} to {1e3 * high:.0f})"
        lines.append(f"| {name} | {quartiles} | {durations.ratio(name, GENERATE)} | {median / floor:.1f} |")
    return "\n".join([*lines, f"| the floor | {1e3 * floor:.0f} | | 1.0 |"])


def plot(durations: Durations, file: Path) -> None:
    """Write a PNG: how many times as soon as transformers' the first token is there."""
    figure = Figure(figsize=(5.2, 2.2), layout="constrained", dpi=150)
    panel = figure.subplots()
    bars(panel, {name: durations.ratio(name, GENERATE) for name in durations.contenders})
    panel.axvline(1.0, color=NEUTRAL, linewidth=0.6)
    panel.set_xlabel(f"first token, times as soon as {GENERATE}", fontsize=8)
    figure.savefig(file, metadata={"Software": None})


def options() -> argparse.ArgumentParser:
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(prog="python -m tests.bench.prefill", description=(__doc__ or "").splitlines()[0])
    retraining = Path("train_jobs/configs/smollm2.yaml")
    parser.add_argument("--retraining", type=Path, default=retraining, help="its `collect.files` have the prompts")
    parser.add_argument("--config", default="smollm2", help="of the service: a shipped name or a YAML file")
    parser.add_argument("--prompt-tokens", type=int, default=400)
    parser.add_argument("--turns", type=int, default=24, help="prompts of each contender")
    parser.add_argument("--their-threads", type=int, default=cores, help="of transformers and llama.cpp")
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/prefill"))
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    chosen, console = options().parse_args(argv), Console(stderr=True)
    with step(console, "Reading target and prompts, multiplying matrices"):
        served, retraining = with_bundle(load_config(chosen.config)), load_retraining(chosen.retraining)
        target, tokenizer = model_directory(served.config.target.model), target_tokenizer(retraining)
        questions = long_questions(held_out_questions(retraining, MOST), tokenizer, chosen.prompt_tokens)
        peak = peak_flops(chosen.their_threads)
    with ExitStack() as running:
        with step(console, "Starting others"):
            others = begin(rivals(served, str(target), chosen.their_threads), MAX_TOKENS, running)
        _, asking = running.enter_context(service(served, MAX_TOKENS, console))
        contenders = {name: one for name, one in (ours(asking) | others).items() if name in CONTENDERS}
        turns = min(chosen.turns, len(questions) // len(contenders) - WARM)
        if turns < 1:
            raise SystemExit(f"{len(questions)} prompts in the test split are too few")
        with step(console, "First tokens", total=(WARM + turns) * len(contenders)) as shown:
            durations, lengths = measure(contenders, questions, turns, shown)
    tokens = round(statistics.mean(lengths))
    flops = prompt_flops(ModelConfig.load(target), tokens)
    facts = {"turns_measured": turns, "mean_prompt_tokens": tokens, "prompt_flops": flops, "peak_flops": peak}
    about = f"{turns} prompts of {tokens} tokens for each; {flops / 1e9:.0f} billion products and sums a prompt"
    text = f"{page(durations, flops / peak)}\n\n{about}, {peak / 1e9:.0f} a second at best. {machine.line()}\n"
    found = {name: durations.quartiles(name) for name in durations.contenders}
    times = {name: durations.ratio(name, GENERATE)._asdict() for name in durations.contenders}
    out = save(chosen, "prefill", text, {"seconds": found, "times_transformers": times, "floor": flops / peak}, **facts)
    plot(durations, out / "prefill.png")


if __name__ == "__main__":
    main()
