"""This service's series among the metrics that every node of the Ray cluster exports, as one text for Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import httpx2 as httpx
import ray

from serve_app.application_names import CORE
from serve_app.http.service import Overloaded

OURS, VLLM = "ray_taskspec_", "ray_vllm_"
OF_THE_SERVICE = f'application="{CORE}"'  # on the same nodes vLLM itself may export metrics under its names
PATIENCE = 3.0  # seconds for all nodes together
TRY_AGAIN = 10  # seconds; replicas report as often


async def cluster_metrics() -> str:
    """The metrics of the nodes that are alive, in Prometheus' text format. Raises `Overloaded` if none answers."""
    addresses = await asyncio.to_thread(_addresses)
    async with httpx.AsyncClient(timeout=PATIENCE, trust_env=False) as client:
        texts = await asyncio.gather(*(_exported(client, address) for address in addresses))
    exported = [text for text in texts if text is not None]
    if not exported:
        tried = ", ".join(addresses) or "there is none"
        raise Overloaded(f"no node of the Ray cluster tells its metrics ({tried})", retry_after_s=TRY_AGAIN)
    silent = (f"# {address} does not answer\n" for address, text in zip(addresses, texts, strict=True) if text is None)
    return merged(exported) + "".join(silent)


def merged(texts: Iterable[str]) -> str:
    """This service's families of metrics, those of all texts with the same name together."""
    families: dict[str, tuple[list[str], list[str]]] = {}  # by name: what is said of it, and its samples
    for text in texts:
        samples: list[str] | None = None  # those of the family that the text is at, if it is wanted
        for line in text.splitlines():
            if line.startswith(("# HELP ", "# TYPE ")):
                name = line.split(maxsplit=3)[2]
                samples = None
                if name.startswith((OURS, VLLM)):
                    comments, samples = families.setdefault(name, ([], []))
                    if not any(comment.startswith(line[: len("# HELP ")]) for comment in comments):
                        comments.append(line)
            elif samples is not None and (line.startswith(OURS) or OF_THE_SERVICE in line):
                samples.append(line)
    lines = (line for comments, samples in families.values() for line in (*comments, *samples))
    return "".join(f"{line}\n" for line in lines)


def _addresses() -> Sequence[str]:
    """Where the nodes that are alive export their metrics."""
    alive = (node for node in ray.nodes() if node["Alive"])
    return list(dict.fromkeys(f"{node['NodeManagerAddress']}:{node['MetricsExportPort']}" for node in alive))


async def _exported(client: httpx.AsyncClient, address: str) -> str | None:
    try:
        async with asyncio.timeout(PATIENCE):  # the client's own is for each step
            response = await client.get(f"http://{address}/metrics")
    except (httpx.RequestError, TimeoutError):
        return None
    return response.text if response.status_code == httpx.codes.OK else None
