"""Buckets, and what a client is let in for."""

from __future__ import annotations

import pytest

from serve_app.access.limits import Allowance, Allowances, Bucket, TooMany, duration
from serve_app.access_config import Limits
from tests.serve_app.access.test_keys import Clock


def test_a_bucket_fills_evenly_up_to_its_size_and_may_owe() -> None:
    clock = Clock()
    bucket = Bucket(120, clock)
    assert (bucket.remaining, bucket.full_in, bucket.opens_in) == (120, 0, 0)
    bucket.take(30)
    assert (bucket.remaining, bucket.full_in) == (90, 15)
    bucket.take(100)
    assert (bucket.remaining, bucket.opens_in) == (0, 5.5)
    clock.now += 5.5
    assert bucket.remaining == 1
    clock.now += 600
    assert bucket.remaining == 120


def test_requests_a_minute() -> None:
    clock = Clock()
    client = Allowance(Limits(requests_per_minute=2), clock)
    client.enter()
    client.enter()
    with pytest.raises(TooMany, match="limit of 2 requests per minute; try again in 30 s") as refused:
        client.enter()
    assert refused.value.retry_after_s == 30
    assert client.headers() == {
        "x-ratelimit-limit-requests": "2",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "1m0s",
    }
    clock.now += 30
    client.enter()


def test_tokens_are_owed_until_the_minutes_have_paid_for_them() -> None:
    clock = Clock()
    client = Allowance(Limits(tokens_per_minute=600), clock)
    client.enter()
    client.charge(599)
    client.enter()  # one is left
    client.charge(600)
    with pytest.raises(TooMany, match="600 tokens per minute") as refused:
        client.enter()
    assert refused.value.retry_after_s == 60
    clock.now += 60
    client.enter()


def test_a_refused_request_takes_nothing() -> None:
    client = Allowance(Limits(concurrency=1, requests_per_minute=5), Clock())
    client.enter()
    with pytest.raises(TooMany, match="1 requests at a time") as refused:
        client.enter()
    assert refused.value.retry_after_s == 1
    assert client.headers()["x-ratelimit-remaining-requests"] == "4"
    client.leave()
    client.enter()


def test_each_client_has_its_own() -> None:
    clients = Allowances(Limits(concurrency=1), Clock())
    for name in ("alice", "bob", None):
        clients.of(name).enter()
    with pytest.raises(TooMany):
        clients.of("alice").enter()


@pytest.mark.parametrize(
    ("seconds", "written"), [(0, "0ms"), (0.02, "20ms"), (1, "1s"), (59.2, "1m0s"), (360, "6m0s"), (3661, "61m1s")]
)
def test_times_are_written_as_openai_writes_them(seconds: float, written: str) -> None:
    assert duration(seconds) == written
