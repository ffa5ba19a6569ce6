"""Values that Python lacks: numbers of a fixed width, as Java's are, and points in time in whole milliseconds.

What Kafka Connect does with a number depends on its width. A plain `int` stands for INT64 and a plain `float` for
FLOAT64 where no schema says otherwise; where one does, it may be of any width that holds it. Arithmetic gives plain
numbers again. An Instant is what `java.util.Date` is to Java: a date, a time or a timestamp of Kafka Connect.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import ClassVar, Final, TypeVar

from statestore.errors import DataException
from statestore.errors.readable import shape_of

_Integer = TypeVar("_Integer", bound="_SizedInt")
_FLOAT32: Final = struct.Struct(">f")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
DAY_MS: Final = 24 * 60 * 60 * 1000
_MILLISECOND: Final = timedelta(milliseconds=1)


class _SizedInt(int):
    """A signed integer of a fixed width."""

    bits: ClassVar[int]

    def __new__(cls: type[_Integer], value: int) -> _Integer:
        if not in_range(value, cls.bits):
            raise DataException(f"{shape_of(value)} is out of the range of {cls.__name__.upper()}")
        return super().__new__(cls, value)

    @classmethod
    def wrapped(cls: type[_Integer], value: int) -> _Integer:
        """Return the number that the lowest bits of a larger one make, as Java's casts do: 300 is 44 in eight bits."""
        half = 1 << (cls.bits - 1)
        return cls((value + half) % (half << 1) - half)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int(self)})"

    __str__ = int.__repr__


class Int8(_SizedInt):
    """A Java byte: -128 to 127."""

    bits = 8


class Int16(_SizedInt):
    """A Java short: -32,768 to 32,767."""

    bits = 16


class Int32(_SizedInt):
    """A Java int: 32 bits with a sign."""

    bits = 32


class Int64(_SizedInt):
    """A Java long: 64 bits with a sign."""

    bits = 64


class _SizedFloat(float):
    """A floating-point number of a fixed width."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({float(self)!r})"

    __str__ = float.__repr__


class Float64(_SizedFloat):
    """A Java double."""


class Float32(_SizedFloat):
    """A Java float: the nearest number of single precision, infinity for what is larger than all of them."""

    def __new__(cls, value: float) -> Float32:
        """Round the value."""
        try:
            (rounded,) = _FLOAT32.unpack(_FLOAT32.pack(value))
        except OverflowError:
            rounded = float("inf") if value > 0 else float("-inf")
        return super().__new__(cls, rounded)


def in_range(value: int | Decimal, bits: int) -> bool:
    """Return whether a signed integer of so many bits can hold a number."""
    half = 1 << (bits - 1)
    return -half <= value < half


@dataclass(frozen=True, order=True)
class Instant:
    """Milliseconds since 1970-01-01 00:00 UTC, 64 bits with a sign. A date is its midnight, a time one of 1970-01-01.

    Raises DataException if 64 bits do not hold it.
    """

    epoch_ms: int

    def __post_init__(self) -> None:
        if not in_range(self.epoch_ms, 64):
            raise DataException(f"{shape_of(self.epoch_ms)} is out of the range of a timestamp")
        object.__setattr__(self, "epoch_ms", int(self.epoch_ms))  # a plain int, whatever width it came with

    @classmethod
    def of(cls, value: Instant | datetime | date | time) -> Instant:
        """Return the instant of a datetime, date or time; one without a zone is in UTC.

        Fractions of a millisecond are rounded down. Raises DataException for anything else.
        """
        if isinstance(value, cls):
            return value
        if isinstance(value, datetime):
            aware = value if value.tzinfo is not None else value.replace(tzinfo=timezone.utc)
            return cls((aware - _EPOCH) // _MILLISECOND)
        if isinstance(value, date):
            return cls.of(datetime.combine(value, time()))
        if isinstance(value, time):
            return cls.of(datetime.combine(_EPOCH.date(), value))
        raise DataException(f"{type(value).__name__} is not a datetime, date or time")

    def to_datetime(self) -> datetime:
        """Return the instant in UTC. Raises DataException before year 1 and after 9999, which Python does not know."""
        try:
            return _EPOCH + timedelta(milliseconds=self.epoch_ms)
        except OverflowError as cause:
            raise DataException("the point in time is outside of the years 1 to 9999") from cause

    def to_date(self) -> date:
        """Return the day in UTC. Raises as `to_datetime` does."""
        return self.to_datetime().date()

    def to_time(self) -> time:
        """Return the time of the day in UTC, without a zone."""
        return (_EPOCH + timedelta(milliseconds=self.epoch_ms % DAY_MS)).time()
