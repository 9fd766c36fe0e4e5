"""Errors cross from one process to another."""

from __future__ import annotations

import pickle

from core.errors import InvalidRequest


def test_an_invalid_request_arrives_in_another_process_as_it_left() -> None:
    sent = InvalidRequest("n", "too many", status=404, code="code")
    got = pickle.loads(pickle.dumps(sent))
    assert type(got) is InvalidRequest
    assert (str(got), got.field, got.status, got.code) == ("too many", "n", 404, "code")
