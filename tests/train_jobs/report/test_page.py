"""The page shows every figure and nothing unescaped, and is the same for the same findings."""

# mypy: disable-error-code="attr-defined"
# Structs are read by their fields.

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from core.confidence_intervals import Difference
from core.tasks.identity import TaskChange
from tests.train_jobs.report.invented import TASKS, invented
from train_jobs.report.page import write_report
from train_jobs.work.findings import Findings

PLOTS = {
    "drafts",
    "served",
    "k-silhouette",
    "k-reappearance",
    "confusion",
    "curves",
}
VOID = {"meta", "img", "br"}


class Page(HTMLParser):
    """The text of a page, its tags, the pictures in it; fails if tags are not closed."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.source = file.read_text()
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.pictures: list[bytes] = []
        self._open: list[str] = []
        self._words: list[str] = []
        self.feed(self.source)
        self.close()
        assert not self._open
        self.text = " ".join(" ".join(self._words).split())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in VOID:
            self._open.append(tag)
        for name, value in attributes:
            if name in ("src", "href"):
                self.links.append(str(value)[:30])
                self.pictures.append(base64.b64decode(str(value).partition("base64,")[2]))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, self.getpos()

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self._words.append(data)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("report")
    assert write_report(invented(), directory) == directory / "report.html"
    return directory


def report(findings: Findings, directory: Path) -> Page:
    return Page(write_report(findings, directory))


def bare(**fields: object) -> Findings:
    """Findings with nothing but `fields`."""
    nothing = {
        "seconds": {},
        "slots": [],
        "served": [],
        "routing": None,
        "ks": [],
        "runs": [],
    }
    return msgspec.structs.replace(invented((0,), {}), **(nothing | {"k": 1, "purity": None} | fields))


def size(png: bytes) -> tuple[int, int]:
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", png[16:24])


def chunks(png: bytes) -> Iterator[bytes]:
    at = 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        yield png[at + 4 : at + 8]
        at += 12 + length


def gain(share: float) -> str:
    return f"{100 * share:+.1f} %".replace("-", "−")


def figures_of_drafts(findings: Findings) -> Iterator[str]:
    for slot in findings.slots:
        for draft in (*slot.pooled, *slot.candidates):
            yield f"{draft.speedup:.3f}"
            yield f"{draft.acceptance_rate:.3f}"
            yield f"{draft.tokens_per_pass:.2f}"
            for against in (draft.versus_general, getattr(draft, "versus_base", None)):
                if against is None:
                    continue
                difference, low, high = against
                yield f"{gain(difference)} {gain(low)} to {gain(high)}"


def figures_of_all(findings: Findings) -> Iterator[str]:
    for served in findings.served:
        before = (
            f"{served.general_speedup:.3f} {served.general_tokens_per_pass:.2f} {served.general_acceptance_rate:.3f}"
        )
        after = f"{served.speedup:.3f} {served.tokens_per_pass:.2f} {served.acceptance_rate:.3f}"
        yield f"{served.temperature:g} general {before} published {after}"
    for score in findings.ks:
        yield f"{score.k} {score.silhouette:.3f} {score.permuted_silhouette:.3f} {score.reappearance:.3f}"
    assert findings.routing is not None
    for one in findings.routing.classifiers:
        yield f"{one.name} {100 * one.agreement:.1f} % {100 * one.reworded:.1f} % {one.p50_ms:.2f} {one.p99_ms:.2f}"


def test_every_figure_is_told(written: Path) -> None:
    findings, page = invented(), Page(written / "report.html")
    told = [*figures_of_drafts(findings), *figures_of_all(findings)]
    assert not [figure for figure in told if figure not in page.text]
    assert "6 tasks" in page.text
    assert "97.3 %" in page.text
    assert "3 times, with seeds 0, 1 and 2" in page.text
    assert "The retraining took 1 h 10 min, by stage: collect 1 min 11 s, partition 15 s, align 1 h 4 min" in page.text
    assert "27 runs, at most 2 at once" in page.text
    assert "20 ms for a plain pass, 1.50 times that for one over 7 rows, 0.4 ms for a token" in page.text


def test_every_slot_tells_its_name_label_prompts_decision_and_reason(written: Path) -> None:
    text = Page(written / "report.html").text
    for number, (task, label) in enumerate(TASKS.items(), 1):
        assert f"{number} · {task} {f'mostly labelled {label} ' if label else ''}1,480 train, 60 stop" in text
    for slot in invented().slots:
        assert f"Serves {slot.decision} . On{slot.reason[2:]}." in text


def test_what_comes_from_data_is_escaped(written: Path) -> None:
    page = Page(written / "report.html")
    assert "script" not in page.tags
    assert "verb-&lt;script&gt;alert(1)&lt;/script&gt;" in page.source
    assert "others" not in page.tags


def test_the_page_needs_nothing_from_elsewhere(written: Path) -> None:
    page = Page(written / "report.html")
    assert set(page.links) == {"data:image/png;base64,iVBORw0K"}
    assert not re.search(r"https?:|@import|url\(", page.source)


def test_the_plots_lie_beside_the_page_that_holds_them(written: Path) -> None:
    files = {file.stem: file.read_bytes() for file in written.glob("*.png")}
    assert files.keys() == PLOTS
    assert sorted(files.values()) == sorted(Page(written / "report.html").pictures)
    for png in files.values():
        width, height = size(png)
        assert 500 < width < 1500
        assert 150 < height < 2000
        assert set(chunks(png)) == {b"IHDR", b"pHYs", b"IDAT", b"IEND"}  # no text, no time


def test_the_findings_lie_beside_the_page(written: Path) -> None:
    assert Findings.load(written / "findings.json") == invented()


def test_the_same_findings_give_the_same_bytes(written: Path, tmp_path: Path) -> None:
    write_report(invented(), tmp_path)
    first, second = ({file.name: file.read_bytes() for file in where.iterdir()} for where in (written, tmp_path))
    assert first == second
    assert len(first) == len(PLOTS) + 2


def test_one_seed_has_no_table_of_seeds(written: Path, tmp_path: Path) -> None:
    page = report(bare(slots=invented((4,)).slots, seeds=[4]), tmp_path)
    assert "trained once, with seed 4" in page.text
    assert "details" not in page.tags
    assert "details" in Page(written / "report.html").tags


def test_without_figures_it_says_why(tmp_path: Path) -> None:
    page = report(bare(), tmp_path)
    assert not list(tmp_path.glob("*.png"))
    assert page.tags.isdisjoint({"img", "table"})
    assert "No router was trained" in page.text
    assert "came without labels" in page.text


def test_a_curve_of_one_point_is_a_plot(tmp_path: Path) -> None:
    found = invented()
    run = msgspec.structs.replace(found.runs[0], name="some run", steps=[50], acceptance=[0.4])
    report(bare(ks=found.ks[1:2], runs=[run], served=found.served[:1]), tmp_path)
    assert {file.stem for file in tmp_path.glob("*.png")} == PLOTS - {"drafts", "confusion"}


def test_a_task_that_is_worse_counts_as_no_better_and_is_told_with_a_minus(tmp_path: Path) -> None:
    *tasks, everything = invented((0,), {"one": "one", "two": "two"}).slots
    worse = Difference(-0.0214, -0.0402, -0.0017)
    own = [
        msgspec.structs.replace(pooled, versus_base=worse) if pooled.name == "task" else pooled
        for pooled in tasks[0].pooled
    ]
    slots = [msgspec.structs.replace(tasks[0], pooled=own), tasks[1], everything]
    text = report(bare(slots=slots, k=2), tmp_path).text
    assert "1 of 2" in text
    assert "−2.1 % −4.0 % to −0.2 %" in text


@pytest.mark.parametrize("names", [["成语", "造句", "古诗"], ["same"] * 3, ["x" * 60] * 3, [None] * 3])
def test_names_that_plots_cannot_show_are_numbers_there(names: Sequence[str | None], tmp_path: Path) -> None:
    """A glyph that is missing would warn, and warnings are errors here."""
    tasks = {f"题目{number}": name for number, name in enumerate(names)}
    found = invented((0,), tasks)
    page = report(bare(slots=found.slots, routing=found.routing, runs=found.runs[-2:]), tmp_path)
    assert all(task in page.text for task in tasks)


def test_what_became_of_the_tasks_of_the_live_bundle(tmp_path: Path) -> None:
    changes = [
        TaskChange("kept", "mass-acid", "mass-acid"),
        TaskChange("split", "mass-acid", "protons-moles"),
        TaskChange("new", None, "print<b>"),
        TaskChange("merged", "essay-poem", "mass-acid"),
        TaskChange("vanished", "left-false", None),
    ]
    assert (
        "Against the tasks of the bundle that was live, mass-acid is kept, protons-moles split off from mass-acid, "
        "print<b> is new, essay-poem went into mass-acid and left-false vanished."
    ) in report(bare(changes=changes), tmp_path).text
    assert "that was live" not in report(bare(), tmp_path).text


def test_a_draft_that_is_live_and_one_that_was_not_trained(tmp_path: Path) -> None:
    """A second retraining; the control `continued` is missing."""
    [slot] = invented((0,), {}).slots
    live = msgspec.structs.replace(slot.pooled[1], name="live")
    pooled = [slot.pooled[0], live, *(draft for draft in slot.pooled[1:] if draft.name != "continued")]
    page = report(bare(slots=[msgspec.structs.replace(slot, pooled=pooled, decision="live")]), tmp_path)
    assert "live the draft that served this task" in page.text
    assert "the base, trained on for as many steps" not in page.text
    assert "Serves live" in page.text
