"""What a timestamped store with headers holds of a key. Source: KIP-1271, ValueTimestampHeaders."""

from __future__ import annotations

from typing import Generic, TypeVar

from statestore.headers import Headers

V = TypeVar("V")


class ValueTimestampHeaders(Generic[V]):
    """A value with the timestamp and headers it was written with. Immutable but for what `headers` allows.

    `timestamp_ms` is in milliseconds since the epoch; -1 where the value came from a store without timestamps.
    """

    __slots__ = ("headers", "timestamp_ms", "value")

    value: V
    timestamp_ms: int
    headers: Headers

    def __init__(self, value: V, timestamp_ms: int, headers: Headers) -> None:
        set_field = object.__setattr__
        set_field(self, "value", value)
        set_field(self, "timestamp_ms", timestamp_ms)
        set_field(self, "headers", headers)

    @classmethod
    def make(cls, value: V | None, timestamp_ms: int, headers: Headers | None = None) -> ValueTimestampHeaders[V] | None:
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

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"ValueTimestampHeaders is immutable: make a new one to change {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"ValueTimestampHeaders is immutable: {name} can't be deleted")

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
        return type(self), (self.value, self.timestamp_ms, self.headers)
