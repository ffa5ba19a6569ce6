"""Dates and times as Java writes and, leniently, reads them: patterns of `SimpleDateFormat`, in UTC.

A number of a date may be of any size and sign, with blanks before it: the 45th of month 13 is a day of the next year.
Before 1582-10-15 the Julian calendar holds. What follows the last part of the pattern does not matter.

Source: `SimpleDateFormat.parse` and `format`, `DecimalFormat.parse`, `GregorianCalendar`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import zip_longest
from typing import Final, NamedTuple

from statestore.connect.scalars import DAY_MS, Instant, Int32, Int64, in_range
from statestore.connect.schema import Schema
from statestore.connect.values.number_text import long_of

_DIGIT: Final = r"[^\D\U00010000-\U0010ffff]"
"""A digit of any script; those beyond 16 bits are no digits to Java."""
_NUMBER: Final = re.compile(
    rf"NaN|(?P<sign>-?)(?:(?P<infinity>\u221e)|(?P<digits>{_DIGIT}+)(?:E(?P<exponent>-?{_DIGIT}+))?)"
)
_MOST_LONG_DIGITS: Final = 19
_BLANKS: Final = " \t"
_GREGORIAN_FROM: Final = 577_736  # 1582-10-15, in days since the day before 0001-01-01
EPOCH_DAY: Final = 719_163  # 1970-01-01
_CUTOVER_YEAR: Final = 1582
_INT32_MOST: Final = (1 << 31) - 1


_TOKENS: Final = re.compile(r"(?P<quote>'')|'(?P<quoted>(?:''|[^'])+)'|(?P<letter>[A-Za-z])(?P=letter)*|[^'A-Za-z]+|'")
_LETTERS: Final = ("yyyy", "M", "MM", "X", "XX", "XXX", "Z")
_COUNTED: Final = "dHmsS"
_UNITS_MS: Final = {"S": 1, "s": 1000, "m": 60_000, "H": 3_600_000}


class _Field(NamedTuple):
    """A number of a date, or its zone."""

    letter: str
    width: int
    is_abutting: bool
    """Whether a number follows without anything between, so that this one ends after so many characters."""


@dataclass(frozen=True)
class DateFormat:
    """A pattern of numbers and text: yyyy, M, MM, d, H, m, s and S of any count, X, XX, XXX and Z for the zone.

    Args:
        pattern: as `SimpleDateFormat` has it; text with letters is between quotes, of which two are one.
        schema: what texts of it are.

    Raises ValueError for other letters, and a quote without an end.
    """

    pattern: str
    schema: Schema = Schema.TIMESTAMP_SCHEMA
    parts: tuple[str | _Field, ...] = field(init=False, repr=False, compare=False)
    """The fields, and what has to stand in the text between them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(_parts(self.pattern)))

    @property
    def length(self) -> int:
        """The count of 16-bit characters that a text must have to be of this pattern."""
        return len(self.pattern.replace("'", ""))

    @property
    def unit_ms(self) -> int:
        """How far instants may lie apart, at most, that have the same text: those between two multiples of it do."""
        return min(
            (_UNITS_MS.get(part.letter, DAY_MS) for part in self.parts if not isinstance(part, str)), default=DAY_MS
        )

    def instant_of(self, text: str, *, is_exact: bool) -> int | None:
        """Return the milliseconds of a text, None if it is not of the pattern; an exact one prints as itself again."""
        found = _fields(text, self)
        if found is None:
            return None
        fields, zone = found
        local_ms = _epoch_ms(fields)
        if is_exact and self.text_of(local_ms, zone) != text:
            return None
        return Int64.wrapped(local_ms - fields.get(_OFFSET_MS, 0))

    def text_of(self, epoch_ms: int, zone: str = "") -> str:
        """Return the text of an instant, with the text of a zone in place of that of UTC."""
        day, ms = divmod(epoch_ms, DAY_MS)
        year, month, day_of_month = year_month_day(day, is_julian=day + EPOCH_DAY < _GREGORIAN_FROM)
        seconds, ms = divmod(ms, 1000)
        numbers = {
            "y": year if year > 0 else 1 - year,  # of its era
            "M": month,
            "d": day_of_month,
            "H": seconds // 3600,
            "m": seconds // 60 % 60,
            "s": seconds % 60,
            "S": ms,
        }
        return "".join(
            part if isinstance(part, str) else _zone_text(part, zone) or f"{numbers[part.letter]:0{part.width}}"
            for part in self.parts
        )


