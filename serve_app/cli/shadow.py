"""The work of `taskspec bundles shadow`: a service's traces, replayed with a bundle and with the live one."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console

from core.bundle.shadow_results import keep_shadow
from core.bundle.store import Bundle, open_live, open_version
from core.confidence_intervals import Difference, Estimate, Figure
from core.errors import ConfigError
from core.family import BUNDLE_DIR
from core.model.causal_lm import CausalLM, load_draft_model
from core.model.loader import public_name
from core.model_names import locate
from core.replay import shadow as shadows
from core.replay.replay import Terms
from core.replay.shadow import ServedBundle, ServedCounts, Shadow, TaskComparison, TraceSample
from core.text.vocabulary import digest, same_id_map
from core.traces.store import TraceStore
from serve_app.config import ServiceConfig
from serve_app.deployments.models.served_models import bundle_root
from serve_app.terminal.progress import step

_WITHOUT_COSTS = "Neither bundle knows what these drafts cost: acceptance decides, not speed.\n"
_PERIOD = re.compile(r"(\d+(?:\.\d+)?)([mhd])")
_SECONDS = {"m": 60.0, "h": 3600.0, "d": 86400.0}
_FORMATS: dict[Figure, str] = {"speedup": ".3f", "acceptance_rate": ".3f", "tokens_per_pass": ".2f"}
_DIFFERENCES: dict[Figure, str] = {"speedup": "+.1%", "acceptance_rate": "+.3f", "tokens_per_pass": "+.2f"}
_GAINS: dict[Figure, str] = {"speedup": "tokens a second", "acceptance_rate": "in acceptance rate"}


class Replay(NamedTuple):
    """What to replay. `against` is a version, or None for the live bundle; `period` is in words, such as 24h."""

    config: ServiceConfig
    version: str
    against: str | None
    traces: Path
    period: str
    limit: int


class Comparison(NamedTuple):
    """The result, and what was compared; `against` is None for the un-adapted draft."""

    version: str
    against: str | None
    terms: Terms
    sample: TraceSample
    result: Shadow


def seconds(period: str) -> float:
    """Of a period such as 90m, 24h or 7d. Raises `ConfigError`."""
    match = _PERIOD.fullmatch(period)
    if match is None:
        raise ConfigError(f"--since {period}: write a number of minutes, hours or days, such as 90m, 24h or 7d")
    return float(match[1]) * _SECONDS[match[2]]


def compare(replay: Replay, console: Console) -> Comparison:
    """Draw the traces, replay both bundles on them, and keep the result.

    Raises `ConfigError` if there are none, or models differ.
    """
    began = time.time() - seconds(replay.period)
    config, root = replay.config, bundle_root(replay.config)
    with step(console, "Opening the bundles"):
        candidate = open_version(root, replay.version)
        against = open_live(root).bundle if replay.against is None else open_version(root, replay.against)
        for bundle in (candidate, against):
            _check_fits(config, bundle)
        terms = _terms(config)
    with step(console, f"Reading traces in {replay.traces}"):
        foreign = shadows.foreign_to(candidate.manifest, root, terms)
        sample = shadows.draw(TraceStore(replay.traces), began, replay.limit, foreign)
    if not sample.traces:
        raise ConfigError(
            f"{replay.traces}: no answer ended in the last {replay.period}{_skipped(sample)}.\n"
            "Write a longer --since or another --traces; a service keeps answers if its YAML has a `traces` section."
        )
    with step(console, "Replaying", "Replayed", 2 * len(sample.traces)) as shown:
        sides = ServedBundle.of(candidate), ServedBundle.of(against)
        drafts = [directory for side in sides for directory in side.drafts.values()]
        manifests = [bundle.manifest for bundle in (candidate, against) if bundle]
        costs = shadows.known_costs(drafts, locate(config.draft.model), manifests)
        result = shadows.shadow(*sides, sample.traces, terms, partial(_load, config), shown.reach, costs)
    comparison = Comparison(replay.version, against.manifest.version if against else None, terms, sample, result)
    _keep(replay, comparison)
    return comparison


def rows(result: Shadow) -> Iterator[tuple[str, ...]]:
    """Lines of a table: task, answers, figure, candidate, the other, difference; all answers are the last task."""
    for part in (*result.tasks, result.whole):
        name, answers = part.task or "all", f"{part.answers:,}"
        for figure, pair in part.figures.items():
            form, difference = _FORMATS[figure], _told(pair.difference, _DIFFERENCES[figure])
            pair_in_words = _told(pair.candidate, form), _told(pair.against, form)
            yield name, answers, figure.replace("_", " "), *pair_in_words, difference
            name = answers = ""


def sentences(comparison: Comparison, period: str) -> str:
    """What the table means, and what it is of."""
    sample, whole = comparison.sample, comparison.result.whole
    figure = whole.judged_by
    gain = _told(whole.figures[figure].difference, _DIFFERENCES[figure])
    verdict = f"{whole.verdict} {'from' if whole.verdict == 'not distinguishable' else 'than'}"
    against = f"bundle {comparison.against}" if comparison.against else "the un-adapted draft"
    return (
        f"Bundle {comparison.version} is {verdict} {against}: {gain} {_GAINS[figure]}.\n"
        f"On {len(sample.traces):,} of {sample.matching:,} answers of the last {period}{_skipped(sample)}; "
        f"{comparison.terms.num_speculative_tokens} tokens drafted for every pass"
        f"{', for speed as many of them as are best' * (figure == 'speedup')}; intervals are 95 %.\n"
        + _WITHOUT_COSTS * (figure != "speedup")
        + _measured_in_words(whole.measured)
    )


def as_json(comparison: Comparison) -> dict[str, Any]:
    sample = comparison.sample
    return {
        "candidate": comparison.version,
        "against": comparison.against,
        "verdict": comparison.result.whole.verdict,
        "judged_by": comparison.result.whole.judged_by,
        "num_speculative_tokens": comparison.terms.num_speculative_tokens,
        "found": sample.matching,
        "skipped": {"foreign": sample.foreign, "incomplete": sample.incomplete, "unreadable_files": sample.unreadable},
        "all": _part_as_json(comparison.result.whole),
        "tasks": {part.task: _part_as_json(part) for part in comparison.result.tasks},
    }


def _keep(replay: Replay, comparison: Comparison) -> None:
    """For the console; not in package data, nor where this user may not write."""
    root = bundle_root(replay.config)
    if root != BUNDLE_DIR:
        with suppress(OSError):
            at = datetime.now(UTC).isoformat(timespec="seconds")
            keep_shadow(root, replay.version, {"at": at, "period": replay.period, **as_json(comparison)})


def _check_fits(config: ServiceConfig, bundle: Bundle | None) -> None:
    if bundle is None:
        return
    manifest, target = bundle.manifest, locate(config.target.model)
    ours = public_name(config.target.model), public_name(config.draft.model), digest(target)
    if (manifest.target, manifest.draft, manifest.id_map) != ours:
        raise ConfigError(
            f"bundle {manifest.version} is for the target {manifest.target!r} and the draft {manifest.draft!r} with "
            f"tokenizer {manifest.id_map[:12]}, and the service has {ours[0]!r}, {ours[1]!r} and {ours[2][:12]}.\n"
            "Write the --config of a service of these models, or another version."
        )


def _terms(config: ServiceConfig) -> Terms:
    target = locate(config.target.model)
    num_valid = same_id_map(target, locate(config.draft.model))
    return Terms(config.draft.num_speculative_tokens, num_valid, config.target.context)


def _load(config: ServiceConfig, directory: Path | None) -> CausalLM:
    """As a pool loads it, but with tensors and room for one session."""
    draft = config.draft
    return load_draft_model(
        directory,
        locate(draft.model),
        dtype=getattr(torch, draft.dtype),
        device=draft.device,
        exact=False,
        target=locate(config.target.model),
    )


def _skipped(sample: TraceSample) -> str:
    """In parentheses, if there were any."""
    counts = {
        "of other models or an unknown bundle": sample.foreign,
        "without prompt, answer or time": sample.incomplete,
        "files unreadable or of other dice": sample.unreadable,
    }
    skipped = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    return f" (skipped: {skipped})" if skipped else ""


def _measured_in_words(measured: ServedCounts) -> str:
    if not measured.proposed:
        return "The service measured nothing of drafts on them."
    rate = measured.accepted / measured.proposed
    return (
        f"What the service itself measured, with the drafts and lengths that it chose: acceptance rate {rate:.3f} on "
        f"{measured.answers:,} of them."
    )


def _told(estimate: Estimate | Difference, form: str) -> str:
    value, low, high = estimate
    return f"{value:{form}} ({low:{form}} to {high:{form}})"


def _part_as_json(part: TaskComparison) -> dict[str, Any]:
    figures: dict[str, Any] = {
        figure: {side: estimate._asdict() for side, estimate in pair._asdict().items()}
        for figure, pair in part.figures.items()
    }
    return {"answers": part.answers, **figures, "measured_by_the_service": part.measured._asdict()}
