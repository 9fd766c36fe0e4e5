"""Which keys are valid, while the file changes under the service."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from core.errors import ConfigError
from serve_app.access import keys as keys_module
from serve_app.access.key_file import KeyHolders, add, key_hash, revoke
from serve_app.access.keys import LOOK_EVERY, Keys, check, from_environment
from serve_app.access_config import ApiKeys
from serve_app.http.owners import KeyHolder

VARIABLE = "TASKSPEC_TEST_KEYS"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def name_of(keys: Keys, key: str) -> str | None:
    holder = keys.holder_of(key)
    return None if holder is None else holder.name


def test_a_key_is_known_by_its_name_and_nothing_else_is_valid(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    alice, bob = add(file, "alice"), add(file, "bob")
    keys = Keys(file, {})
    assert (name_of(keys, alice), name_of(keys, bob)) == ("alice", "bob")
    wrong = [alice[:-1], alice + "a", alice.upper(), "", "alice", key_hash(alice.encode()).hex(), "ключ", "é"]
    assert [name_of(keys, key) for key in wrong] == [None] * len(wrong)


def test_a_revoked_key_ends_and_a_new_one_begins_within_a_second(tmp_path: Path) -> None:
    file, clock = tmp_path / "keys", Clock()
    alice = add(file, "alice")
    keys = Keys(file, {}, clock)
    revoke(file, "alice")
    bob = add(file, "bob")
    assert name_of(keys, alice) == "alice"  # not looked at for each request
    clock.now += LOOK_EVERY
    assert (name_of(keys, alice), name_of(keys, bob)) == (None, "bob")
    revoke(file, "bob")
    clock.now += LOOK_EVERY
    assert name_of(keys, bob) is None
    assert LOOK_EVERY < 1


@pytest.mark.parametrize("damage", ["malformed", "gone", "a directory", "not text"])
def test_a_file_that_cannot_be_read_leaves_the_keys_as_they_were_and_is_logged_once(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    file, clock = tmp_path / "keys", Clock()
    alice = add(file, "alice")
    good = file.read_bytes()
    keys = Keys(file, {}, clock)
    file.unlink()
    if damage == "malformed":
        file.write_bytes(good + alice.encode())
    elif damage == "a directory":
        file.mkdir()
    elif damage == "not text":
        file.write_bytes(b"\xff\xfe")
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            clock.now += LOOK_EVERY
            assert name_of(keys, alice) == "alice"
    assert len(caplog.records) == 1
    assert alice not in caplog.text
    assert key_hash(alice.encode()).hex() not in caplog.text
    if damage == "a directory":
        file.rmdir()
    file.write_text("# none is left\n")
    clock.now += LOOK_EVERY
    assert name_of(keys, alice) is None


def test_a_file_that_can_be_read_again_is_read_although_it_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As after `chown` or `chmod`, and after a file system that was away for a moment."""
    file, clock = tmp_path / "keys", Clock()
    alice = add(file, "alice")
    keys = Keys(file, {}, clock)
    revoke(file, "alice")
    reasons = ["Permission denied", "Permission denied", "Input/output error"]

    def unreadable(_: Path) -> KeyHolders:
        raise ConfigError(reasons.pop(0))

    with monkeypatch.context() as damaged, caplog.at_level(logging.WARNING):
        damaged.setattr(keys_module, "read", unreadable)
        while reasons:
            clock.now += LOOK_EVERY
            assert name_of(keys, alice) == "alice"
    told = [record.getMessage().split(": ")[1] for record in caplog.records]
    assert told == ["Permission denied", "Input/output error"]
    clock.now += LOOK_EVERY
    assert name_of(keys, alice) is None


def test_at_start_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    with pytest.raises(ConfigError, match=r"cannot read .*taskspec keys add"):
        Keys(file, {})
    file.write_text("alice\n")
    with pytest.raises(ConfigError, match="line 1 is not NAME:HASH"):
        Keys(file, {})


def test_an_environment_variable_has_keys_and_hashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hexadecimal = "ab" * 32  # as `openssl rand -hex 32` makes keys: not the hash of one
    hashed = key_hash(b"third").hex()
    monkeypatch.setenv(VARIABLE, f" first ,{hexadecimal},,carol:{hashed}:admin")
    names = from_environment(ApiKeys(env=VARIABLE))
    file = tmp_path / "keys"
    alice = add(file, "alice")
    keys = Keys(file, names)
    sent = ["first", hexadecimal, "third", alice, hashed, "carol"]
    assert [name_of(keys, key) for key in sent] == ["env-1", "env-2", "carol", "alice", None, None]
    assert all(len(found) == 32 for found in names)
    assert [holder for holder in keys.holders if holder.admin] == [KeyHolder("carol", admin=True)]


@pytest.mark.parametrize("value", [None, "", " , "])
def test_a_variable_without_a_key_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    if value is not None:
        monkeypatch.setenv(VARIABLE, value)
    with pytest.raises(ConfigError, match=f"ingress.keys.env: the environment variable {VARIABLE} has no key"):
        check(ApiKeys(env=VARIABLE))


def test_a_service_that_nobody_could_use_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "keys"
    file.write_text("# soon\n")
    with pytest.raises(ConfigError, match="has no key; make one"):
        check(ApiKeys(file=file))
    monkeypatch.setenv(VARIABLE, "one")
    assert list(check(ApiKeys(file=file, env=VARIABLE)).values()) == [KeyHolder("env-1")]
