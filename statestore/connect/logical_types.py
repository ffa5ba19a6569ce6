"""The four logical types, and what their values stand for.

Source: Kafka Connect's `Decimal`, `Date`, `Time` and `Timestamp`.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, ROUND_FLOOR, Context, Decimal
from typing import Final

from statestore.connect.scalars import DAY_MS, Instant, in_range
from statestore.connect.schema import SCALE, LogicalName, Schema
from statestore.errors import DataException
from statestore.errors.data import NullValueException
from statestore.errors.readable import shape_of


def scale_of(value: Decimal) -> int:
    """Return how many digits a decimal has behind the point. Raises DataException if it is infinite or NaN."""
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int):
        raise DataException("A decimal must be a finite number")
    return -exponent


def decimal_to_bytes(schema: Schema, value: Decimal) -> bytes:
    """Return a decimal's digits as the fewest bytes, big end first.

    Raises DataException if the scale differs, or there are more than 24,000 digits.
    """
    scale, own = scale_of_schema(schema), scale_of(value)
    if scale != own:
        raise DataException(
            "Decimal value has mismatching scale for given Decimal schema. "
            f"Schema has scale {scale}, value has scale {own}."
        )
    if len(value.as_tuple().digits) > _MOST_DIGITS:
        raise DataException(f"A decimal of {len(value.as_tuple().digits)} digits has more than {_MOST_DIGITS}")
    unscaled = int(value.scaleb(scale, _EXACT))
    return unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)


_EXACT: Final = Context(prec=MAX_PREC, rounding=ROUND_FLOOR, Emax=MAX_EMAX, Emin=MIN_EMIN)
_MOST_DIGITS: Final = 24_000
_MOST_UNSCALED_BYTES: Final = 10_000
"""As many as those digits need. Python's conversion between digits and bytes takes quadratic time."""


def decimal_from_bytes(schema: Schema, value: bytes) -> Decimal:
    """Return the decimal of digits as `decimal_to_bytes` makes them.

    Raises DataException if there are none, or more than 10,000 bytes.
    """
    if not value:
        raise DataException("Invalid Decimal: there are no bytes")
    if len(value) > _MOST_UNSCALED_BYTES:
        raise DataException(f"A decimal of {len(value)} bytes has more than {_MOST_UNSCALED_BYTES}")
    return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale_of_schema(schema), _EXACT)


def scale_of_schema(schema: Schema) -> int:
    """Return how many digits decimals of a schema have behind the point. Raises DataException if it has no scale."""
    if not schema.parameters:
        raise NullValueException("Invalid Decimal schema: there are no parameters, and so no scale")
    text = schema.parameters.get(SCALE)
    if text is None:
        raise DataException("Invalid Decimal schema: scale parameter not found.")
    try:
        scale = int(text)
    except ValueError:
        # Python's message would quote the text.
        raise DataException(f"Invalid scale parameter found in Decimal schema: {shape_of(text)}") from None
    if not in_range(scale, 32):
        raise DataException(f"Invalid scale parameter found in Decimal schema: {shape_of(text)}")
    return scale


def date_to_days(value: Instant) -> int:
    """Return a date as days since 1970-01-01. Raises DataException if it has a time of the day."""
    days, rest = divmod(value.epoch_ms, DAY_MS)
    if rest:
        raise DataException("Kafka Connect Date type should not have any time fields set to non-zero values.")
    return days


def days_to_date(days: int) -> Instant:
    """Return the date so many days after 1970-01-01."""
    return Instant(days * DAY_MS)


def time_to_milliseconds(value: Instant) -> int:
    """Return a time as milliseconds since midnight, 24:00 included. Raises DataException if it has a date."""
    if not 0 <= value.epoch_ms <= DAY_MS:
        raise DataException("Kafka Connect Time type should not have any date fields set to non-zero values.")
    return value.epoch_ms


def milliseconds_to_time(milliseconds: int) -> Instant:
    """Return the time so many milliseconds after midnight. Raises DataException outside of 0 to 86,400,000."""
    if not in_range(milliseconds, 32) or not 0 <= milliseconds <= DAY_MS:
        raise DataException("Time values must use number of milliseconds greater than 0 and less than 86400000")
    return Instant(milliseconds)


ORDINALS: Final[dict[str | None, tuple[Callable[[Instant], int], Callable[[int], Instant]]]] = {
    LogicalName.DATE: (date_to_days, days_to_date),
    LogicalName.TIME: (time_to_milliseconds, milliseconds_to_time),
    LogicalName.TIMESTAMP: (lambda value: value.epoch_ms, Instant),
}
"""The functions that make an integer of a date, a time or a timestamp and back, by the name of its schema.

They raise DataException for a value that is not of the type.
"""
