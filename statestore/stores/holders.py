"""What stores hold of a key: a value with what it was written with. Source: KIP-1271 and KIP-258, KIP-889.

Their fields can't be set. A holder copies the headers it is given: changing its headers changes neither those nor the
store that it came from. They are Headers, or bytes in KIP-1271's encoding, which are not checked. Making a holder
raises TypeError for other headers, such as a dict, and ValueError for a time that is not a whole number of up to 64
bits. Negative times are taken, as in Kafka: -1 is that of a value from a store without timestamps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import index
from typing import Any, ClassVar, Final, Generic, TypeVar

from statestore.errors.readable import shape_of
from statestore.headers.record_headers import Headers

V = TypeVar("V")

_LEAST_MS: Final = -(2**63)
_GREATEST_MS: Final = 2**63 - 1
_NO_TIME: Final = _GREATEST_MS + 1


def _require_time(name: str, time_ms: object) -> int:
    """Return a time in milliseconds. Raises ValueError, naming it, unless it is a whole number of up to 64 bits."""
    try:
        checked = _NO_TIME if isinstance(time_ms, bool) else index(time_ms)  # type: ignore[arg-type]
    except TypeError:
        checked = _NO_TIME
    if not _LEAST_MS <= checked <= _GREATEST_MS:
        raise ValueError(f"{name} must be a whole number of milliseconds, of up to 64 bits, got {time_ms!r}")
    return checked


def _own_bytes(headers: object) -> bytes:
    """Return the bytes of headers as they are now: what was encoded before is neither parsed nor encoded again."""
    if isinstance(headers, bytes):
        return headers
    if not isinstance(headers, Headers):
        raise TypeError(f"headers must be Headers, not {shape_of(headers)}: write Headers([(key, value), ...])")
    return headers.to_bytes()


class _Holder:
    """Equality, pickling and repr by the fields."""

    __slots__ = ()
    _FIELDS: ClassVar[tuple[str, ...]]

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, field) for field in self._FIELDS)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        assert isinstance(other, _Holder)
        return self._values() == other._values()

    __hash__ = None  # type: ignore[assignment]  # headers are mutable, and values may be

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in zip(self._FIELDS, self._values(), strict=True))
        return f"{type(self).__name__}({fields})"

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), self._values()


class _Timestamped(_Holder, Generic[V]):
    __slots__ = ("_timestamp_ms", "_value")

    def __init__(self, value: V, timestamp_ms: int) -> None:
        if timestamp_ms.__class__ is not int or not _LEAST_MS <= timestamp_ms <= _GREATEST_MS:
            timestamp_ms = _require_time("timestamp_ms", timestamp_ms)
        self._value = value
        self._timestamp_ms = timestamp_ms

    @property
    def value(self) -> V:
        """The value."""
        return self._value

    @property
    def timestamp_ms(self) -> int:
        """Milliseconds since the epoch; -1 where the value came from a store without timestamps."""
        return self._timestamp_ms

    @staticmethod
    def get_value_or_null(holder: _Timestamped[V] | None) -> V | None:
        """Return the value in `holder`, None if `holder` is None."""
        return None if holder is None else holder.value


class _Headed(_Holder):
    """Headers, which may be given as their bytes and become Headers when they are asked for."""

    __slots__ = ()
    _headers: Headers | bytes

    @property
    def headers(self) -> Headers:
        """The headers, not parsed before they are looked into. They are the holder's own, and can be changed."""
        headers = self._headers
        if isinstance(headers, bytes):
            headers = Headers.from_bytes(headers)
            self._headers = headers  # type: ignore[misc]  # the slot is in the classes below
        return headers

    @property
    def header_bytes(self) -> bytes:
        """The headers in KIP-1271's encoding, empty for none."""
        headers = self._headers
        return headers if isinstance(headers, bytes) else headers.to_bytes()


class ValueAndTimestamp(_Timestamped[V]):
    """A value with the timestamp it was written with: what a timestamped store without headers holds."""

    __slots__ = ()
    _FIELDS = ("value", "timestamp_ms")

    @classmethod
    def make(cls, value: V | None, timestamp_ms: int) -> ValueAndTimestamp[V] | None:
        """Return value and timestamp as one; None if the value is None."""
        return None if value is None else cls(value, timestamp_ms)

    @classmethod
    def make_allow_nullable(cls, value: V | None, timestamp_ms: int) -> ValueAndTimestamp[V | None]:
        """Return value and timestamp as one, also for a value of None."""
        return ValueAndTimestamp(value, timestamp_ms)


