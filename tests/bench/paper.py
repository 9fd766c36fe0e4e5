"""The paper's experiments and open points in one table: what each draft is worth, and what the router makes of them.

    python -m tests.bench.paper [--per-kind 120] [--out tests/bench/results/paper]

Measured here, without a clock: the shipped target answers held-out prompts at temperature 0 and 1, and every draft of
the shipped bundle is replayed on every answer, exactly. Prompts come as generated (experiment 1 and 3), and of the same
requests reworded, two tasks' requests in one prompt, and one task's words around another's request (experiment 3).

    routed        the draft of the likeliest task, whatever comes of it
    + rerouted    as in service: the slot that is expected to do best, then moves by what is accepted; one service gets
                  all prompts in turn
    general       the un-adapted draft, the paper's vanilla
    base          the draft fitted to all tasks, which adapters start from: the fairest rival
    mixed         one adapter of the base for all tasks
    own text      no draft: what the answer's own text and prompt continue with
    all together  own text beside the rerouted drafts, whichever is expected to have more accepted
    best          the pool whose draft takes the fewest target passes for this very answer, known only afterwards

The other rows are read from what the last retraining and the other benchmarks left under tests/bench/results; where
there is nothing, the row's command makes it. Takes about 4 minutes of one free core, in proportion to --per-kind.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.progress import Progress

from tests.bench import machine
from tests.bench.output import save
from tests.bench.paper_plot import plot
from tests.bench.paper_tables import as_json, by_kind, by_task, page, rows
from tests.bench.replays import TEMPERATURES, measure, shipped
from tests.bench.stress import prompts
from tests.family.corpora import TASKS

RESULTS = Path(__file__).parent / "results"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.paper", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--per-kind", type=int, default=120, help="prompts of each of the four kinds")
    parser.add_argument("--max-tokens", type=int, default=256, help="most tokens of an answer")
    parser.add_argument("--length", type=int, default=6, help="tokens proposed for a pass")
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/paper"))
    chosen = parser.parse_args(argv)
    if chosen.per_kind < len(TASKS):
        parser.error(f"--per-kind: every kind has prompts of {len(TASKS)} tasks; write {len(TASKS)} or more")
    torch.set_num_threads(1)
    drafts = shipped()
    with Progress() as progress:
        trials = measure(prompts(chosen.per_kind), drafts, chosen.length, chosen.max_tokens, progress)
    found = rows(trials, RESULTS)
    below = (
        f"Exact replays of serial drafting, {chosen.length} tokens proposed for a pass; {chosen.per_kind} prompts of"
        f" each kind, each at temperature 0 and 1; answers of at most {chosen.max_tokens} tokens by the shipped target."
        " Where prompts went is told by where the router sends their parts alone: as generated, that is the request"
        f" itself. The general slot is served by the candidate `{drafts.general_slot}`. {machine.line()}"
    )
    text = page(found, trials, RESULTS, below)
    out = save(chosen, "paper", text, as_json(found, trials))
    plot(by_task(trials, *TEMPERATURES), by_kind(trials), out / "paper.png")


if __name__ == "__main__":
    main()
