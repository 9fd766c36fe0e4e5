"""What the pages of this repository say is so: their links lead somewhere, their configurations load."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import serve_app.config
import train_jobs.config
from tests.serve_app.test_walkthrough import script
from tests.tree import ROOT, tracked

LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """Those of its headings, as GitHub writes them."""
    text = re.sub(r"(?ms)^```.*?^```", "", page.read_text())
    headings = re.findall(r"(?m)^#+ (.+)$", text)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead_links(page: Path) -> Iterator[str]:
    for link in LINK.findall(page.read_text()):
        path, _, anchor = link.partition("#")
        if "://" in path:
            continue
        file = page.parent / path if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            yield f"{page.relative_to(ROOT)}: {link}"


def test_every_link_between_pages_leads_somewhere() -> None:
    pages = [path for path in tracked() if path.suffix == ".md"]
    assert len(pages) > 5
    assert not [link for page in pages for link in dead_links(page)]


def test_the_configurations_of_the_walk_through_load(tmp_path: Path) -> None:
    """The walk-through itself takes half an hour, and is seldom run."""
    files = script().files
    assert {"service.yaml", "first.yaml", "later.yaml"} == files.keys()
    for name, content in files.items():
        (tmp_path / name).write_text(content)
        load = serve_app.config.load_config if name == "service.yaml" else train_jobs.config.load_config
        load(tmp_path / name)
