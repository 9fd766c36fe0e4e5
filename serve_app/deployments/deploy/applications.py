"""Builds every Serve application of a service.

One application holds ingress and verifier. The others are the draft pools and the router (`bundle_applications`), the
check of drafts, and the rollout, which starts the pools of later bundles.
"""

from __future__ import annotations

import secrets

from ray.serve import Application, RunTarget

from core.model.cpu.openmp import TEAM
from serve_app.access.keys import check
from serve_app.access_config import KEYED
from serve_app.application_names import CORE, DRAFT_CHECK, ROLLOUT
from serve_app.config import Actors
from serve_app.deployments.actors.draft_check import DraftCheck
from serve_app.deployments.actors.ingress import SpeculativeIngress
from serve_app.deployments.actors.target_verifier import TargetVerifier
from serve_app.deployments.actors.verifier_router import VerifierRouter
from serve_app.deployments.deploy.bundle_applications import bundle_targets, deployment, target
from serve_app.deployments.deploy.nodes import Cluster
from serve_app.deployments.deploy.rollout import Rollout
from serve_app.deployments.models.served_models import ServedModels

ANSWER_SECONDS = 600.0  # longer than an answer takes: one that an ingress replica leaves is cut
ALONE = Cluster()  # no nodes to keep replicas apart on


def core_application(served: ServedModels, cluster: Cluster = ALONE) -> Application:
    """Ingress and verifier, kept apart on the nodes of `cluster`.

    Raises `ConfigError` if there are to be API keys and they cannot be read.
    """
    config = served.config
    verifier = deployment(
        TargetVerifier,
        config.target.actors,
        max_ongoing_requests=config.target.max_sessions,  # and `Admission` bounds the queue at the ingress
        request_router_config={"request_router_class": VerifierRouter},
        environment={} if config.target.threads == 1 else TEAM,
        log_format=config.log_format,
        **cluster.apart(TargetVerifier.__name__, config.target.actors),
    ).bind(config)
    keys = {} if config.ingress.keys is None else check(config.ingress.keys)
    ingress = deployment(
        SpeculativeIngress,
        config.ingress.actors,
        max_ongoing_requests=config.ingress_requests,
        drain_seconds=ANSWER_SECONDS,
        environment={} if config.ingress.keys is None else {KEYED: "1"},
        log_format=config.log_format,
        **cluster.apart(SpeculativeIngress.__name__, config.ingress.actors),
    )
    return ingress.bind(served, verifier, secrets.token_bytes(32), keys)


def targets(served: ServedModels, cluster: Cluster = ALONE) -> list[RunTarget]:
    """Every application of the service, with ingress and verifier kept apart on the nodes of `cluster`.

    Only a service with a directory of bundles has a rollout.
    """
    config = served.config
    core = target(core_application(served, cluster), CORE, "/", config.target.actors, config.ingress.actors)
    on_draft_nodes = Actors(num_cpus=0, label_selector=config.draft.actors.label_selector)  # which can read drafts
    check = deployment(
        DraftCheck, on_draft_nodes, environment={"OMP_NUM_THREADS": "1"}, log_format=config.log_format
    ).bind(config)
    always = [*bundle_targets(served), RunTarget(check, DRAFT_CHECK, None), core]
    if config.bundle is None:
        return always
    rollout = deployment(Rollout, Actors(num_cpus=0), log_format=config.log_format)
    return [*always, RunTarget(rollout.bind(served, secrets.token_hex(8)), ROLLOUT, None)]
