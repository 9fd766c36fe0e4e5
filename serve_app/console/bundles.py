"""The bundles that a service may take up, as their directory has them; what does not change is read once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from core.bundle import store
from core.bundle.manifest import Manifest
from core.bundle.proven import is_proven
from core.bundle.shadow_results import shadow_of
from core.errors import ConfigError
from core.tasks.identity import TaskCentroids
from serve_app.deployments.telemetry.service_status import ServiceStatus

MOST = 20  # bundles that are shown, the newest


class PublishedBundles:
    """Those in the directory `root`; none without one."""

    def __init__(self, root: Path | None) -> None:
        self._root = root
        self._at: int | None = None
        self._manifests: dict[str, Manifest] = {}
        self._prompts: dict[str, dict[str, int]] = {}

    def manifest(self, version: str | None) -> Manifest | None:
        """That of a version; None if there is none that can be read."""
        self._look()
        return self._manifests.get(version or "")

    def prompts(self, version: str | None) -> dict[str, int]:
        """The numbers of prompts that the tasks of a version were found in; empty if it does not tell."""
        if self._root is None or self.manifest(version) is None or version is None:
            return {}
        if version not in self._prompts:
            self._prompts = {version: _prompts(self._root, version)}
        return self._prompts[version]

    def listed(self, status: ServiceStatus) -> list[dict[str, Any]]:
        """The newest ones, and what the directory and the service say of them."""
        self._look()
        if self._root is None:
            return []
        root, live, barred = self._root, store.live_version(self._root), store.blocked(self._root)
        serves = status.report and status.report.bundle
        return [
            {
                "version": version,
                "created": manifest.created.isoformat(timespec="seconds"),
                "live": version == live,
                "serves": version == serves,
                "blocked": barred.get(version),
                "proven": is_proven(root, version),
                "tasks": sorted(manifest.slots),
                "shadow": shadow_of(root, version),
            }
            for version, manifest in list(self._manifests.items())[:MOST]
        ]

    def _look(self) -> None:
        if self._root is None:
            return
        at = store.published_at(self._root)
        if at != self._at:
            self._at, manifests = at, store.published(self._root)
            self._manifests = {manifest.version: manifest for manifest in manifests}


def _prompts(root: Path, version: str) -> dict[str, int]:
    try:
        part = store.centroids(root, version)
        tasks = None if part is None else TaskCentroids.load(part)
    except ConfigError:
        return {}
    return {} if tasks is None else dict(zip(tasks.names, tasks.prompts, strict=True))