_UTC: Final = {"X": "Z", "Z": "+0000"}
_OFFSET_MS: Final = "X"
_HOURS: Final = "(?P<hours>[+-](?:[01][0-9]|2[0-3]))"
_ZONES: Final = {
    "X": re.compile(f"Z|{_HOURS}"),
    "XX": re.compile(f"Z|{_HOURS}(?P<minutes>[0-5][0-9])"),
    "XXX": re.compile(f"Z|{_HOURS}:(?P<minutes>[0-5][0-9])"),
    "Z": re.compile(f"{_HOURS}(?P<minutes>[0-5][0-9])"),
}
"""How zones are read, without names of them."""


def _zone_text(part: _Field, zone: str) -> str:
    """Return the text of a zone, "" for another field."""
    return zone or _UTC[part.letter] if part.letter in _UTC else ""


def _parts(pattern: str) -> Iterator[str | _Field]:
    tokens = list(_TOKENS.finditer(pattern))
    for token, following in zip_longest(tokens, tokens[1:]):
        letters, letter = token[0], token["letter"]
        if letter is None:
            if letters == "'":
                raise ValueError(f"the quote at {token.start()} has no end")
            yield "'" if token["quote"] else (token["quoted"] or letters).replace("''", "'")
        elif letters in _LETTERS or letter in _COUNTED:
            yield _Field(letter, len(letters), following is not None and (following["letter"] or "X") not in "XZ")
        else:
            raise ValueError(f"{letters} is not one of yyyy, MM, dd, HH, mm, ss, SSS, XXX, Z and quoted text")


DATE: Final = DateFormat("yyyy-MM-dd", Schema.DATE_SCHEMA)
TIME: Final = DateFormat("HH:mm:ss.SSS'Z'", Schema.TIME_SCHEMA)
TIMESTAMP: Final = DateFormat("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'", Schema.TIMESTAMP_SCHEMA)
BY_LENGTH: Final = {each.length: each for each in (DATE, TIME, TIMESTAMP)}
LONGEST: Final = 2 * TIMESTAMP.length
"""No text of more characters is a date, its escaped colons included."""


def format_for(value: Instant) -> DateFormat:
    """Return how Kafka prints an instant: all before 1970-01-02 as a time, midnights as dates."""
    if value.epoch_ms < DAY_MS:
        return TIME
    return DATE if value.epoch_ms % DAY_MS == 0 else TIMESTAMP


def temporal_of(text: str) -> tuple[Schema, Instant] | None:
    """Return the date, time or timestamp that Kafka takes a text for; its length says which. None if it takes none."""
    if len(text) > LONGEST:
        return None
    plain = text.replace("\\:", ":")
    kind = BY_LENGTH.get(len(plain) + sum(character > "\uffff" for character in plain))
    if kind is None:
        return None
    fields = _fields(plain, kind)
    return None if fields is None else (kind.schema, Instant(_epoch_ms(fields[0])))


def _fields(text: str, kind: DateFormat) -> tuple[dict[str, int], str] | None:
    """Return the numbers of a text by letter, and the text of its zone, None if it is not of the pattern."""
    fields: dict[str, int] = {}
    zone = ""
    place = 0
    for part in kind.parts:
        if isinstance(part, str):
            if not text.startswith(part, place):
                return None
            place += len(part)
            continue
        end = place + part.width if part.is_abutting else len(text)
        while text[place : place + 1] and text[place] in _BLANKS:
            place += 1
        if part.letter in _UTC:
            read = _ZONES[part.letter * min(part.width, 3 if part.letter == "X" else 1)].match(text, place)
            if read is None:
                return None
            zone, place = read[0], read.end()
            fields[_OFFSET_MS] = _offset_ms(read)
            continue
        found = _number(text[:end], place) if end <= len(text) else None
        if found is None:
            return None
        fields[part.letter], place = found
    return fields, zone


def _offset_ms(zone: re.Match[str]) -> int:
    parts = zone.groupdict()
    hours, minutes = parts["hours"] or "0", parts.get("minutes") or "0"
    return (int(hours) * 60 + int(f"{hours[0]}{minutes}" if hours[0] in "+-" else minutes)) * 60_000


