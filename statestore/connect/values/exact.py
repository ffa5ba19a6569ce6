"""Conversions of numbers and points in time that lose nothing, or raise DataException."""

from __future__ import annotations

import math
import re
from decimal import ROUND_DOWN, Decimal
from typing import Any, Final, TypeVar

from statestore.connect.logical_types import ORDINALS, scale_of
from statestore.connect.scalars import DAY_MS, Float32, Float64, Instant, in_range
from statestore.connect.schema import LogicalName, Schema, Type
from statestore.connect.values.compat import is_number, refusal
from statestore.connect.values.date_text import EPOCH_DAY, date_text, days_to_year_month, time_text, timestamp_text
from statestore.connect.values.number_text import EXACT, NOT_FINITE, decimal_of, float32_of, float_text
from statestore.errors.data import NumberFormatException
from statestore.errors.readable import shape_of

_Float = TypeVar("_Float", Float32, Float64)

TEMPORAL: Final = re.compile(
    r"(?P<date>-?[0-9]{4,9}-[0-9]{2}-[0-9]{2})(?:T(?P<at>[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3})Z)?"
    r"|(?P<time>[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3})Z"
)
"""The texts of dates, times and timestamps, whatever their numbers."""
_MOST_DIGITS: Final = 100_000
"""The most digits of a decimal whose scale changes: 1E+999999999 with two digits behind the point has a billion."""
_INTEGER_DIGITS: Final = 20
_FLOAT_DIGITS: Final[dict[type, int]] = {Float32: 9, Float64: 17}
"""The most digits that Java writes for a float."""


def exact_decimal(value: Any) -> Decimal | None:
    """Return a number, or the number of a text, as a decimal; None if it is neither, or not finite."""
    if isinstance(value, str):
        try:
            return decimal_of(value)
        except NumberFormatException:
            return None
    if not is_number(value):
        return None
    if isinstance(value, float):
        return Decimal(value) if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return value if value.is_finite() else None
    return Decimal(int(value))


def exact_integer(schema: Schema | None, value: Any, bits: int) -> int:
    """Return a number, the number of a text, or days or milliseconds of an instant, as an integer of so many bits."""
    number = _number(schema, value)
    if number and not 0 <= number.adjusted() < _INTEGER_DIGITS:
        raise refusal(value, f"an integer of {bits} bits")
    whole = int(number.to_integral_value(ROUND_DOWN)) if number else 0
    if whole != number or not in_range(whole, bits):
        raise refusal(value, f"an integer of {bits} bits")
    return whole


def _number(schema: Schema | None, value: Any) -> Decimal:
    found: Decimal | int | None = None
    if not isinstance(value, Instant):
        found = exact_decimal(value)
    elif schema is not None and schema.name in ORDINALS:
        found = ORDINALS[schema.name][0](value)
    if found is None:
        raise refusal(value, "a number" if schema is None else schema)
    return Decimal(found)


def exact_float(schema: Schema | None, value: Any, width: type[_Float]) -> _Float:
    """Return a float that is equal to a number, or whose text is the number's own.

    A text or decimal with no more digits than a float's text becomes the nearest float; a whole number must be equal.
    """
    if isinstance(value, str) and value in NOT_FINITE:
        return width(NOT_FINITE[value])
    if isinstance(value, float):
        found = width(value)
        if found != value and value == value:
            raise refusal(value, Type.FLOAT32)
        return found
    number = _number(schema, value)
    nearest = width(float32_of(number) if width is Float32 else float(number))
    if not _stands_for(nearest, number, width):
        raise refusal(value, Type.FLOAT32 if width is Float32 else Type.FLOAT64)
    if not nearest and isinstance(value, str) and value.startswith("-"):
        return width(-0.0)
    return nearest


