"""Admission control: lets prompts in while few enough wait, and tells others when there will be room.

An ingress replica counts for itself. A prompt waits until a verifier has started it, and then holds a place there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from serve_app.http.service import full_queue

MAX_WAIT = 60  # seconds until a client is told to try again; OpenAI's clients ignore longer ones
WEIGHT = 0.1  # of the last answer in the mean of how long a place was held

Clock = Callable[[], float]


class Admission:
    """Room for `queue` prompts that wait, and for those that verifiers could start at once in all their `places`."""

    def __init__(self, places: Callable[[], int], queue: int, clock: Clock = time.monotonic) -> None:
        self._places = places
        self._queue = queue
        self._clock = clock
        self._inside: set[Place] = set()
        self._seconds_held: float | None = None  # a running mean, None before the first

    @contextmanager
    def place(self) -> Iterator[Place]:
        """A prompt comes in, and leaves at the end. Raises `Overloaded` if there is no room for it."""
        if self.waiting >= self._queue + max(0, self._places() - self.running):
            raise full_queue(self.wait_for_room())
        place = Place(self._clock)
        self._inside.add(place)
        try:
            yield place
        finally:
            self._inside.remove(place)
            if place.held_for is not None:
                self._note(place.held_for)

    @property
    def running(self) -> int:
        """Prompts that a verifier has started."""
        return sum(place.held_for is not None for place in self._inside)

    @property
    def waiting(self) -> int:
        return len(self._inside) - self.running

    def wait_for_room(self) -> int:
        """Seconds until all who wait now will have been started.

        Each is assumed to hold its place as long as the last ones did, or as long as the present ones have already.
        """
        ages = [place.held_for for place in self._inside if place.held_for is not None]
        age = sum(ages) / len(ages) if ages else 0.0
        seconds_per_prompt = max(age, self._seconds_held or 0.0)
        seconds = self.waiting * seconds_per_prompt / (len(ages) or self._places())
        return max(1, min(MAX_WAIT, math.ceil(seconds)))

    def _note(self, held_for: float) -> None:
        mean = held_for if self._seconds_held is None else self._seconds_held
        self._seconds_held = mean + WEIGHT * (held_for - mean)


class Place:
    """What a prompt has once it is in."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started_at: float | None = None

    @property
    def held_for(self) -> float | None:
        """Seconds since a verifier started the prompt; None while it waits."""
        return None if self._started_at is None else self._clock() - self._started_at

    def start(self) -> None:
        """A verifier has started the prompt."""
        self._started_at = self._clock()

    def lose(self) -> None:
        """That verifier is lost, and the prompt waits again."""
        self._started_at = None
