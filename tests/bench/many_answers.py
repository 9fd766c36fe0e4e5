"""What many more answers bring: a draft of a Llama that learned from a thousand, or from seventy thousand.

    python -m tests.bench.many_answers --answers DIR --work DIR --device cuda \
        --numbers 1000 3000 11000 34000 70000 --steps 2000 2000 2000 2000 3000

DIR of the answers has `prompts.msgpack`, token ids of the prompts that are learned from, and held-out answers as shards
of the splits stop, promotion and test. The target answers in large batches: every prompt at temperatures 0, 0.7 and 1,
then again at 0.7 and 1, then prompts that it has written itself, as it continues the beginning that all prompts share.

Each number takes the first of these answers, so that fewer are part of more. Drafts are alike but for this: two layers
of the target and the ids that its answers use most. They are trained beside each other, each in a process of its own,
and judged by exact replays of the held-out answers, with their whole head and with a smaller one. What is not done by
the deadline is judged by its best weights until then.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import torch

from core.atomic_files import replace as write
from core.distill.alignment import AlignmentRecipe, Evaluation, TrainingStep, align
from core.distill.dataset import DistillationSet
from core.distill.draft_making import evenly, make_from_layers
from core.model.causal_lm import CausalLM, load_draft_model
from core.model.config import ModelConfig
from core.model.draft_vocabulary import DraftVocabulary, filled_up
from core.model_names import hub_id, locate
from core.replay.replay import NUM_SPECULATIVE_TOKENS, AcceptanceCounts, Terms
from core.replay.vocabulary_size import score_vocabularies
from core.text.tokenizer import load_tokenizer
from core.text.vocabulary import same_id_map
from core.traces.store import Trace, traces_of
from tests.bench import machine
from tests.bench.many_answers_page import SHIPPED, TEMPERATURES, plot, points, table
from tests.bench.many_answers_target import NEWS, WIDTHS, Request, Target
from tests.bench.output import save

_COUNTED = 4096  # answers that choose the ids of the head
WHOLE, CUT = "whole", "cut"  # the head of a draft
_EVALUATIONS = 5  # of a training run, each with a checkpoint
_GRACE = 120.0  # seconds after the deadline in which what is trained is judged


class Result(msgspec.Struct, frozen=True):
    """Of a draft: its held-out acceptance while it learned, and by head the counts of judging answers."""

    curve: list[Evaluation]
    counts: dict[str, list[AcceptanceCounts]]


class Study:
    """The target, the prompts and what judges; and where results lie."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self.chosen, self.target, self.device = chosen, Path(locate(chosen.target)), torch.device(chosen.device)
        self.terms = Terms(
            NUM_SPECULATIVE_TOKENS, same_id_map(self.target, self.target), ModelConfig.load(self.target).context
        )
        self.eos_ids = load_tokenizer(self.target).eos_ids
        self.answers: Path = chosen.work / "answers.safetensors"
        self.untrained: Path = chosen.work / "untrained"
        self.smaller_head: Path = chosen.work / "smaller_head"

    def prompts(self) -> list[tuple[int, ...]]:
        content = (self.chosen.answers / "prompts.msgpack").read_bytes()
        given = msgspec.msgpack.decode(content, type=list[tuple[int, ...]])
        return [prompt for prompt in given[: self.chosen.prompts] if len(prompt) <= WIDTHS[-1]]

    def held_out(self, *splits: str) -> list[Trace]:
        files = (file for split in splits for file in sorted(self.chosen.answers.glob(f"{split}-*.parquet")))
        return [trace for file in files for trace in traces_of(file.read_bytes())]

    def judging(self) -> list[Trace]:
        return self.held_out("promotion", "test")

    def result(self, name: str) -> Path:
        return Path(self.chosen.work) / f"{name}.json"


def make_answers(study: Study, until: float) -> None:
    """All answers, and the draft that is to be trained."""
    chosen, rng = study.chosen, random.Random(0)
    torch.manual_seed(0)
    target, given = Target(study.target, study.device, study.eos_ids, chosen), study.prompts()
    requests = _shuffled(given, TEMPERATURES, rng)
    more = _shuffled(given, [*TEMPERATURES[1:]] * chosen.more, rng)
    counted = target.answer(requests[:_COUNTED], None, until)
    ids = [filled_up(_uses(counted), size, study.terms.num_valid, study.eos_ids) for size in chosen.vocabularies]
    _make_draft(study, *ids)
    written = target.write(given, {*given, *(trace.prompt_ids for trace in study.judging())}, chosen.written)
    own = [Request(prompt, TEMPERATURES[place % len(TEMPERATURES)]) for place, prompt in enumerate(written)]
    answers = target.answer([*requests, *more, *own], ids[0], until)
    answers.save(study.answers)
    parts = f"{len(requests)} and {len(more)} to prompts that were given, {len(own)} to own"
    print(f"{len(answers.lengths)} answers with {len(answers.ids)} tokens ({parts})", flush=True)


