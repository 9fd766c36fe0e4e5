"""Bounds and multiples of numbers in the form that the engine holds exactly.

The engine compares decimal texts. It allows an excluded whole bound that the upper bound is near to, and texts that
any reader rounds to an excluded bound, such as 0.99999999999999999999 for 1. It reads each bound as a float, and the
part before the point as 64 bits. So bounds are inclusive here, floats, and below 10^18: an excluded one is the next
float. Whatever lies between two of these bounds as a text does so as a float, too, since rounding keeps the order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

Number = int | float

LARGEST = 999_999_999_999_999_872  # the greatest float below 10^18
SMALLEST = 1e-20  # stands for the float next to 0, which has 324 decimals
MAX_MULTIPLE = 4000  # digits of a multiple without its point: the engine has a state for each remainder
MAX_LISTED = 256  # multiples between two bounds that are listed instead
_U32 = (1 << 32) - 1
_ULPS = 8


class Bounds(NamedTuple):
    """Both inclusive; None is no bound."""

    low: Number | None
    high: Number | None

    @property
    def empty(self) -> bool:
        return self.low is not None and self.high is not None and self.low > self.high


def bounds_of(schema: Mapping[str, Any], integer: bool) -> Bounds:
    """The tightest bounds that the schema's keywords give; raises `ValueError` for values that are no numbers.

    A boolean excludes the bound of `minimum` or `maximum` itself, as in draft 4.
    """
    low = _least(schema, "minimum", "exclusiveMinimum", 1, integer)
    high = _least(schema, "maximum", "exclusiveMaximum", -1, integer)
    return Bounds(low, None if high is None else -high)


def _least(schema: Mapping[str, Any], inclusive: str, exclusive: str, sign: int, integer: bool) -> Number | None:
    """The lower bound of the numbers, or if `sign` is -1 of the negated ones."""
    at, beyond = schema.get(inclusive), schema.get(exclusive)
    if isinstance(beyond, bool):
        at, beyond = (None, at) if beyond else (at, None)
    lows: list[Number] = []
    if at is not None:
        exact = sign * _exact(at, inclusive)
        lows.append(math.ceil(exact) if integer else _float_from(exact))
    if beyond is not None:
        exact = sign * _exact(beyond, exclusive)
        lows.append(math.floor(exact) + 1 if integer else _float_above(exact))
    return _held(max(lows)) if lows else None


def _held(low: Number) -> Number:
    """The bound within the engine's reach, and a float; raises `ValueError` for one that lies beyond."""
    if low > LARGEST:
        raise ValueError(f"bounds of numbers go to ±{LARGEST:.0e}")
    low = max(low, -LARGEST)
    return int(_float_from(Fraction(low))) if isinstance(low, int) else low


def _exact(value: Any, keyword: str) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"'{keyword}' must be a finite number")
    return Fraction(value)


def _float_from(exact: Fraction) -> float:
    """The least float that is not below it."""
    nearest = _to_float(exact)
    return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)


def _float_above(exact: Fraction) -> float:
    if exact == 0:
        return SMALLEST
    above = _float_from(exact)
    above = above if Fraction(above) > exact else math.nextafter(above, math.inf)
    return above if abs(above) >= SMALLEST or exact > 0 else -SMALLEST


def _to_float(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        raise ValueError(f"bounds of numbers go to ±{LARGEST:.0e}") from None


def multiple_of(value: Any, integer: bool) -> Fraction:
    """What the numbers are multiples of, as the decimal text says; raises `ValueError` where that is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise ValueError("'multipleOf' must be a finite number above 0")
    exact = Fraction(repr(value))
    return Fraction(exact.numerator) if integer else exact


def listed_multiples(multiple: Fraction, bounds: Bounds) -> list[Number] | None:
    """All multiples within the bounds; None if they are too many to list."""
    if bounds.low is None or bounds.high is None:
        return None
    first = math.ceil(Fraction(repr(bounds.low)) / multiple)
    last = math.floor(Fraction(repr(bounds.high)) / multiple)
    if last - first >= MAX_LISTED:
        return None
    exact = (multiple * number for number in range(first, last + 1))
    return [int(one) if one.denominator == 1 else float(one) for one in exact]


def written_multiple(multiple: Fraction) -> Number:
    """The number that the engine reads as `multiple`; raises `ValueError` if there is none.

    It multiplies a float by ten until nothing is left behind the point, rounding each time, so it reads 0.07 as
    0.07000000000000001. A neighbour of the float may be read right.
    """
    if multiple.denominator == 1 and multiple <= MAX_MULTIPLE:
        return int(multiple)
    candidate = float(multiple)
    for _ in range(_ULPS):
        candidate = math.nextafter(candidate, 0.0)
    for _ in range(2 * _ULPS + 1):
        if _as_read(candidate) == multiple:
            return candidate
        candidate = math.nextafter(candidate, math.inf)
    raise ValueError(f"'multipleOf' may have no more digits than {MAX_MULTIPLE}, or few multiples between two bounds")


def _as_read(value: float) -> Fraction:
    decimals = 0
    while value % 1 and value <= MAX_MULTIPLE:
        value *= 10
        decimals += 1
    return Fraction(int(value), 10**decimals) if value <= MAX_MULTIPLE else Fraction(0)


def common_multiple_fits(multiples: set[Fraction]) -> bool:
    """Whether the engine can merge all of them: it computes common multiples in 32 bits, and does not notice more."""
    if not multiples:
        return True
    scale = math.lcm(*(_power_of_ten(one.denominator) for one in multiples))
    whole = [int(one * scale) for one in multiples]
    return math.lcm(*whole) * max(whole) <= _U32


def _power_of_ten(denominator: int) -> int:
    power = 1
    while power % denominator:
        power *= 10
    return power
