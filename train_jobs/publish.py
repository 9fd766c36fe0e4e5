"""Sixth stage: the winners become a bundle, live by one rename.

Enters: the verdict, the router. Leaves: the bundle's version, in the directory services load from.
"""

from __future__ import annotations

from pathlib import Path

from core.bundle import Winner, publish
from core.durable import replace
from core.family import locate
from core.id_map import digest
from core.manifest import Manifest
from core.model.loader import public_name
from train_jobs import align, evaluate, routing
from train_jobs.config import RetrainConfig
from train_jobs.evaluate import GENERAL, Ruling
from train_jobs.progress import Progress
from train_jobs.runs import MIXED, control_run
from train_jobs.units import Unit

_VERSION = "version"


def unit(config: RetrainConfig) -> Unit:
    """Where the version is noted, and what it depends on."""
    upstream = evaluate.unit(config).key, routing.unit(config).key
    return Unit(config.work / "publish", str(config.bundles), upstream)


def run(config: RetrainConfig, progress: Progress) -> None:
    """Publish; done again for the same winners it gives the same version."""
    directory = unit(config).start()
    with progress.stage("publish", 1) as report:
        manifest = _publish(config)
        replace(directory / _VERSION, manifest.version.encode())
        report("bundle", 1, 1, manifest.version)


def _publish(config: RetrainConfig) -> Manifest:
    verdict = evaluate.verdict(config)
    slots = {GENERAL: verdict.general} | ({} if verdict.one_draft else verdict.tasks)
    mixed = align.fitted(align.unit(config).directory, control_run(MIXED, config.align.seeds[0]))
    return publish(
        config.bundles,
        {slot: _winner(ruling) for slot, ruling in slots.items()},
        router=routing.fitted(config) if len(slots) > 1 else None,
        target=public_name(config.target.model),
        draft=public_name(config.draft),
        id_map=digest(locate(config.target.model)),
        controls={GENERAL: None, MIXED: mixed},
    )


def _winner(ruling: Ruling) -> Winner:
    return Winner(
        directory=None if ruling.draft is None else Path(ruling.draft),
        decision=ruling.decision,
        reason=ruling.reason,
        scores=ruling.scores,
    )
