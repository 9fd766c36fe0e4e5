"""Stage 6, publish: the promoted drafts and the router become a bundle, live unless it is to wait."""

from __future__ import annotations

from core.atomic_files import replace
from core.bundle.store import publish
from core.draft_key import GENERAL
from train_jobs.cluster.progress import Progress
from train_jobs.config import RetrainConfig
from train_jobs.drafts.candidates import BASE, MIXED, draft_name
from train_jobs.drafts.training_runs import base_runs
from train_jobs.work.cached_step import settings_of
from train_jobs.work.models import model_pair
from train_jobs.work.workspace import Workspace

NEEDS = ("evaluate", "router")


def inputs(config: RetrainConfig) -> list[object]:
    return [str(config.bundles), settings_of(config.publish)]


def run(work: Workspace, progress: Progress) -> None:
    """Publish. The same winners give the same version."""
    directory, winners, pair = work.steps["publish"].start(), work.winners(), model_pair(work.config)
    slots, drafts, seed = winners.slots, work.drafts(), work.config.align.seeds[0]
    mixed = drafts.draft(draft_name(MIXED, GENERAL, None, seed))
    base = drafts.base(seed) if base_runs(work) else None
    centroids = directory / "centroids"
    work.centroids().save(centroids)
    with progress.stage("publish", 1) as report:
        manifest = publish(
            work.config.bundles,
            slots,
            router=work.router() if len(slots) > 1 else None,
            target=pair.target,
            draft=pair.draft,
            id_map=pair.id_map,
            controls={GENERAL: None, BASE: base, MIXED: mixed},
            acceptance=winners.acceptance,
            evidence=winners.evidence,
            words=work.words(),
            centroids=centroids,
            costs=work.costs(),
            live=work.config.publish.live,
        )
        replace(directory / "version", manifest.version.encode())
        report("bundle", 1, 1, manifest.version)
