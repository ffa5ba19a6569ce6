"""What a timestamped store with headers holds of a key. Source: KIP-1271, ValueTimestampHeaders."""

from __future__ import annotations

from typing import Generic, TypeVar

from statestore.headers import Headers

V = TypeVar("V")


class ValueTimestampHeaders(Generic[V]):
    """A value with the timestamp and headers it was written with. Its fields can't be set.

    Changing `headers` does not change the store that they came from.
    """

    __slots__ = ("_headers", "_timestamp_ms", "_value")

    def __init__(self, value: V, timestamp_ms: int, headers: Headers) -> None:
        self._value = value
        self._timestamp_ms = timestamp_ms
        self._headers = headers

    @property
    def value(self) -> V:
        """The value."""
        return self._value

    @property
    def timestamp_ms(self) -> int:
        """Milliseconds since the epoch; -1 where the value came from a store without timestamps."""
        return self._timestamp_ms

    @property
    def headers(self) -> Headers:
        """The headers, not parsed before they are looked into."""
        return self._headers

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

    @staticmethod
    def get_value_or_null(holder: ValueTimestampHeaders[V] | None) -> V | None:
        """Return the value in `holder`, None if `holder` is None."""
        return None if holder is None else holder.value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ValueTimestampHeaders):
            return NotImplemented
        return (
            self.timestamp_ms == other.timestamp_ms
            and bool(self.value == other.value)
            and self.headers == other.headers
        )

    __hash__ = None  # type: ignore[assignment]  # headers are mutable

    def __repr__(self) -> str:
        return f"ValueTimestampHeaders({self.value!r}, timestamp_ms={self.timestamp_ms}, headers={self.headers!r})"

    def __reduce__(self) -> tuple[type, tuple[V, int, Headers]]:
        return type(self), (self._value, self._timestamp_ms, self._headers)