def learn(study: Study, number: int, steps: int, until: float) -> tuple[Path, list[Evaluation]]:
    """The draft that learned from the first so many answers, and its evaluations; at `until` it stops."""
    place, checkpoint = study.chosen.work / f"answers-{number}", study.chosen.work / f"answers-{number}.pt"
    data, stop = DistillationSet.load(study.answers).take(range(number)), study.held_out("stop")
    recipe = AlignmentRecipe(
        rank=None,
        loss="lk",
        learning_rate=study.chosen.learning_rate,
        steps=steps,
        budget=study.chosen.budget,
        evaluate_every=max(1, steps // _EVALUATIONS),
        products="bfloat16",
    )

    def train(recipe: AlignmentRecipe) -> list[Evaluation]:
        found = align(
            study.untrained,
            data,
            stop,
            study.terms,
            recipe,
            checkpoint=checkpoint,
            destination=place,
            on_step=_Shown(number, until).show,
            device=study.device,
            target=study.target,
        )
        return list(found.curve)

    try:
        return place, train(recipe)
    except _OutOfTime:
        return place, train(replace(recipe, steps=0))  # the best weights of the checkpoint


def work(study: Study, name: str, steps: int, until: float) -> None:
    """Train and judge one draft, and leave its result."""
    torch.set_num_threads(study.chosen.threads)
    draft, curve = Path(locate(study.chosen.shipped)), list[Evaluation]()
    if name != SHIPPED:
        draft, curve = learn(study, int(name), steps, until)
    began = time.time()
    write(
        study.result(name),
        msgspec.json.encode(Result(curve, judge(study, _loaded(study, draft, study.device), study.judging()))),
    )
    print(f"judged in {time.time() - began:.1f} s", flush=True)


def work_beside(study: Study, names: Mapping[str, int], until: float, argv: Sequence[str]) -> None:
    """Do the work of all names, with their steps, at once, each in a process of its own that writes into a log.

    A process is called as this one was, with `argv`.
    """
    environment = os.environ | {"OMP_NUM_THREADS": str(study.chosen.threads)}
    logs = {name: study.chosen.work / f"{name}.log" for name in names}
    processes = {}
    for name, steps in names.items():
        command = [sys.executable, "-m", "tests.bench.many_answers", *argv, "--only", name]
        command += ["--only-steps", str(steps), "--until", str(until)]
        with logs[name].open("w") as log:
            processes[name] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
    while any(process.poll() is None for process in processes.values()) and time.time() < until + _GRACE:
        time.sleep(NEWS)
        print(f"  {' | '.join(f'{name}: {_last_line(log)}' for name, log in logs.items())}", flush=True)
    for name, process in processes.items():
        process.kill()
        if process.wait():
            print(f"{name}: no result\n{logs[name].read_text()[-2000:]}", flush=True)


def report(study: Study, names: Sequence[str]) -> None:
    """Write the page, the figures and the plot of all results that are there."""
    judging = study.judging()
    read = {name: study.result(name).read_bytes() for name in names if study.result(name).exists()}
    results = {name: msgspec.json.decode(content, type=Result) for name, content in read.items()}
    by_head = {
        head: list(points(judging, {name: of.counts[head] for name, of in results.items() if head in of.counts}))
        for head in (WHOLE, CUT)
    }
    whole, cut = study.chosen.vocabularies
    titles = {WHOLE: f"The whole head, of {whole:,} ids:", CUT: f"The head cut to {cut:,} ids:"}
    tables = [line for head, title in titles.items() for line in (title, "", *table(by_head[head]), "")]
    found = {
        "curves": {name: result.curve for name, result in results.items()},
        "points": {head: [point._asdict() for point in of_head] for head, of_head in by_head.items()},
    }
    text = "\n".join([*tables, machine.line(), ""])
    facts = {"target": hub_id(study.chosen.target_name), "device": _device_name(study.device)}
    out = save(study.chosen, "many_answers", text, found, **facts)
    plot(by_head[WHOLE], out / "many_answers.png")


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.many_answers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--answers", type=Path, required=True, help="directory of prompts and held-out answers")
    parser.add_argument("--work", type=Path, required=True, help="directory in which answers and drafts are kept")
    parser.add_argument("--numbers", type=int, nargs="+", default=[1000, 3000, 11000, 34000, 70000])
    parser.add_argument("--steps", type=int, nargs="+", default=[2000], help="of training, one for each number or all")
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--budget", type=int, default=8192, help="padded tokens of a step")
    parser.add_argument("--layers", type=int, default=2, help="of the target, the first and the last among them")
    parser.add_argument("--vocabularies", type=int, nargs=2, default=[8192, 4096], help="ids of the head, and of a cut")
    parser.add_argument("--batch", type=int, default=1024, help="prompts that are answered at once")
    parser.add_argument("--max-tokens", type=int, default=128, help="of an answer")
    parser.add_argument("--prompts", type=int, help="the first so many of those that are given; all by default")
    parser.add_argument("--more", type=int, default=3, help="further answers to each prompt at 0.7, and at 1")
    parser.add_argument("--written", type=int, default=36000, help="prompts that the target writes")
    parser.add_argument("--target", default="smollm2:target")
    parser.add_argument("--target-name", default="smollm2:target", help="what drafts call their target")
    parser.add_argument("--shipped", default="smollm2:draft", help="draft that stands beside them; '' for none")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--no-graph", dest="graph", action="store_false", help="draw without a CUDA graph")
    parser.add_argument("--threads", type=int, default=2, help="of each process that trains")
    parser.add_argument("--answer-seconds", type=float, default=1e9, help="after which no more is answered")
    parser.add_argument("--deadline", type=float, default=1e9, help="seconds after which no more is learned")
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/many_answers"))
    for hidden in ("--only", "--only-steps", "--until"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    argv = sys.argv[1:] if argv is None else argv
    chosen, began = options().parse_args(argv), time.time()
    chosen.work.mkdir(parents=True, exist_ok=True)
    study = Study(chosen)
    if chosen.only is not None:
        work(study, chosen.only, int(chosen.only_steps), float(chosen.until))
        return
    if not study.answers.exists():
        make_answers(study, began + chosen.answer_seconds)
    if study.device.type == "cuda":
        torch.cuda.empty_cache()
    print(f"{time.time() - began:.0f} s until the training", flush=True)
    names = dict(_names(study))
    work_beside(study, names, began + chosen.deadline, argv)
    report(study, list(names))
    print(f"{time.time() - began:.0f} s in all", flush=True)


def _names(study: Study) -> Iterator[tuple[str, int]]:
    """What is to be judged, with the steps of its training, in the order of what it learned from."""
    chosen, there = study.chosen, len(DistillationSet.load(study.answers).lengths)
    if chosen.shipped and any(Path(locate(chosen.shipped)).glob("*.safetensors")):
        yield SHIPPED, 0
    elif chosen.shipped:
        print(f"{chosen.shipped} is not there, so it is left out", flush=True)
    steps = chosen.steps * len(chosen.numbers) if len(chosen.steps) == 1 else chosen.steps
    for number, of_number in zip(chosen.numbers, steps, strict=True):
        yield str(min(number, there)), of_number


class _OutOfTime(Exception):
    """Ends a training."""


class _Shown:
    """Prints the steps of a training, and ends it when its time is over."""

    def __init__(self, number: int, until: float) -> None:
        self._number, self._until, self._began = number, until, time.time()

    def show(self, step: TrainingStep) -> None:
        if step.acceptance is not None or step.step % 50 == 0 or step.step == 10:
            reached = "" if step.acceptance is None else f", acceptance {step.acceptance:.3f}"
            seconds = time.time() - self._began
            print(f"{step.step} of {step.steps} steps, loss {step.loss:.3f}{reached}, {seconds:.0f} s", flush=True)
        if time.time() > self._until:
            raise _OutOfTime


def _shuffled(prompts: Sequence[tuple[int, ...]], temperatures: Sequence[float], rng: random.Random) -> list[Request]:
    requests = [Request(prompt, temperature) for prompt in prompts for temperature in temperatures]
    return rng.sample(requests, len(requests))


def _uses(answers: DistillationSet) -> Counter[int]:
    """How often each id is in an answer."""
    pairs = zip(answers.tokens.split(answers.lengths.tolist()), answers.prompt_lengths.tolist(), strict=True)
    return Counter(token for tokens, prompt in pairs for token in tokens[prompt:].tolist())


def _make_draft(study: Study, head_ids: Sequence[int], smaller: Sequence[int]) -> None:
    config = ModelConfig.load(study.target)
    layers = evenly(config.num_layers, study.chosen.layers)
    make_from_layers(study.target, hub_id(study.chosen.target_name), layers, head_ids, study.untrained)
    study.smaller_head.mkdir(exist_ok=True)
    DraftVocabulary.from_ids(smaller, config.vocab_size).save(study.smaller_head)


def _loaded(study: Study, draft: Path, device: torch.device) -> CausalLM:
    return load_draft_model(
        draft, draft, dtype=torch.bfloat16, target=study.target, device=device, exact=device.type == "cpu"
    )


def judge(study: Study, model: CausalLM, judging: Sequence[Trace]) -> dict[str, list[AcceptanceCounts]]:
    """The counts of all judging answers, with the head as it is, and cut where it holds all of the smaller one."""
    smaller = DraftVocabulary.load(study.smaller_head)
    own = range(model.vocab_size) if model.head_ids is None else model.head_ids.tolist()
    heads = [None, smaller] if set(own) >= set(smaller.ids.tolist()) else [None]
    found = score_vocabularies(model, heads, judging, study.terms, [None] * len(heads))
    return dict(zip((WHOLE, CUT), found, strict=False))


def _last_line(log: Path) -> str:
    return (log.read_text().rstrip().splitlines() or ["begins"])[-1][:80]


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


if __name__ == "__main__":
    main()