def _number(text: str, place: int) -> tuple[int, int] | None:
    """Return a number of 32 bits and where it ends: digits of any script, Java's exponent, NaN or an infinity."""
    found = _NUMBER.match(text, place)
    if found is None:
        return None
    is_negative = found["sign"] == "-"
    if found["digits"] is None:
        infinity = -_INT32_MOST - 1 if is_negative else _INT32_MOST
        return (infinity if found["infinity"] else 0), found.end()
    # Ints would refuse more than 4,300 digits.
    exponent, end = Decimal(found["exponent"] or 0), found.end()
    if not in_range(exponent, Int64.bits):
        exponent, end = Decimal(), found.end("digits")
    return _int32(str(Decimal(found["digits"])), Int32.wrapped(int(exponent)), is_negative=is_negative), end


def _int32(digits: str, exponent: int, *, is_negative: bool) -> int:
    """Return the lowest 32 bits of what 64 bits hold; of a larger number or a fraction, what its double is cut to."""
    significant = digits.rstrip("0")
    if not significant:
        return 0
    point = Int32.wrapped(len(digits) + exponent)
    if len(significant) <= point <= _MOST_LONG_DIGITS:
        value = int(significant) * 10 ** (point - len(significant))
        signed = -value if is_negative else value
        if in_range(signed, Int64.bits):
            return Int32.wrapped(signed)
    double = float(f"{'-' if is_negative else ''}0.{significant}E{point}")
    return min(max(long_of(double), -_INT32_MOST - 1), _INT32_MOST)


def _epoch_ms(fields: dict[str, int]) -> int:
    seconds = (fields.get("H", 0) * 60 + fields.get("m", 0)) * 60 + fields.get("s", 0)
    days, rest_ms = divmod(seconds * 1000 + fields.get("S", 0), DAY_MS)
    year, month, day = fields.get("y", 1970), Int32.wrapped(fields.get("M", 1) - 1), fields.get("d", 1)
    return int(Int64.wrapped((_day_number(year, month, day, days) - EPOCH_DAY) * DAY_MS + rest_ms))


def _day_number(year: int, month: int, day: int, more_days: int) -> int:
    """Return the number of a day, month 0 being January, in the calendar that Java takes for its year and day."""
    gregorian = days_to_year_month(year, month, is_julian=False) + day - 1 + more_days
    if year >= _CUTOVER_YEAR and gregorian >= _GREGORIAN_FROM:
        return gregorian
    return days_to_year_month(year, month, is_julian=True) + day - 1 + more_days


def days_to_year_month(year: int, month: int, *, is_julian: bool) -> int:
    """Return the number of a month's first day; month 0 is January, others are in other years."""
    years, month = divmod(month, 12) if month < 0 else (month // 12, month % 12)
    year = Int32.wrapped(year + years)
    before = year - 1
    days = 365 * before + before // 4 + (367 * (month + 1) - 362) // 12 + 1
    if is_julian:
        is_leap = year % 4 == 0
        days -= 2
    else:
        is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        days += before // 400 - before // 100
    return days if month < 2 else days - (1 if is_leap else 2)


def year_month_day(day: int, *, is_julian: bool = False) -> tuple[int, int, int]:
    """Return the year, month from 1 and day of a count of days since 1970-01-01, in the Gregorian calendar or not."""
    # A year that begins in March has its odd day at its end.
    if is_julian:
        era, day_of_era = divmod(day + 719_470, 1461)
        years, year_of_era = 4, (day_of_era - day_of_era // 1460) // 365
        day_of_year = day_of_era - 365 * year_of_era
    else:
        era, day_of_era = divmod(day + 719_468, 146_097)
        years, year_of_era = (
            400,
            (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365,
        )
        day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    month = month_from_march + 3 if month_from_march < 10 else month_from_march - 9
    return (
        year_of_era + era * years + (month <= 2),
        month,
        day_of_year - (153 * month_from_march + 2) // 5 + 1,
    )


def date_text(epoch_ms: int) -> str:
    """Return the day of an instant in the Gregorian calendar: `2017-05-21`; years of more digits have them all."""
    year, month, day = year_month_day(epoch_ms // DAY_MS)
    return f"{'-' if year < 0 else ''}{abs(year):04}-{month:02}-{day:02}"


def time_text(epoch_ms: int) -> str:
    """Return the time of the day of an instant: `16:31:05.387Z`."""
    seconds, ms = divmod(epoch_ms % DAY_MS, 1000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{ms:03}Z"


def timestamp_text(epoch_ms: int) -> str:
    """Return an instant's day and time: `2017-05-21T16:31:05.387Z`."""
    return f"{date_text(epoch_ms)}T{time_text(epoch_ms)}"


def instant_text(schema: object, value: Instant) -> str:
    """Return an instant as Kafka prints it: its schema does not matter."""
    return format_for(value).text_of(value.epoch_ms)
