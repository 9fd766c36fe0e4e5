"""Writes report.html, which embeds its plots and needs no network, and beside it findings.json and the plots.

The same findings give the same bytes.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path

from core.atomic_files import replace
from train_jobs.report import wording
from train_jobs.work.findings import Candidate, Findings, Pooled, RunTime, SlotFindings

PAGE, FINDINGS = "report.html", "findings.json"
_TEMPLATE = "page.html"
_ALL = "all"


def write_report(findings: Findings, directory: Path) -> Path:
    """Write all files to an existing directory; the path of the page."""
    # matplotlib takes a second to import, and only this stage needs it
    from train_jobs.report.plots import plots

    images = plots(findings)
    for name, png in images.items():
        replace(directory / f"{name}.png", png)
    findings.save(directory / FINDINGS)
    page = directory / PAGE
    replace(page, _page(findings, images).encode())
    return page


def _page(findings: Findings, images: dict[str, bytes]) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from train_jobs.report.drawing import COLOURS

    pages = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    names = ("duration", "gain", "listed", "counted", "change", "costs_in_words")
    pages.filters |= {name: getattr(wording, name) for name in names}
    return pages.get_template(_TEMPLATE).render(
        found=findings,
        tasks=[slot for slot in findings.slots if slot.task != _ALL],
        everything=_everything(findings.slots),
        present={pooled.name for slot in findings.slots for pooled in slot.pooled},
        better=_better(findings.slots),
        busiest=_busiest(findings.runs),
        together=sum(run.ended - run.began for run in findings.runs),
        elapsed=_elapsed(findings.runs),
        seeds_of=_seeds_of,
        colours=COLOURS,
        plots={name: base64.b64encode(png).decode() for name, png in images.items()},
    )


def _everything(slots: Sequence[SlotFindings]) -> dict[str, Pooled]:
    """Figures over all prompts, by kind of draft."""
    return {pooled.name: pooled for slot in slots if slot.task == _ALL for pooled in slot.pooled}


def _better(slots: Sequence[SlotFindings]) -> int:
    """Number of tasks whose own adapter is significantly better than the base."""
    own = (pooled for slot in slots if slot.task != _ALL for pooled in slot.pooled if pooled.name == "task")
    return sum(pooled.versus_base is not None and pooled.versus_base.better for pooled in own)


def _busiest(runs: Sequence[RunTime]) -> int:
    """The most runs at one time."""
    return max((sum(other.began <= run.began < other.ended for other in runs) for run in runs), default=0)


def _elapsed(runs: Sequence[RunTime]) -> float:
    return max(run.ended for run in runs) - min(run.began for run in runs) if runs else 0.0


def _seeds_of(slot: SlotFindings) -> dict[str, list[Candidate]]:
    """The trained candidates of a slot, by kind."""
    candidates: dict[str, list[Candidate]] = {}
    for candidate in slot.candidates:
        if candidate.seed is not None:
            candidates.setdefault(candidate.name, []).append(candidate)
    return candidates