def _stands_for(nearest: float, number: Decimal, width: type) -> bool:
    if math.isinf(nearest):
        return False
    if Decimal(nearest) == number or Decimal(float_text(nearest)) == number:
        return True
    digits = number.as_tuple().digits
    most = _FLOAT_DIGITS[width]
    is_written_out = number.adjusted() < most and number == number.to_integral_value()
    return bool(nearest) and not is_written_out and len(str(int("".join(map(str, digits[: most + 1]))))) <= most


def exact_scale(value: Any, scale: int) -> Decimal:
    """Return a number as a decimal of this scale. Raises NumberFormatException for text that is not a number."""
    number = decimal_of(float_text(value)) if isinstance(value, float) else exact_decimal(value)
    if number is None:
        if isinstance(value, str):
            raise NumberFormatException(f"{shape_of(value)} is not a number")
        raise refusal(value, "a decimal")
    if scale_of(number) == scale:
        return number
    if max(number.adjusted() if number else 0, 0) + scale > _MOST_DIGITS or not in_range(scale, 32):
        raise refusal(value, f"a decimal of scale {scale}")
    rescaled = number.quantize(Decimal((0, (1,), -scale)), context=EXACT)
    if rescaled != number:
        raise refusal(value, f"a decimal of scale {scale}")
    return rescaled


def exact_instant(schema: Schema | None, value: Any, target: str) -> Instant:
    """Return an instant, its text or its number as the date, time or timestamp that `target` names."""
    if isinstance(value, str):
        found = instant_of(value, target)
        if found is not None:
            return _fitting(found, target)
    elif isinstance(value, Instant):
        if schema is not None and (
            schema.name not in ORDINALS or {schema.name, target} == {LogicalName.DATE, LogicalName.TIME}
        ):
            raise refusal(value, target)
        return _fitting(value, target)
    number = exact_integer(None, value, 64 if target == LogicalName.TIMESTAMP else 32)
    return ORDINALS[target][1](number)


def _fitting(value: Instant, target: str) -> Instant:
    """Return an instant. Raises DataException for a date with a time of the day, and for a time with a date."""
    ORDINALS[target][0](value)
    return value


def lossless_text(schema: Schema | None, value: Instant) -> str:
    """Return the text of an instant by its schema: a date's day, a time's time, a timestamp's both.

    Both, too, if it does not fit its schema. Without a schema, from 1970 on as Kafka prints it, before that both. The
    calendar is the proleptic Gregorian one.
    """
    ms, name = value.epoch_ms, None if schema is None else schema.name
    if name == LogicalName.DATE and ms % DAY_MS == 0:
        return date_text(ms)
    if name == LogicalName.TIME and 0 <= ms < DAY_MS:
        return time_text(ms)
    if name in ORDINALS or ms < 0:
        return timestamp_text(ms)
    if ms < DAY_MS:
        return time_text(ms)
    return date_text(ms) if ms % DAY_MS == 0 else timestamp_text(ms)


def instant_of(text: str, target: str | None = None) -> Instant | None:
    """Return the instant of a date, a time or both, if the text is exactly what `lossless_text` writes; else None.

    A time alone counts only if `target` is None or a time: Kafka prints all instants before 1970-01-02 as times.
    """
    match = TEMPORAL.fullmatch(text)
    if match is None:
        return None
    if match["time"]:
        if target not in (None, LogicalName.TIME):
            return None
        ms = _time_ms(match["time"])
        return Instant(ms) if time_text(ms) == text else None
    year, month, day = match["date"].rsplit("-", 2)
    days = days_to_year_month(int(year), int(month) - 1, is_julian=False) + int(day) - 1 - EPOCH_DAY
    ms = days * DAY_MS + (_time_ms(match["at"]) if match["at"] else 0)
    again = timestamp_text(ms) if match["at"] else date_text(ms)
    return Instant(ms) if again == text and in_range(ms, 64) else None


def _time_ms(text: str) -> int:
    hour, minute, second = text.split(":")
    return (int(hour) * 60 + int(minute)) * 60_000 + int(second.replace(".", ""))
