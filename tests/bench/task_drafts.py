"""Where task drafts pay, on a real model: narrow tasks, few or many of them, drafts that cost much or little.

    python -m tests.bench.task_drafts --work DIR --prompts DIR --general DIR
    python -m tests.bench.task_drafts --work DIR --quick                      # a minute: whether all of it runs

The target answers the prompts of 24 narrow tasks (`tests.bench.narrow_tasks`), 300 of each to learn from and 60 held
out. For the first 4, 12 and 24 tasks, each shape of draft and each seed there are these drafts:

    un-adapted  a draft of the shape that knows general traffic
    base        the same, trained on all tasks
    continued   the base, trained on for as many steps as all adapters together
    mixed       one adapter of the base for all tasks, in as many steps
    task        an adapter of the base for each task

Each is replayed with its whole head; with its own, the ids that the answers of its tasks use; and with a small one, the
512 that they use most. A draft is judged by its tokens a second in times plain decoding: exact replays of the held-out
answers, and costs that are measured here. So the first run on a work directory needs a quiet machine when it comes to
the costs; delete `costs.json` there to have them measured again. Beside it: what a router costs that gives some answers
the wrong task's draft, and general traffic.

--general is the collect directory of a retraining with the same target. One process does everything on one thread and
keeps what is complete: stop it at any time, the same command goes on. A training run is resumed at its last quarter.
`--tasks 12 --seeds 0` does a part, which the whole study then has no need to repeat.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch

from core.model_names import locate
from tests.bench import machine
from tests.bench.narrow_tasks import TASKS
from tests.bench.output import save
from tests.bench.task_drafts_answers import Answers, Sizes
from tests.bench.task_drafts_page import as_json, page, plot
from tests.bench.task_drafts_speed import Costs, Outcome, measure, outcome
from tests.bench.task_drafts_study import PRODUCTS, Case, General, Shape, Shown, Steps, Study
from train_jobs.retrain.pipeline import exclusive
from train_jobs.work.artefacts import read_json, write_json


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.task_drafts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--work", type=Path, required=True, help="directory in which all that is complete is kept")
    parser.add_argument("--prompts", type=Path, help="where the sets of prompts lie that some tasks read")
    parser.add_argument("--general", type=Path, help="answers of general traffic; without, shapes begin untrained")
    parser.add_argument("--target", default="smollm2:target")
    parser.add_argument("--shipped", default="smollm2:draft", help="draft that knows general traffic; '' for none")
    parser.add_argument("--tasks", type=int, nargs="+", default=[4, 12, 24], help="numbers of tasks")
    parser.add_argument("--layers", type=int, nargs="+", default=[2, 1])
    parser.add_argument("--widths", type=int, nargs="+", default=[0, 256], help="0 is the target's own")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--learn-from", type=int, default=Sizes().train, help="answers of each task")
    parser.add_argument("--steps", type=int, default=100, help="of training, for each task")
    parser.add_argument("--general-steps", type=int, default=600, help="of training on general traffic")
    parser.add_argument("--answers-only", action="store_true", help="train nothing yet")
    parser.add_argument("--quick", action="store_true", help="two tasks, few answers, few steps, one small shape")
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/task_drafts"))
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    chosen = options().parse_args(argv)
    sizes = Sizes(train=chosen.learn_from)
    if chosen.quick:
        sizes = Sizes(test=3, stop=2, train=6, shard=6, longest_answer=12)
        chosen.tasks, chosen.layers, chosen.widths, chosen.seeds = [2], [1], [64], [0]
        chosen.steps, chosen.general_steps = 2, 2
    if max(chosen.tasks) > len(TASKS):
        raise SystemExit(f"--tasks: there are {len(TASKS)}")
    torch.set_num_threads(1)
    with exclusive(chosen.work):
        _settle(chosen)
        answers = Answers(chosen.work / "answers", chosen.target, chosen.prompts, sizes)
        collect(answers, max(chosen.tasks))
        if not chosen.answers_only:
            write(chosen, train(chosen, answers))


def collect(answers: Answers, tasks: int) -> None:
    """Make the shards that are missing."""
    missing, began = answers.missing(TASKS[:tasks]), time.monotonic()
    print(f"answers of {tasks} tasks: {len(missing)} shards to make", flush=True)
    for done, shard in enumerate(missing, 1):
        answers.make(shard, lambda _: None)
        each = (time.monotonic() - began) / done
        print(f"  {shard.name}: {each:.0f} s each, {each * (len(missing) - done) / 60:.0f} min left", flush=True)


def train(chosen: argparse.Namespace, answers: Answers) -> list[Outcome]:
    """Train and replay what is missing; the outcomes of all."""
    shapes = [Shape(layers, width or None) for width, layers in product(chosen.widths, chosen.layers)]
    by_seed = [Case(tasks, shape, seed) for seed, tasks, shape in product(chosen.seeds, sorted(chosen.tasks), shapes)]
    general = General(chosen.general, chosen.work)
    shown = Shown()
    steps = Steps(chosen.general_steps, chosen.steps)
    study = Study(chosen.work, answers, general, chosen.target, chosen.shipped or None, steps, shown)
    shown.steps = sum(map(study.steps_left, by_seed))
    print(f"{len(by_seed)} cases, {shown.steps} training steps left", flush=True)
    for number, case in enumerate(by_seed, 1):
        print(f"case {number} of {len(by_seed)}: {case}", flush=True)
        study.run(case)
    costs = _costs(study, shapes, chosen)
    groups = product(sorted(chosen.tasks), shapes)
    return [outcome(study, [Case(*group, seed) for seed in chosen.seeds], costs) for group in groups]


def _settle(chosen: argparse.Namespace) -> None:
    """What drafts depend on is written into the work directory, so that none is taken for one of other settings."""
    names = ("target", "shipped", "learn_from", "steps", "general_steps", "quick")
    ours, file = {name: getattr(chosen, name) for name in names}, chosen.work / "settings.json"
    ours |= {"general": chosen.general and str(chosen.general.absolute()), "products": PRODUCTS}
    theirs = read_json(file, dict[str, Any]) if file.exists() else ours
    if others := [
        f"{name} {theirs.get(name)}, not {value}" for name, value in ours.items() if theirs.get(name) != value
    ]:
        raise SystemExit(f"{chosen.work} has drafts of {'; '.join(others)}: give another --work")
    write_json(file, ours)


def _costs(study: Study, shapes: Sequence[Shape], chosen: argparse.Namespace) -> Costs:
    """Those that were measured in the work directory, if they are of all these shapes."""
    file = chosen.work / "costs.json"
    if not file.exists() or not {str(shape) for shape in shapes} <= read_json(file, Costs).tokens.keys():
        print("measuring the costs of passes and drafted tokens", flush=True)
        drafts = {shape: study.start(shape) for shape in shapes}
        write_json(file, measure(Path(locate(chosen.target)), drafts, study.terms.num_valid))
    return read_json(file, Costs)


def write(chosen: argparse.Namespace, outcomes: Sequence[Outcome]) -> None:
    text = f"{page(outcomes)}\nOver the best single draft: speed in times its own. {machine.line()}\n"
    out = save(chosen, "task_drafts", text, {"outcomes": as_json(outcomes)})
    plot(outcomes, out / "task_drafts.png")


if __name__ == "__main__":
    main()
