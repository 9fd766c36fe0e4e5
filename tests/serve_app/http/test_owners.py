"""A client is known by a digest of its key, and by nothing else."""

from __future__ import annotations

import pytest

from serve_app.http.owners import owner_of, presented_key


def test_equal_keys_are_one_owner_under_one_salt() -> None:
    bearer = {"authorization": "Bearer key"}
    assert owner_of(bearer, b"salt") == owner_of({"authorization": "BEARER  key "}, b"salt")
    assert owner_of(bearer, b"salt") == owner_of({"x-api-key": " key"}, b"salt")
    assert owner_of(bearer, b"salt") != owner_of({"authorization": "Bearer another"}, b"salt")
    assert owner_of(bearer, b"salt") != owner_of(bearer, b"another")


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Basic key", "key"])
def test_without_a_key_there_is_no_owner(header: str | None) -> None:
    headers = {} if header is None else {"authorization": header}
    assert owner_of(headers, b"salt") is None
    assert owner_of(headers | {"x-api-key": " "}, b"salt") is None


def test_a_bearer_token_goes_before_the_other_header_and_another_scheme_does_not() -> None:
    assert presented_key({"authorization": "Bearer one", "x-api-key": "two"}) == "one"
    assert presented_key({"authorization": "Basic one", "x-api-key": "two"}) == "two"


def test_the_key_is_not_in_its_digest() -> None:
    owner = owner_of({"authorization": "Bearer sk-secret"}, b"salt")
    assert owner is not None
    assert "secret" not in owner
