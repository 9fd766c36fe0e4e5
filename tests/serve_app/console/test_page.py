"""The page and its files: who gets them, and with which headers."""

from __future__ import annotations

from pathlib import Path

import pytest

from serve_app.access.key_file import add
from serve_app.console import page
from serve_app.console.page import HEADERS, STATIC, TYPES, page_files
from tests.serve_app.console.consoles import FakeOperator, bearer, console_client

BROWSER = "text/html,application/xhtml+xml,*/*;q=0.8"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the page's files."""
    static = tmp_path / "static"
    static.mkdir()
    (static / "index.html").write_text("<!doctype html><title>the page</title>")
    (static / "page.js").write_text("export const one = 1;")
    (static / "page.css").write_text("body {}")
    (static / "notes.md").write_text("not for browsers")
    monkeypatch.setattr(page, "STATIC", static)
    return static


@pytest.mark.usefixtures("files")
async def test_browsers_get_the_page_without_a_key_and_others_what_they_got_before(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    key = add(keys, "alice")
    async with console_client(FakeOperator(), keys) as client:
        shown = await client.get("/", headers={"Accept": BROWSER})
        assert (shown.status_code, "the page" in shown.text) == (200, True)
        assert (await client.get("/")).status_code == 401
        assert (await client.post("/", headers={"Accept": BROWSER})).status_code == 401
        other = await client.get("/", headers=bearer(key))
        assert "This is a TaskSpec service" in other.text
        assert {shown.headers["vary"], other.headers["vary"]} == {"Accept"}
        assert (await client.head("/", headers={"Accept": BROWSER})).headers["etag"] == shown.headers["etag"]


@pytest.mark.usefixtures("files")
async def test_its_files_have_their_types_and_headers_that_let_them_do_little(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    add(keys, "alice")
    async with console_client(FakeOperator(), keys) as client:
        for path, media_type in (("/", "text/html"), ("page.js", "text/javascript"), ("page.css", "text/css")):
            url = path if path == "/" else f"/console/static/{path}"
            file = await client.get(url, headers={"Accept": BROWSER})
            assert file.headers["content-type"] == f"{media_type}; charset=utf-8"
            assert {name: file.headers[name] for name in HEADERS} == HEADERS
            again = {"Accept": BROWSER, "If-None-Match": f'W/"other", {file.headers["etag"]}'}
            kept = await client.get(url, headers=again)
            assert (kept.status_code, kept.content, kept.headers["etag"]) == (304, b"", file.headers["etag"])
        assert "'unsafe-inline'" not in HEADERS["Content-Security-Policy"]
        for name in ("notes.md", "none.js", "../page.py", "..%2fpage.py", "%2e%2e/%2e%2e/config.py"):
            assert (await client.get(f"/console/static/{name}")).status_code in (401, 404), name


async def test_a_changed_file_has_another_tag(files: Path) -> None:
    before = page_files()
    (files / "page.js").write_text("export const one = 2;")
    after = page_files()
    assert {name for name in before if before[name].tag != after[name].tag} == {"page.js"}


def test_every_file_of_the_package_has_a_type() -> None:
    assert {file.suffix for file in STATIC.glob("*")} <= set(TYPES)
