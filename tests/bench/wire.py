"""`python -m tests.bench.wire`: why the tokens of a round travel on a wire of their own.

Measures the round trip of a proposal and its commit from one Serve replica to another: over the project's wire, over a
Serve handle, and by a plain call of an actor beside it, in turns. Leaves a Markdown table on stdout, and the same with
JSON in a directory. Quote nothing that was taken on a busy machine: the table says how busy it was.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np

from serve_app.local_cluster import free_port, local_cluster
from tests.bench import machine
from tests.bench.output import save
from tests.bench.wire_ends import HOST, Draft, PlainVerifier, Verifier

APPLICATION = "wire-bench"
WARM_UP = 50
QUANTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9, "p99": 0.99}
Taken = Mapping[str, Sequence[float]]  # seconds of every round trip, by kind


def measured(count: int, warm_up: int) -> Taken:
    """Seconds of `count` round trips of each kind, on the Serve that this process is connected to."""
    import ray
    from ray import serve

    plain = ray.remote(num_cpus=0.1)(PlainVerifier).remote()
    deployment = serve.deployment(ray_actor_options={"num_cpus": 0.1})
    verifier = deployment(Verifier).bind()
    draft = deployment(Draft).bind(verifier, plain)
    handle = serve.run(draft, name=APPLICATION, route_prefix=None)
    try:
        taken: Taken = handle.measure.remote(count, warm_up).result()
        return taken
    finally:
        serve.delete(APPLICATION)
        ray.kill(plain)


def as_json(taken: Taken) -> dict[str, object]:
    """Milliseconds by kind."""
    return {kind: {"round trips": len(seconds), **quantiles(seconds)} for kind, seconds in taken.items()}


def quantiles(seconds: Sequence[float]) -> dict[str, float]:
    """In milliseconds."""
    found = 1000 * np.quantile(seconds, list(QUANTILES.values()))
    return dict(zip(QUANTILES, np.round(found, 4).tolist(), strict=True))


def table(taken: Taken) -> str:
    """Markdown, the slowest last."""
    medians = {kind: float(np.median(seconds)) for kind, seconds in taken.items()}
    lines = ["| a round over | p50, ms | p99, ms | times the quickest |", "|---|---|---|---|"]
    for kind in sorted(taken, key=medians.__getitem__):
        found = quantiles(taken[kind])
        times = medians[kind] / min(medians.values())
        lines.append(f"| {kind} | {found['p50']:.2f} | {found['p99']:.2f} | {times:.1f} |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.wire", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=1000, help="round trips of each kind; 200 and more tell a p99")
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/wire"))
    chosen = parser.parse_args(argv)
    before = f"{os.getloadavg()[0]:.1f}"
    with local_cluster(0, 0):
        from ray import serve  # here, because Ray reads the environment when it is imported

        serve.start(http_options={"host": HOST, "port": free_port(HOST)})
        taken = measured(chosen.count, WARM_UP)
    text = (
        f"{table(taken)}\n\nA Propose of 6 tokens and its Commit of 4, from a replica to another process and back; "
        f"{chosen.count} of each kind, in turns, after {WARM_UP} to warm up. {machine.line()}, load before {before}\n"
    )
    versions = {name: version(name) for name in ("ray", "pyzmq")}
    save(chosen, "wire", text, {"ms": as_json(taken)}, load_before=before, **versions)


if __name__ == "__main__":
    main()
