"""What happens until the first token of an answer is at its client, and what of it the first token waits for.

    python -m tests.bench.first_token [--size 100m] [--per-task 4] [--out tests/bench/results/first_token]

The whole service, and beside it in a replica of its own an ingress that notes when what happened for a generation; all
processes of a machine share the clock. One stream, over HTTP: every prompt is asked as routed, with the `general` draft
named, which needs no router, and with speculation off, in turns. What router and draft cost the first token is how much
later it is there with them than without.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import Progress

from core.draft_key import GENERAL
from serve_app.deployments.served_models import ServedModels
from serve_app.hosting import local_service
from serve_app.local_cluster import free_port
from serve_app.openai.client import AS_ROUTED, OFF, Client, Speculation
from tests.bench import machine
from tests.bench.bars import NEUTRAL, OURS
from tests.bench.engines import threads_worth
from tests.bench.expanded import GEOMETRIES, target
from tests.bench.items import Item, held_out
from tests.bench.moments import ARRIVED, ASKED, DRAFT, FIRST, LATER, OPEN, ROUTED, ROUTER, SECOND, Noted
from tests.bench.output import save
from tests.bench.over_http import LOOPBACK, as_served
from tests.bench.paired import Durations, Ratio, rotated

PLACE = "traced"
WAYS: dict[str, Speculation] = {"as routed": AS_ROUTED, "general named": {"task": GENERAL}, "speculation off": OFF}
ROUTED_WAY, NAMED_WAY, PLAIN_WAY = WAYS
SPANS = {  # from what to what, for the picture
    "client: the first chunk": ("", ARRIVED),
    "ingress: the first run": (ASKED, FIRST),
    "router": (ROUTER, ROUTED),
    "draft joins": (DRAFT, OPEN),
    "ingress: the second run": (FIRST, SECOND),
}
MOMENTS = (ASKED, ROUTER, ROUTED, DRAFT, OPEN, FIRST, ARRIVED, SECOND, LATER)
WARM = 6  # prompts


class Traces(NamedTuple):
    """By way, of every prompt: seconds from when it was sent to what happened."""

    by_way: dict[str, list[Noted]]

    def seconds(self, way: str, what: str) -> list[float]:
        """Of the prompts for which it happened."""
        return [noted[what] for noted in self.by_way[way] if what in noted]

    def later(self, way: str) -> Ratio:
        """By how many seconds the first chunk is later than with speculation off: the median of the prompts."""
        durations = Durations()
        for either in (way, PLAIN_WAY):
            for at, seconds in enumerate(self.seconds(either, ARRIVED)):
                durations.add(either, at, seconds)
        return durations.saved(PLAIN_WAY, way, dict.fromkeys(range(len(self.by_way[PLAIN_WAY])), 1.0))


def measured(url: str, served: ServedModels, items: Sequence[Item], warm: int, progress: Progress) -> Traces:
    """On the Serve that this process is connected to, which serves `served` at `url`."""
    from ray import serve  # here, because Ray reads the environment when it is imported

    from serve_app.config import CORE
    from serve_app.deployments.bundle_applications import ENVIRONMENT, QUIET
    from tests.bench.traced_ingress import TracedIngress

    verifier = serve.get_deployment_handle("TargetVerifier", CORE)
    traced = serve.deployment(TracedIngress).options(
        ray_actor_options={"num_cpus": 0.1, "runtime_env": {"env_vars": dict(ENVIRONMENT)}}, logging_config=QUIET
    )
    handle = serve.run(traced.bind(served, verifier, b"salt"), name=PLACE, route_prefix=f"/{PLACE}")
    try:
        asking = _traces(f"{url}/{PLACE}/v1", served.config.name, handle, items, warm, progress)
        return asyncio.run(asking)
    finally:
        serve.delete(PLACE)


async def _traces(url: str, model: str, handle: Any, items: Sequence[Item], warm: int, progress: Progress) -> Traces:
    by_way: dict[str, list[Noted]] = {way: [] for way in WAYS}
    async with Client(url, clock=time.monotonic) as client:
        for at, item in enumerate(progress.track(items, description="first token")):
            for way in rotated(list(WAYS), at):
                body = {
                    "model": model,
                    "messages": [{"role": "user", "content": item.prompt}],
                    "temperature": 0,
                    "max_tokens": 16,
                    "speculation": dict(WAYS[way]),
                }
                began = time.monotonic()
                answer = await client.ask(body)
                noted = await handle.last.remote()
                chunks = dict(zip((ARRIVED, LATER), answer.arrivals, strict=False))
                if at >= warm:
                    by_way[way].append({what: moment - began for what, moment in (noted | chunks).items()})
    return Traces(by_way)


def table(traces: Traces) -> str:
    """Markdown."""
    lines = [f"| ms after the request was sent, median (quartiles) | {' | '.join(WAYS)} |", "|---|---|---|---|"]
    lines += [f"| {what} | {' | '.join(_told(traces.seconds(way, what)) for way in WAYS)} |" for what in MOMENTS]
    told = " and ".join(f"{_ms(traces.later(way))} ms {way}" for way in (ROUTED_WAY, NAMED_WAY))
    prompts = len(traces.by_way[PLAIN_WAY])
    return "\n".join([*lines, "", f"The first chunk is later by {told}, the medians of {prompts} prompts (95 %)."])


def _ms(later: Ratio) -> str:
    return f"{1e3 * later.value:.1f} ({1e3 * later.low:.1f} to {1e3 * later.high:.1f})"


def _told(seconds: Sequence[float]) -> str:
    if not seconds:
        return ""
    low, median, high = 1e3 * np.quantile(seconds, [0.25, 0.5, 0.75])
    return f"{median:.1f} ({low:.1f} to {high:.1f})"


def as_json(traces: Traces) -> dict[str, object]:
    """Milliseconds."""
    ms = {
        way: [{what: round(1e3 * at, 3) for what, at in noted.items()} for noted in found]
        for way, found in traces.by_way.items()
    }
    return {"later_seconds": {way: traces.later(way)._asdict() for way in (ROUTED_WAY, NAMED_WAY)}, "ms": ms}


def draw(traces: Traces, file: Path) -> None:
    """Write a PNG: who is busy from when to when, medians; without drafts below."""
    figure = Figure(figsize=(7.2, 4.4), layout="constrained", dpi=150)
    panels = figure.subplots(len(WAYS), sharex=True, height_ratios=[5, 4, 3])
    for panel, way, colour in zip(panels, WAYS, (OURS, OURS, NEUTRAL), strict=True):
        for name, (first, last) in SPANS.items():
            if ends := traces.seconds(way, last):
                begin = 1e3 * float(np.median(traces.seconds(way, first))) if first else 0.0
                panel.barh(name, 1e3 * float(np.median(ends)) - begin, left=begin, color=colour, height=0.6)
        panel.yaxis.set_inverted(True)
        panel.set_title(way, fontsize=9, loc="left")
        panel.tick_params(labelsize=8)
        panel.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xlabel("ms after the request was sent, medians", fontsize=8)
    figure.savefig(file, metadata={"Software": None})


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.first_token", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--size", choices=GEOMETRIES, default="100m", help="parameters of the expanded target")
    parser.add_argument("--per-task", type=int, default=4)
    parser.add_argument("--threads", type=int, help="of the verifier; by default as measured, leaving a core")
    parser.add_argument("--cache", type=Path, default=Path(".cache/bench"), help="where expanded targets are kept")
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/first_token"))
    chosen = parser.parse_args(argv)
    directory = target(chosen.size, chosen.cache)
    chosen.threads = chosen.threads or threads_worth(directory)
    served, _ = as_served(directory, 6, chosen.threads)
    items = held_out(chosen.per_task + 1)
    with local_service(served, LOOPBACK, free_port(LOOPBACK), Console(stderr=True)) as running, Progress() as progress:
        traces = measured(running.url, served, items, WARM, progress)
    text = f"{table(traces)}\n\n{chosen.size} target in bf16, {chosen.threads} thread(s), {machine.line()}\n"
    draw(traces, save(chosen, "first_token", text, as_json(traces)) / "first_token.png")


if __name__ == "__main__":
    main()
