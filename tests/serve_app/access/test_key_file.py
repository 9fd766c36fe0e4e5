"""The file of keys: hashes only, whole or not at all, and edited without harm to what else is in it."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import pytest

from core import atomic_files
from core.errors import ConfigError
from serve_app.access.key_file import add, parse, read, revoke
from serve_app.http.owners import KeyHolder


def test_a_made_key_is_in_the_file_as_its_hash_only(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    key = add(file, "alice")
    assert file.read_text() == f"alice:{hashlib.sha256(key.encode()).hexdigest()}\n"
    assert read(file) == {hashlib.sha256(key.encode()).digest(): KeyHolder("alice")}
    assert add(file, "bob") != key
    assert list(read(file).values()) == [KeyHolder("alice"), KeyHolder("bob")]


def test_the_line_of_an_admin_key_says_so_and_is_revoked_like_any_other(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    key = add(file, "alice", admin=True)
    add(file, "bob")
    assert file.read_text().startswith(f"alice:{hashlib.sha256(key.encode()).hexdigest()}:admin\n")
    assert list(read(file).values()) == [KeyHolder("alice", admin=True), KeyHolder("bob")]
    revoke(file, "alice")
    assert list(read(file).values()) == [KeyHolder("bob")]


def test_only_the_owner_can_read_a_file_that_is_made(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    add(file, "alice")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_file_that_there_is_keeps_its_owner_and_its_permissions(tmp_path: Path) -> None:
    """Or the service, under another user, could not read it after `sudo taskspec keys revoke`."""
    file = tmp_path / "keys"
    file.write_text("# mine")
    file.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(file, 1234, 2345)
    before = file.stat()
    for edit in (add, revoke):
        edit(file, "alice")
        after = file.stat()
        assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)
    assert file.read_text() == "# mine\n"


def test_revoking_takes_one_line_and_leaves_all_others(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    for name in ("alice", "bob", "carol"):
        add(file, name)
    lines = file.read_text().splitlines()
    file.write_text("\n".join(["# bob: see below", lines[0], "", f"{lines[1]}  # left in May", lines[2]]))
    revoke(file, "bob")
    assert file.read_text() == "\n".join(["# bob: see below", lines[0], "", lines[2]])


def test_a_name_that_is_taken_or_none_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    add(file, "alice")
    before = file.read_bytes()
    for name, told in (
        ("alice", "revoke it first"),
        ("", "1 to 64"),
        ("a:b", "1 to 64"),
        ("a" * 65, "1 to 64"),
        ("-", "no dash"),
    ):
        with pytest.raises(ConfigError, match=told):
            add(file, name)
    with pytest.raises(ConfigError, match="no key named bob; it has alice"):
        revoke(file, "bob")
    with pytest.raises(ConfigError, match="cannot read"):
        revoke(tmp_path / "others", "alice")
    assert file.read_bytes() == before


def test_a_disk_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "keys"
    add(file, "alice")
    before = file.read_bytes()

    def full(_: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic_files, "sync", full)
    with pytest.raises(ConfigError, match="No space left"):
        add(file, "bob")
    assert (file.read_bytes(), list(tmp_path.iterdir())) == (before, [file])


@pytest.mark.parametrize(
    "line",
    ["tsk-secret", "alice:tsk-secret", "alice:" + "g" * 64, "a b:" + "0" * 64, "-:" + "0" * 64]
    + ["a:" + "0" * 64 + ending for ending in (":root", ":", "admin", ":admin:admin")],
)
def test_a_line_of_another_form_is_named_by_its_number_only(line: str) -> None:
    with pytest.raises(ConfigError, match="keys: line 3 is not NAME:HASH") as refused:
        parse(f"# mine\n\n{line}\n", "keys")
    assert line not in str(refused.value)
