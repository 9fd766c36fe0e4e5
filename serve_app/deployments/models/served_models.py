"""Opens the bundle of a service: a draft per pool and a router, as plain directories.

The process that deploys does this once; replicas get directories and know nothing of bundles.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from core.bundle.manifest import Manifest
from core.bundle.store import Bundle, open_live, open_version
from core.draft_key import GENERAL, DraftKey
from core.errors import ConfigError
from core.model.loader import public_name
from core.model_names import locate
from core.text.vocabulary import digest
from serve_app.application_names import draft_key, pool_application, router_application
from serve_app.config import ServiceConfig

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServedModels:
    """A configuration with the models that its pools and its router load.

    `drafts` has for each pool, `general` among them, the directory of a PEFT adapter or of a whole model, or None for
    the un-adapted draft. A task that the draft of `general` serves best has no pool of its own. `acceptance` has by
    pool and task the accepted share of proposed tokens, as far as the bundle tells it. `router` is a directory,
    `version` the bundle's, which was `created` then. `controls` are drafts to compare the others with, which no pool
    serves.
    """

    config: ServiceConfig
    drafts: Mapping[str, str | None] = field(default_factory=lambda: {GENERAL: None})
    acceptance: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    router: str | None = None
    version: str | None = None
    created: datetime | None = None
    controls: Mapping[str, str | None] = field(default_factory=lambda: {GENERAL: None})

    def draft_key(self, task: str) -> DraftKey:
        """The draft that serves the task."""
        return draft_key(task, self.drafts[task])

    def pool(self, task: str) -> str:
        """The application of the task's pool."""
        return pool_application(self.draft_key(task))

    @property
    def applications(self) -> set[str]:
        """Those of the pools and of the router."""
        pools = {self.pool(task) for task in self.drafts}
        return pools if self.router is None else pools | {router_application(self.router)}


def with_bundle(config: ServiceConfig) -> ServedModels:
    """The models of the live bundle; without one, the un-adapted draft for every prompt.

    Logs why a bundle cannot be served, and which pools of the configuration have no task. Raises `ConfigError` if the
    bundle is for another target, draft or tokenizer.
    """
    bundle = None if config.bundle is None else open_live(bundle_root(config)).bundle
    served = ServedModels(config) if bundle is None else _served(config, bundle)
    if idle := sorted(config.pools.keys() - served.drafts.keys()):
        tasks = f"bundle {served.version} has {', '.join(served.drafts)}" if bundle else "no bundle is live"
        _log.warning("pools: there is no task %s, so these pools are not started; %s", ", ".join(idle), tasks)
    return served


def with_version(config: ServiceConfig, version: str) -> ServedModels:
    """The models of a bundle, live or not. Raises `ConfigError` if it is damaged, or for other models."""
    return _served(config, open_version(bundle_root(config), version))


def bundle_root(config: ServiceConfig) -> Path:
    """The directory that training publishes to. Raises `ConfigError` if the configuration names none."""
    if config.bundle is None:
        raise ConfigError("bundle: the configuration names none; set it to the directory that training publishes to")
    return Path(locate(config.bundle)).absolute()


def with_controls(served: ServedModels, names: Collection[str]) -> tuple[ServedModels, dict[str, str]]:
    """The service with a pool for each of these controls that no task's pool serves already, and the pool of each.

    Of controls that are the same draft only the first is kept.
    """
    pools, drafts = dict[str, str](), dict(served.drafts)
    for name in names:
        directory = served.controls[name]
        pool = next((pool for pool, served_by in drafts.items() if served_by == directory), f"control-{name}")
        if pool not in pools.values():
            pools[name], drafts[pool] = pool, directory
    return replace(served, drafts=drafts), pools


def _served(config: ServiceConfig, bundle: Bundle) -> ServedModels:
    manifest = bundle.manifest
    _check_fits(config, manifest)
    general = bundle.directory(GENERAL) if GENERAL in manifest.slots else None
    own = {task: bundle.directory(task) for task in manifest.slots if bundle.directory(task) != general}
    return ServedModels(
        config,
        drafts={GENERAL: _name(general)} | {task: _name(directory) for task, directory in own.items()},
        acceptance=manifest.acceptance,
        router=_name(bundle.router),
        version=manifest.version,
        created=manifest.created,
        controls={GENERAL: None} | {name: _name(bundle.control(name)) for name in manifest.controls},
    )


def _name(directory: Path | None) -> str | None:
    return None if directory is None else str(directory)


def _check_fits(config: ServiceConfig, manifest: Manifest) -> None:
    of_bundle = {"target": manifest.target, "draft": manifest.draft}
    of_service = {"target": public_name(config.target.model), "draft": public_name(config.draft.model)}
    for key, model in of_service.items():
        if of_bundle[key] != model:
            raise ConfigError(
                f"bundle: {config.bundle} is for the {key} {of_bundle[key]!r}, and {key}.model is {model!r}.\n"
                f"Set {key}.model to the one it was trained for, or set another bundle, or omit `bundle`."
            )
    if manifest.id_map != digest(locate(config.target.model)):
        raise ConfigError(
            f"bundle: {config.bundle} was trained with another tokenizer than {config.target.model} has.\n"
            "Set the target it was trained for, or another bundle, or omit `bundle`."
        )
