"""Bounds and multiples of numbers in the form that the engine holds exactly.

The engine compares decimal texts. It allows an excluded whole bound that the upper bound is near to, and texts that
any reader rounds to an excluded bound, such as 0.99999999999999999999 for 1. It may read a number of more than 15
digits as the float next to it, and the part before the point has 64 bits. So bounds are inclusive here, have 15 digits
and lie below 10^18: an excluded one becomes the next such number. Whatever lies between two of these as a text does so
as a float, too, since rounding keeps the order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from core.grammar.trial import allows

Number = int | float

LARGEST = 999_999_999_999_999_872  # the greatest float below 10^18
SMALLEST = Fraction(1, 10**20)  # stands for the number next to 0
DIGITS, DECIMALS = 15, 22  # that the engine reads as every other reader does
_BEYOND = 1 << 63  # whole constants are read as numbers of 64 bits
MAX_MULTIPLE = 360  # a multiple without its point: the engine has a state for each remainder, and tokens of 3 digits
MAX_LISTED = 1000  # multiples between two bounds that are listed instead
_U32 = (1 << 32) - 1
_ULPS = 8  # floats above and below that are tried


class Bounds(NamedTuple):
    """Both inclusive; None is no bound."""

    low: Number | None
    high: Number | None

    @property
    def empty(self) -> bool:
        return self.low is not None and self.high is not None and self.low > self.high

    def hold(self, number: Number) -> bool:
        return (self.low is None or self.low <= number) and (self.high is None or number <= self.high)

    @property
    def keywords(self) -> dict[str, Number]:
        limits = {"minimum": self.low, "maximum": self.high}
        return {keyword: limit for keyword, limit in limits.items() if limit is not None}


def bounds_of(schema: Mapping[str, Any], integer: bool) -> Bounds:
    """The tightest bounds that the schema's keywords give; raises `ValueError` for values that are no numbers.

    A boolean excludes the bound of `minimum` or `maximum` itself, as in draft 4.
    """
    low = _least(schema, "minimum", "exclusiveMinimum", 1, integer)
    high = _least(schema, "maximum", "exclusiveMaximum", -1, integer)
    return Bounds(low, None if high is None else -high)


def _least(schema: Mapping[str, Any], inclusive: str, exclusive: str, sign: int, integer: bool) -> Number | None:
    """The lower bound of the numbers, or if `sign` is -1 of the negated ones."""
    for keyword in (inclusive, exclusive):
        if schema.get(keyword, 0) is None:
            raise ValueError(f"'{keyword}' must be a finite number")
    at, beyond = schema.get(inclusive), schema.get(exclusive)
    if isinstance(beyond, bool):
        at, beyond = (None, at) if beyond else (at, None)
    lows: list[Fraction] = []
    if at is not None:
        lows.append(_raised(sign * _exact(at, inclusive), integer))
    if beyond is not None:
        lows.append(_raised(sign * _exact(beyond, exclusive), integer, beyond=True))
    return _engine_bound(max(lows)) if lows else None


def _exact(value: Any, keyword: str) -> Fraction:
    """The number that the decimal text says."""
    if not _is_finite(value):
        raise ValueError(f"'{keyword}' must be a finite number")
    return Fraction(value) if isinstance(value, int) else Fraction(repr(value))


def _is_finite(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, int) or math.isfinite(value)


def _raised(exact: Fraction, integer: bool, *, beyond: bool = False) -> Fraction:
    """The least number of `DIGITS` digits that is not below, or that lies beyond."""
    if beyond and exact == 0 and not integer:
        return SMALLEST
    scale = 1 if integer else 10 ** max(0, min(DECIMALS, DIGITS - _digits_before_point(exact)))
    raised = math.ceil(exact * scale)
    return Fraction(raised + 1 if beyond and raised == exact * scale else raised, scale)


def _digits_before_point(exact: Fraction) -> int:
    """Negative if zeros follow the point."""
    if abs(exact) >= 1:
        return len(str(int(abs(exact))))
    return 1 - len(str(int(1 / abs(exact)))) if exact else 0


def _engine_bound(low: Fraction) -> Number:
    """The bound for the engine, as a float or the whole number that one is; raises `ValueError` if it lies too far."""
    if low > LARGEST:
        raise ValueError(f"bounds of numbers go to ±{LARGEST:.0e}; write a smaller one")
    low = max(low, Fraction(-LARGEST))
    if low.denominator > 1:
        return float(low)
    nearest = int(float(low))
    return nearest if nearest >= low else int(math.nextafter(float(low), math.inf))


def shorter_decimals(bounds: Bounds) -> list[float]:
    """Numbers within the bounds that the engine forgets, as 12.7 below 12.75, since they begin as the bound does."""
    shorter: dict[float, None] = {}
    for bound, sign in ((bounds.high, 1), (bounds.low, -1)):
        if bound is None or sign * bound <= 0:
            continue
        whole, _, decimals = decimal(abs(Fraction(repr(bound)))).partition(".")
        numbers = (sign * float(f"{whole}.{decimals[:length]}") for length in range(1, len(decimals)))
        shorter |= {number: None for number in numbers if not number.is_integer() and bounds.hold(number)}
    return list(shorter)


def multiple_of(value: Any, integer: bool) -> Fraction:
    """What the numbers are multiples of, as the decimal text says; raises `ValueError` where that is no number."""
    if not _is_finite(value) or value <= 0:
        raise ValueError("'multipleOf' must be a finite number above 0")
    exact = _exact(value, "multipleOf")
    return Fraction(exact.numerator) if integer else exact


def listed_multiples(multiple: Fraction, bounds: Bounds) -> list[Number] | None:
    """All multiples within the bounds; None if they are too many to list."""
    if bounds.low is None or bounds.high is None:
        return None
    first = math.ceil(Fraction(repr(bounds.low)) / multiple)
    last = math.floor(Fraction(repr(bounds.high)) / multiple)
    if last - first >= MAX_LISTED:
        return None
    exact = (multiple * factor for factor in range(first, last + 1))
    return [int(number) if number.denominator == 1 else float(number) for number in exact]


def within_digits(multiple: Fraction, bounds: Bounds) -> Bounds:
    """The bounds between which a float tells the multiples apart; raises `ValueError` where all lie beyond.

    Whole ones are told apart by readers that know whole numbers.
    """
    if multiple.denominator == 1:
        return bounds
    limit = 10 ** (DIGITS - len(str(_power_of_ten(multiple.denominator))) + 1)
    low = -limit if bounds.low is None else max(bounds.low, -limit)
    high = limit if bounds.high is None else min(bounds.high, limit)
    if low > limit or high < -limit:
        raise ValueError(f"with this 'multipleOf' bounds of numbers go to ±{limit:.0e}; write smaller ones")
    return Bounds(low, high)


def written_multiple(multiple: Fraction) -> Number:
    """The number that the engine reads as `multiple`; raises `ValueError` if there is none.

    It multiplies a float by ten until nothing is left behind the point, rounding each time, so it reads 0.07 as
    0.07000000000000001. A neighbour of the float may be read right.
    """
    if multiple.denominator == 1 and multiple <= MAX_MULTIPLE:
        return int(multiple)
    candidate = float(multiple) if multiple < _BEYOND else 0.0
    for _ in range(_ULPS):
        candidate = math.nextafter(candidate, 0.0)
    for _ in range(2 * _ULPS + 1):
        schema = {"type": "number", "multipleOf": candidate}
        if _as_read(candidate) == multiple and allows(schema, decimal(multiple)):
            return candidate
        candidate = math.nextafter(candidate, math.inf)
    instead = f"write one whose digits say {MAX_MULTIPLE} at most, or bounds with {MAX_LISTED} multiples at most"
    raise ValueError(f"this 'multipleOf' cannot be enforced; {instead}, or leave it out")


def decimal(number: Fraction) -> str:
    """The text of a number whose decimals end."""
    scale = _power_of_ten(number.denominator)
    whole, rest = divmod(int(abs(number) * scale), scale)
    sign = "-" if number < 0 else ""
    return f"{sign}{whole}.{rest:0{len(str(scale)) - 1}}" if rest else f"{sign}{whole}"


def is_exact(value: Number) -> bool:
    """Whether the engine writes the number, and not the float next to it."""
    if not -_BEYOND < value < _BEYOND:
        return False
    if isinstance(value, int) or value.is_integer():
        return float(value) == value
    return allows({"const": value}, decimal(Fraction(repr(value))))


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
    scale = math.lcm(*(_power_of_ten(multiple.denominator) for multiple in multiples))
    whole = [int(multiple * scale) for multiple in multiples]
    return math.lcm(*whole) * max(whole) <= _U32


def _power_of_ten(denominator: int) -> int:
    power = 1
    while power % denominator:
        power *= 10
    return power
