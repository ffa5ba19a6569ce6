"""The record that flows through a topology. Source: Kafka Streams' api.Record and RecordMetadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from operator import attrgetter, index
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

from statestore.format.values.value_timestamp_headers import UNKNOWN_TIMESTAMP_MS
from statestore.headers.record_headers import Headers, blank_headers

if TYPE_CHECKING:
    from typing_extensions import Self  # typing has it from Python 3.11 on

HeadersLike: TypeAlias = "Headers | Iterable[tuple[str, bytes | None]]"

_MAX_TIME_MS = 2**63 - 1

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")


class RecordFields(Generic[K, V]):
    """A key, a value, a timestamp in milliseconds and headers. Two records of one kind are equal if these are."""

    __slots__ = ("_headers", "key", "timestamp_ms", "value")

    key: K
    value: V
    timestamp_ms: int | None
    _headers: Headers

    def _set_headers(self, headers: HeadersLike) -> None:
        if headers is None:
            raise TypeError("the headers of a record must not be None: pass () for no headers")
        self._headers = Headers(headers)

    # attrgetter reads in C, because every record is read. The task itself reads the field.
    headers: Headers = property(attrgetter("_headers"), _set_headers)  # type: ignore[assignment]
    """The record's own headers, never None. Setting them copies."""

    @classmethod
    def adopt(cls, key: K, value: V, timestamp_ms: int | None, headers: Headers) -> Self:
        """Return a record whose headers are `headers` themselves. Nothing is checked: one is made of every input."""
        record = cls.__new__(cls)
        record.key = key
        record.value = value
        record.timestamp_ms = timestamp_ms
        record._headers = headers
        return record

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RecordFields) or not (isinstance(other, type(self)) or isinstance(self, type(other))):
            return NotImplemented
        return (
            bool(self.key == other.key)
            and bool(self.value == other.value)
            and self.timestamp_ms == other.timestamp_ms
            and self.headers == other.headers
        )

    __hash__ = None  # type: ignore[assignment]  # headers are mutable

    def __repr__(self) -> str:
        fields = f"{self.key!r}, {self.value!r}, timestamp_ms={self.timestamp_ms}, headers={self.headers!r}"
        return f"{type(self).__name__}({fields})"


class Record(RecordFields[K, V]):
    """A key, a value, a timestamp in milliseconds since the epoch, and headers. Key and value may be None.

    A record owns its headers: it copies those that it is given, as in Kafka, and the `with_` methods copy them again.
    Copying Headers parses nothing; pairs of keys and values will do too. A timestamp of -1 is unknown, as that of a
    store's entry from before the store had timestamps: `forward` replaces it by that of the record being processed.
    Raises ValueError for any other negative timestamp and for one of more than 64 bits, TypeError for one that is not a
    whole number.
    """

    __slots__ = ()

    timestamp_ms: int

    def __init__(self, key: K, value: V, timestamp_ms: int, headers: HeadersLike | None = None) -> None:
        if timestamp_ms.__class__ is not int or not 0 <= timestamp_ms <= _MAX_TIME_MS:
            timestamp_ms = _require_time(timestamp_ms)
        self.key = key
        self.value = value
        self.timestamp_ms = timestamp_ms
        self._headers = headers.copy() if headers.__class__ is Headers else own_headers(headers)

    def with_key(self, key: K2) -> Record[K2, V]:
        """Return this record with another key."""
        return Record(key, self.value, self.timestamp_ms, self._headers)

    def with_value(self, value: V2) -> Record[K, V2]:
        """Return this record with another value."""
        headers, timestamp_ms = self._headers, self.timestamp_ms
        if (
            headers.__class__ is not Headers
            or timestamp_ms.__class__ is not int
            or not 0 <= timestamp_ms <= _MAX_TIME_MS
        ):
            return Record(self.key, value, timestamp_ms, headers)
        # What Record and Headers.copy do, in place: most records that are forwarded are made here.
        record: Record[K, V2] = blank_record()
        record.key = self.key
        record.value = value
        record.timestamp_ms = timestamp_ms
        record._headers = copied = blank_headers()
        copied._bytes = headers._bytes
        copied._headers = headers._headers
        copied._frozen = False
        return record

    def with_timestamp_ms(self, timestamp_ms: int) -> Record[K, V]:
        """Return this record with another timestamp. Raises what Record raises."""
        return Record(self.key, self.value, timestamp_ms, self._headers)

    def with_headers(self, headers: HeadersLike) -> Record[K, V]:
        """Return this record with a copy of other headers."""
        return Record(self.key, self.value, self.timestamp_ms, headers)


blank_record: Callable[[], Record[Any, Any]] = partial(object.__new__, Record)
"""Makes an empty record, to be filled with fields that were checked."""


def own_headers(headers: HeadersLike | None) -> Headers:
    """Return a copy of headers; None is no headers. Raises what Headers raises."""
    return Headers(() if headers is None else headers)


def _require_time(timestamp_ms: object) -> int:
    try:
        checked = index(timestamp_ms)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"the timestamp of a record must be a whole number, got {timestamp_ms!r}") from None
    if checked != UNKNOWN_TIMESTAMP_MS and not 0 <= checked <= _MAX_TIME_MS:
        raise ValueError(f"the timestamp of a record must be from 0 to 2^63 - 1, or -1 if it is unknown, got {checked}")
    return checked


class RecordMetadata(NamedTuple):
    """Where the record that is being processed came from."""

    topic: str
    partition: int
    offset: int
