"""The keywords of numbers: bounds and multiples."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from core.grammar.json_schema import number_bounds
from core.grammar.json_schema.context import Context, Part
from core.grammar.json_schema.number_bounds import Bounds
from core.grammar.json_schema.schema import Rewritten, SchemaFault


def restrictions(part: Part, context: Context) -> Iterator[Rewritten]:
    """What further schemas a number must be valid against; `part.rewritten` gets the keywords that it can hold."""
    integer, path = "number" not in part.types, part.path
    try:
        bounds = number_bounds.bounds_of(part.keywords, integer)
        multiple = None
        if "multipleOf" in part.keywords:
            multiple = number_bounds.multiple_of(part.keywords["multipleOf"], integer)
    except ValueError as error:
        raise SchemaFault(path, str(error)) from error
    listed = None if multiple is None else number_bounds.listed_multiples(multiple, bounds)
    if multiple is not None and listed is None:
        bounds = _with_multiple(multiple, bounds, part, context)
    if bounds.empty:
        noun = "whole number" if integer else "number"
        yield context.impossible(f"no {noun} lies within the bounds, from 'minimum' to 'maximum'", path)
    elif listed == []:
        yield context.impossible("no multiple of 'multipleOf' lies between 'minimum' and 'maximum'", path)
    elif listed is not None:
        context.check_value(listed, path)
        yield context.noted({"enum": listed}, path)
    elif not integer and (shorter := number_bounds.shorter_decimals(bounds)):
        yield context.noted({"anyOf": [{"type": ["number"], **bounds.keywords}, {"enum": shorter}]}, path)
    else:
        part.rewritten.update(bounds.keywords)


def _with_multiple(multiple: Fraction, bounds: Bounds, part: Part, context: Context) -> Bounds:
    """Write what the numbers are multiples of, if the engine can hold it; the bounds within which it can."""
    try:
        written = number_bounds.written_multiple(multiple)
        bounds = number_bounds.within_digits(multiple, bounds)
    except ValueError as error:
        context.refuse_if_strict(part.path, str(error))
        return bounds
    context.multiples.add(multiple)
    if number_bounds.common_multiple_fits(context.multiples):
        part.rewritten["multipleOf"] = written
    else:
        message = "the values of 'multipleOf' have too large a common multiple; leave this one out"
        context.refuse_if_strict(part.path, message)
    return bounds
