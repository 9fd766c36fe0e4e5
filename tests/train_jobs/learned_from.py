"""Retrain as a configuration says, on a Ray whose directory is left: `python learned_from.py YAML RAY_DIRECTORY`.

What the memory of Ray's object store has at the end is put into a file of that directory.
"""

from __future__ import annotations

import sys
from pathlib import Path

import psutil  # type: ignore[import-untyped]


def main(file: Path, directory: Path) -> None:
    import ray
    from rich.console import Console

    from train_jobs.config import load_config
    from train_jobs.retrain.pipeline import retrain
    from train_jobs.stages import STAGES

    ray.init(
        address="local",
        num_cpus=1,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=80 << 20,
        _temp_dir=str(directory),
    )
    try:
        retrain(load_config(file), STAGES, Console())
    finally:
        _dump_objects(directory / "objects")
        ray.shutdown()


def _dump_objects(to: Path) -> None:
    """The object store is a file in shared memory that has no name any more; its owner is the raylet."""
    raylets = [one for one in psutil.Process().children(recursive=True) if one.name() == "raylet"]
    stores = [
        link
        for one in raylets
        for link in Path(f"/proc/{one.pid}/fd").iterdir()
        if str(link.readlink()).startswith("/dev/shm/plasma")
    ]
    to.write_bytes(b"".join(store.read_bytes() for store in stores))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
