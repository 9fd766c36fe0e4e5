from __future__ import annotations

from collections import Counter

from serve_app.http.handled import GONE, NO_KEY, Handled
from serve_app.http.minute_counts import MinuteCounts, summed
from serve_app.http.request_history import Requested, RequestHistory

DAY = 86_400


class Clock:
    now = float(DAY)

    def __call__(self) -> float:
        return self.now


def test_what_was_counted_stands_in_its_minute_for_an_hour() -> None:
    clock = Clock()
    counts = MinuteCounts[str](clock)
    counts.add("a")
    clock.now += 59.9
    counts.add("a", 2)
    clock.now += 0.1
    counts.add("b")
    assert counts.minutes() == {DAY: {"a": 3}, DAY + 60: {"b": 1}}
    counts.minutes()[DAY]["a"] = 100
    clock.now = DAY + 3599.0
    assert counts.minutes()[DAY] == {"a": 3}
    clock.now = DAY + 3600.0
    assert counts.minutes() == {DAY + 60: {"b": 1}}
    clock.now += DAY
    assert counts.minutes() == {}
    counts.add("c")
    assert list(counts._minutes) == [clock.now]  # what is old is not kept either


def test_the_counts_of_replicas_are_summed_in_the_order_of_time() -> None:
    minutes = [{60: Counter(a=1)}, {0: Counter(a=1, b=2), 60: Counter(a=3)}, {}]
    assert list(summed(minutes).items()) == [(0, {"a": 1, "b": 2}), (60, {"a": 4})]


def test_requests_to_the_api_are_counted_by_client_and_outcome() -> None:
    history = RequestHistory()
    for status in (200, 200, 204, 400, 429, 500, 503, GONE):
        history.note("/v1/completions", Handled("alice", "POST", status, shed=False))
    history.note("/v1/models", Handled(NO_KEY, "GET", 401, shed=False))
    for path in ("/console/status", "/metrics", "/"):
        history.note(path, Handled("alice", "GET", 200, shed=False))
    total = sum(history.minutes().values(), Counter[Requested]())
    assert {(client, outcome): number for (client, outcome), number in total.items()} == {
        ("alice", "answered"): 3,
        ("alice", "refused"): 2,
        ("alice", "failed"): 2,
        ("alice", "gone"): 1,
        (None, "refused"): 1,
    }
    assert sum(history.handled.values()) == 12
