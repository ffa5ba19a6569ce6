"""What stores hold of a key: a value with what it was written with. Source: KIP-1271 and KIP-258, KIP-889.

Their fields can't be set, and changing the headers of one does not change the store that it came from.
"""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar

from statestore.headers import Headers

V = TypeVar("V")


class _Holder:
    """Equality, pickling and an expression, all by the fields."""

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
    """A value and its timestamp."""

    __slots__ = ("_timestamp_ms", "_value")

    def __init__(self, value: V, timestamp_ms: int) -> None:
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
        """The headers, not parsed before they are looked into."""
        headers = self._headers
        if not isinstance(headers, Headers):
            if not isinstance(headers, bytes):
                raise TypeError(f"headers must be Headers, not {headers!r}")
            headers = Headers.from_bytes(headers)
            self._headers = headers  # type: ignore[misc]  # the slot is in the classes below
        return headers


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
        # Not through the base: one of these is made for every read.
        self._value = value
        self._timestamp_ms = timestamp_ms
        self._headers = headers

    @classmethod
    def make(
        cls, value: V | None, timestamp_ms: int, headers: Headers | None = None
    ) -> ValueTimestampHeaders[V] | None:
        """Return value, timestamp and headers as one; None if the value is None. Headers of None mean none."""
        if value is None:
            return None
        return cls(value, timestamp_ms, Headers() if headers is None else headers)

    @classmethod
    def make_allow_nullable(
        cls, value: V | None, timestamp_ms: int, headers: Headers | None = None
    ) -> ValueTimestampHeaders[V | None]:
        """Return value, timestamp and headers as one, also for a value of None. Headers of None mean none."""
        return ValueTimestampHeaders(value, timestamp_ms, Headers() if headers is None else headers)


class AggregationWithHeaders(_Headed, Generic[V]):
    """The aggregate of a session with its headers: what a session store with headers holds."""

    __slots__ = ("_aggregation", "_headers")
    _FIELDS = ("aggregation", "headers")

    def __init__(self, aggregation: V, headers: Headers | bytes) -> None:
        self._aggregation = aggregation
        self._headers = headers

    @property
    def aggregation(self) -> V:
        """The aggregate."""
        return self._aggregation

    @classmethod
    def make(cls, aggregation: V | None, headers: Headers | None = None) -> AggregationWithHeaders[V] | None:
        """Return aggregate and headers as one; None if the aggregate is None. Headers of None mean none."""
        return None if aggregation is None else cls(aggregation, Headers() if headers is None else headers)

    @classmethod
    def make_allow_nullable(
        cls, aggregation: V | None, headers: Headers | None = None
    ) -> AggregationWithHeaders[V | None]:
        """Return aggregate and headers as one, also for an aggregate of None. Headers of None mean none."""
        return AggregationWithHeaders(aggregation, Headers() if headers is None else headers)

    @staticmethod
    def get_aggregation_or_null(holder: AggregationWithHeaders[V] | None) -> V | None:
        """Return the aggregate in `holder`, None if `holder` is None."""
        return None if holder is None else holder.aggregation

    get_value_or_null = get_aggregation_or_null


class VersionedRecord(_Timestamped[V]):
    """A version of a key: its value, and from when and until when it was valid. `timestamp_ms` is when it began."""

    __slots__ = ("_valid_to_ms",)
    _FIELDS: ClassVar[tuple[str, ...]] = ("value", "timestamp_ms", "valid_to_ms")

    def __init__(self, value: V, timestamp_ms: int, valid_to_ms: int | None = None) -> None:
        super().__init__(value, timestamp_ms)
        self._valid_to_ms = valid_to_ms

    @property
    def valid_to_ms(self) -> int | None:
        """When it ceased to be valid, that moment not included; None if it still is."""
        return self._valid_to_ms


class VersionedRecordWithHeaders(VersionedRecord[V], _Headed):
    """A version of a key with the headers it was written with."""

    __slots__ = ("_headers",)
    _FIELDS = ("value", "timestamp_ms", "valid_to_ms", "headers")

    def __init__(
        self, value: V, timestamp_ms: int, valid_to_ms: int | None = None, headers: Headers | bytes | None = None
    ) -> None:
        super().__init__(value, timestamp_ms, valid_to_ms)
        self._headers = Headers() if headers is None else headers

    @classmethod
    def make(
        cls, value: V | None, timestamp_ms: int, valid_to_ms: int | None = None, headers: Headers | None = None
    ) -> VersionedRecordWithHeaders[V] | None:
        """Return a version as one; None if the value is None. Headers of None mean none."""
        return None if value is None else cls(value, timestamp_ms, valid_to_ms, headers)
