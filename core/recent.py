"""What is known of each of many, as long as it is asked about: the least recent give way.

The keys come from drafts and are not trusted: they only ever cost speed, and their number is bounded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, ItemsView
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """A value for every key, made when first asked for, of the `most` last asked for."""

    def __init__(self, make: Callable[[], Value], most: int = 256) -> None:
        self._make = make
        self._most = most
        self._values: OrderedDict[Key, Value] = OrderedDict()

    def items(self) -> ItemsView[Key, Value]:
        """All that is known, the last asked for last."""
        return self._values.items()

    def of(self, key: Key) -> Value:
        if key not in self._values:
            self._values[key] = self._make()
        self._values.move_to_end(key)
        while len(self._values) > self._most:
            self._values.popitem(last=False)
        return self._values[key]
