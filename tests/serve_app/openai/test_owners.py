"""A client is known by a digest of its key, and by nothing else."""

from __future__ import annotations

import pytest

from serve_app.openai.owners import owner_of


def test_equal_keys_are_one_owner_under_one_salt() -> None:
    assert owner_of("Bearer key", b"salt") == owner_of("BEARER  key ", b"salt")
    assert owner_of("Bearer key", b"salt") != owner_of("Bearer another", b"salt")
    assert owner_of("Bearer key", b"salt") != owner_of("Bearer key", b"another")


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Basic key", "key"])
def test_without_a_key_there_is_no_owner(header: str | None) -> None:
    assert owner_of(header, b"salt") is None


def test_the_key_is_not_in_its_digest() -> None:
    owner = owner_of("Bearer sk-secret", b"salt")
    assert owner is not None
    assert "secret" not in owner
