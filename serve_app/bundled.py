"""Opens the bundle of a service: what training published becomes a draft per pool and a router, plain directories.

Enters: a configuration. Leaves: a `Served`. This happens once, in the process that deploys; replicas are handed
directories and know no bundle.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from core.bundle import Bundle, open_live
from core.errors import ConfigError
from core.family import locate
from core.id_map import digest
from core.manifest import Manifest
from core.model.loader import public_name
from serve_app.config import GENERAL, ServiceConfig

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Served:
    """A configuration with what its pools and its router load.

    `drafts` holds per pool a PEFT directory, a whole model's, or None for the draft as it is; `general` is among them.
    `router` is a directory, `version` the bundle's. `controls` are drafts by which the others can be measured: no pool
    serves them.
    """

    config: ServiceConfig
    drafts: Mapping[str, str | None] = field(default_factory=lambda: {GENERAL: None})
    router: str | None = None
    version: str | None = None
    controls: Mapping[str, str | None] = field(default_factory=lambda: {GENERAL: None})


def with_bundle(config: ServiceConfig) -> Served:
    """The service as its live bundle has it; without one, the draft as it is for every prompt.

    What is wrong with a bundle that should have been served is logged, and so are pools that serve nothing. Raises
    `ConfigError` where the bundle is for another target, draft or tokenizer.
    """
    bundle = None if config.bundle is None else open_live(Path(locate(config.bundle)).absolute()).bundle
    served = Served(config) if bundle is None else _served(config, bundle)
    if idle := sorted(config.pools.keys() - served.drafts.keys()):
        held = f"bundle {served.version} has {', '.join(served.drafts)}" if bundle else "no bundle is live"
        _log.warning("pools: no task is called %s, so these actors are not started; %s", ", ".join(idle), held)
    return served


def with_controls(served: Served) -> tuple[Served, dict[str, str]]:
    """The service with a pool for each control too, and the pool that serves each: a task's where it is the same."""
    pools, drafts = dict[str, str](), dict(served.drafts)
    for name, directory in served.controls.items():
        same = (task for task, of_task in served.drafts.items() if of_task == directory)
        pools[name] = next(same, f"control-{name}")
        drafts[pools[name]] = directory
    return replace(served, drafts=drafts), pools


def _served(config: ServiceConfig, bundle: Bundle) -> Served:
    manifest = bundle.manifest
    _check_fits(config, manifest)
    return Served(
        config,
        drafts={GENERAL: None} | {task: _name(bundle.directory(task)) for task in manifest.slots},
        router=_name(bundle.router),
        version=manifest.version,
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
                f"Give {key}.model the one it was trained for, or another bundle, or leave `bundle` out."
            )
    if manifest.id_map != digest(locate(config.target.model)):
        raise ConfigError(
            f"bundle: {config.bundle} was trained with another tokenizer than {config.target.model} has.\n"
            "Give the target it was trained for, or another bundle, or leave `bundle` out."
        )