class ValueTimestampHeaders(_Timestamped[V], _Headed):
    """A value with the timestamp and headers it was written with."""

    __slots__ = ("_headers",)
    _FIELDS = ("value", "timestamp_ms", "headers")

    def __init__(self, value: V, timestamp_ms: int, headers: Headers | bytes) -> None:
        # Every read and write makes one of these: the checks are inline because calls would cost more than they do.
        if timestamp_ms.__class__ is not int or not -0x8000000000000000 <= timestamp_ms <= 0x7FFFFFFFFFFFFFFF:
            timestamp_ms = _require_time("timestamp_ms", timestamp_ms)
        if headers.__class__ is bytes:
            self._headers = headers
        elif headers.__class__ is Headers and headers._bytes is not None:
            self._headers = headers._bytes
        else:
            self._headers = _own_bytes(headers)
        self._value = value
        self._timestamp_ms = timestamp_ms

    @classmethod
    def make(
        cls, value: V | None, timestamp_ms: int, headers: Headers | None = None
    ) -> ValueTimestampHeaders[V] | None:
        """Return value, timestamp and headers as one; None if the value is None. Headers of None mean none."""
        return None if value is None else cls(value, timestamp_ms, b"" if headers is None else headers)

    @classmethod
    def make_allow_nullable(
        cls, value: V | None, timestamp_ms: int, headers: Headers | None = None
    ) -> ValueTimestampHeaders[V | None]:
        """Return value, timestamp and headers as one, also for a value of None. Headers of None mean none."""
        return ValueTimestampHeaders(value, timestamp_ms, b"" if headers is None else headers)


blank_value_timestamp_headers: Callable[[], ValueTimestampHeaders[Any]] = partial(object.__new__, ValueTimestampHeaders)
"""Makes a holder of nothing, for the codec to fill in: what is stored needs no checks, and every read makes one."""


class AggregationWithHeaders(_Headed, Generic[V]):
    """The aggregate of a session with its headers: what a session store with headers holds."""

    __slots__ = ("_aggregation", "_headers")
    _FIELDS = ("aggregation", "headers")

    def __init__(self, aggregation: V, headers: Headers | bytes) -> None:
        self._headers = _own_bytes(headers)
        self._aggregation = aggregation

    @property
    def aggregation(self) -> V:
        """The aggregate."""
        return self._aggregation

    @classmethod
    def make(cls, aggregation: V | None, headers: Headers | None = None) -> AggregationWithHeaders[V] | None:
        """Return aggregate and headers as one; None if the aggregate is None. Headers of None mean none."""
        return None if aggregation is None else cls(aggregation, b"" if headers is None else headers)

    @classmethod
    def make_allow_nullable(
        cls, aggregation: V | None, headers: Headers | None = None
    ) -> AggregationWithHeaders[V | None]:
        """Return aggregate and headers as one, also for an aggregate of None. Headers of None mean none."""
        return AggregationWithHeaders(aggregation, b"" if headers is None else headers)

    @staticmethod
    def get_aggregation_or_null(holder: AggregationWithHeaders[V] | None) -> V | None:
        """Return the aggregate in `holder`, None if `holder` is None."""
        return None if holder is None else holder.aggregation

    get_value_or_null = get_aggregation_or_null


class VersionedRecord(_Timestamped[V], _Headed):
    """A version of a key: its value, from when and until when it was valid, and the headers it was written with.

    `timestamp_ms` is when it began. Headers are empty where a store keeps none; None means none.
    """

    __slots__ = ("_headers", "_valid_to_ms")
    _FIELDS: ClassVar[tuple[str, ...]] = ("value", "timestamp_ms", "valid_to_ms", "headers")

    def __init__(
        self, value: V, timestamp_ms: int, valid_to_ms: int | None = None, headers: Headers | bytes | None = None
    ) -> None:
        super().__init__(value, timestamp_ms)
        if value is None:
            raise TypeError("a version has a value; the store that deleted it has none to hand out")
        self._valid_to_ms = None if valid_to_ms is None else _require_time("valid_to_ms", valid_to_ms)
        self._headers = b"" if headers is None else _own_bytes(headers)

    def __eq__(self, other: object) -> bool:
        # Kafka's trunk has one class for versions with and without headers, the KIP two.
        return self._values() == other._values() if isinstance(other, VersionedRecord) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # headers are mutable, and values may be

    @property
    def valid_to_ms(self) -> int | None:
        """When it ceased to be valid, that moment not included; None if it still is."""
        return self._valid_to_ms


class VersionedRecordWithHeaders(VersionedRecord[V]):
    """A version of a key in a store with headers."""

    __slots__ = ()

    @classmethod
    def make(
        cls, value: V | None, timestamp_ms: int, valid_to_ms: int | None = None, headers: Headers | None = None
    ) -> VersionedRecordWithHeaders[V] | None:
        """Return a version as one; None if the value is None. Headers of None mean none."""
        return None if value is None else cls(value, timestamp_ms, valid_to_ms, headers)
