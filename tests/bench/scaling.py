"""Draft pools that Serve scales while their traffic changes and their drafts become useless: by our policy, by Serve's.

python -m tests.bench.scaling
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.bench.output import header, save
from tests.bench.scaled_service import ENDED, KEPT, MOST, POLICIES, Look, ScaledService, Step, scaled_service

MANY, FEW = 10, 2  # clients
BOUND = 120.0  # seconds for what is awaited
QUIET = 60.0  # seconds that nothing should happen


async def run(service: ScaledService) -> dict[str, Step]:
    """Traffic and drafts change step by step; what became of each."""
    steps: dict[str, Step] = {}

    def told(name: str, step: Step) -> None:
        steps[name] = step
        print(name, step, file=sys.stderr, flush=True)

    service.ask({KEPT: 1})
    told(f"one client of {KEPT}", await service.until(lambda pools: pools[KEPT] == Look(1, 1), BOUND))
    service.ask({KEPT: MANY})
    told(f"{MANY} clients of {KEPT}", await service.until(lambda pools: pools[KEPT].running == MOST, BOUND))
    assert set(service.recorded(KEPT)) == {"sessions", "asked_sessions"}
    service.spoil()
    told("its drafts are useless", await service.until(lambda pools: pools[KEPT] == Look(1, 1), BOUND))
    told("and stay so", await service.until(lambda pools: pools[KEPT].running == MOST, QUIET))
    service.mend()
    told("its drafts are well again", await service.until(lambda pools: pools[KEPT].running == MOST, BOUND))
    service.ask({ENDED: FEW})
    both = {KEPT: Look(1, 1), ENDED: Look(1, 1)}
    told(f"{FEW} clients of {ENDED} instead", await service.until(lambda pools: pools == both, BOUND))
    service.ask({})
    told("nobody", await service.until(lambda pools: pools[ENDED] == Look(0, 0), BOUND))
    service.ask({ENDED: FEW})
    told(f"{FEW} clients of {ENDED} again", await service.until(lambda pools: pools[ENDED] == Look(1, 1), BOUND))
    service.spoil()
    told(f"drafts of {ENDED} are useless", await service.until(lambda pools: pools[ENDED] == Look(0, 0), BOUND))
    service.ask({})
    return steps


def page(found: Mapping[str, Mapping[str, Step]]) -> str:
    lines = header(["step", *(f"{name}: s; replicas of {KEPT}, of {ENDED}" for name in found)])
    for step in next(iter(found.values())):
        cells = [_cell(steps[step]) for steps in found.values()]
        lines.append(f"| {step} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(step: Step) -> str:
    took = "-" if step.seconds is None else f"{step.seconds:.0f}"
    return f"{took}; {step.replicas[KEPT]:.1f}, {step.replicas[ENDED]:.1f}"


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scaling", description=__doc__.partition("\n")[0])
    parser.add_argument("--policies", nargs="+", choices=list(POLICIES), default=list(POLICIES))
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/scaling"))
    return parser


async def measured(policy: str) -> tuple[dict[str, Step], tuple[int, int]]:
    with scaled_service(policy) as service:
        return await run(service), await service.unequal()


def main() -> None:
    chosen = options().parse_args()
    found, equal = {}, {}
    for policy in chosen.policies:
        found[policy], (unequal, prompts) = asyncio.run(measured(policy))
        equal[policy] = f"{prompts - unequal} of {prompts} prompts have the answers of plain decoding at every time"
        text = page(found) + "\n" + "\n".join(f"{name}: {line}" for name, line in equal.items()) + "\n"
        steps = {name: {step: one._asdict() for step, one in of.items()} for name, of in found.items()}
        save(chosen, "scaling", text, {"steps": steps, "equal": equal})


if __name__ == "__main__":
    main()
