"""Chaos on three hosts, as root: `python -m tests.bench.chaos`. The history stays, and `--judge DIR` reads it again."""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from serve_app.local_cluster import raise_on_signals
from tests.bench.chaos.run import Outcome, Plan, judge, run, summary, write_answers
from tests.bench.chaos.table import markdown
from tests.bench.chaos.three_hosts import TARGET, cluster
from tests.bench.output import save


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="of faults (default 30)")
    parser.add_argument("--streams", type=int, default=16, help="clients at a time (default 16)")
    parser.add_argument("--only", choices=("operations",), help="what operators do, without faults")
    parser.add_argument("--seed", type=int, default=0, help="of the order of the faults, and of the clients")
    parser.add_argument("--history", type=Path, default=Path("build/chaos"), help="a directory for it")
    parser.add_argument("--judge", type=Path, metavar="DIR", help="judge the history there, and run nothing")
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/chaos"))
    return parser


def inflicted(chosen: argparse.Namespace) -> Outcome:
    chosen.history.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="chaos-") as name, cluster(Path(name)) as running:
        faults = running.operations() if chosen.only else running.faults()
        print(f"{running.url} serves; {len(faults)} kinds of fault, {chosen.minutes:g} minutes", file=sys.stderr)
        plan = Plan(
            [running.url],
            "chaos",
            faults,
            running.sessions,
            60 * chosen.minutes,
            chosen.streams,
            chosen.seed,
            lambda: running.key,
        )
        return asyncio.run(run(plan, chosen.history))


def main() -> int:
    chosen = options().parse_args()
    raise_on_signals()
    verdict, table = judge(chosen.judge) if chosen.judge else inflicted(chosen)
    audit = audited(chosen.judge or chosen.history)
    lines = [*summary(verdict), f"audit: {audit}"]
    text = "\n".join([markdown(table), "", *(f"- {line}" for line in lines)]) + "\n"
    violations = [violation._asdict() for violation in verdict.violations]
    save(chosen, chosen.only or "faults", text, {"violations": violations, "audit": audit})
    return 1 if violations or audit.get("different") or not audit.get("equal") else 0


def audited(history: Path) -> dict[str, int]:
    """How many answers are of which class, by `taskspec audit`, which asks no service."""
    config = history / "audited.yaml"
    config.write_text(TARGET)
    command = [sys.executable, "-m", "serve_app.cli.main", "audit", str(write_answers(history, "chaos"))]
    command += ["--config", str(config), "--most", "100000", "--json"]
    outcome = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    counts: dict[str, int] = json.loads(outcome.stdout)["counts"]
    return counts


if __name__ == "__main__":
    sys.exit(main())
