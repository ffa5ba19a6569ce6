"""A point in time, in whole milliseconds: what Java's `java.util.Date` is, and Kafka Connect's dates and times are."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from typing import Final

from statestore.connect.numbers import in_range
from statestore.errors import DataException
from statestore.errors.readable import shape_of

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
DAY_MS: Final = 24 * 60 * 60 * 1000
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, order=True)
class Instant:
    """Milliseconds since 1970-01-01 00:00 UTC, 64 bits with a sign. A date is its midnight, a time one of 1970-01-01.

    Raises DataException if 64 bits do not hold it.
    """

    epoch_ms: int

    def __post_init__(self) -> None:
        if not in_range(self.epoch_ms, 64):
            raise DataException(f"{shape_of(self.epoch_ms)} is out of the range of a timestamp")
        object.__setattr__(self, "epoch_ms", int(self.epoch_ms))  # of any width, as which it would not compare

    @classmethod
    def of(cls, value: Instant | datetime | date | time) -> Instant:
        """Return the instant of a datetime, date or time; one without a zone is in UTC.

        Less than a millisecond is cut off, downwards. Raises DataException for anything else.
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
        raise DataException(f"{type(value).__name__} is no point in time")

    def to_datetime(self) -> datetime:
        """Return the instant in UTC. Raises DataException before year 1 and after 9999, which Python does not know."""
        try:
            return _EPOCH + timedelta(milliseconds=self.epoch_ms)
        except OverflowError as cause:
            raise DataException("the milliseconds since 1970 are no date of the years 1 to 9999") from cause

    def to_date(self) -> date:
        """Return the day in UTC. Raises as `to_datetime` does."""
        return self.to_datetime().date()

    def to_time(self) -> time:
        """Return the time of the day in UTC, without a zone."""
        return (_EPOCH + timedelta(milliseconds=self.epoch_ms % DAY_MS)).time()
