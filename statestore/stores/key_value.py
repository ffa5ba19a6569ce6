"""The timestamped key-value store with headers, over any byte store. Source: KIP-1271."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from statestore.bytestore.protocol import ByteStore, Pair
from statestore.errors import DeserializationError, FormatError, StoreError
from statestore.format.serde import Serde
from statestore.format.value_timestamp_headers import encode_value_timestamp_headers, split_value_timestamp_headers
from statestore.headers import Headers
from statestore.stores.value_timestamp_headers import ValueTimestampHeaders

K = TypeVar("K")
V = TypeVar("V")


class TimestampedKeyValueStoreWithHeaders(Generic[K, V]):
    """A map of keys to values, each with the timestamp and headers it was written with.

    A key of None raises TypeError everywhere. Keys are ordered by their serialized bytes, unsigned. Headers are not
    parsed on the way in or out: only who looks into `headers` of a result pays for it. Every method raises
    StoreClosedError after the batch that handed the store out.
    """

    def __init__(self, inner: ByteStore, key_serde: Serde[K], value_serde: Serde[V]) -> None:
        self.name = inner.name
        self._inner = inner
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._key_bytes = key_serde.serialize
        self._value_bytes = value_serde.serialize
        self._value_object = value_serde.deserialize

    def get(self, key: K) -> ValueTimestampHeaders[V] | None:
        """Return value, timestamp and headers of `key`; None if it has none."""
        if key is None:
            raise self._null_key()
        stored = self._inner.get(self._key_bytes(key))
        return None if stored is None else self._decode(stored)

    def put(self, key: K, value: ValueTimestampHeaders[V] | None) -> None:
        """Set `key`; None, or a value of None, deletes it and drops its headers."""
        if key is None:
            raise self._null_key()
        self._inner.put(self._key_bytes(key), self._encode(value))

    def put_if_absent(self, key: K, value: ValueTimestampHeaders[V] | None) -> ValueTimestampHeaders[V] | None:
        """Set `key` if it has no value, and return None; otherwise change nothing and return what it has."""
        present = self.get(key)
        if present is None:
            self.put(key, value)
        return present

    def put_all(self, entries: Iterable[tuple[K, ValueTimestampHeaders[V] | None]]) -> None:
        """Set all entries in order; the whole of them is serialized before the first is written."""
        changes = []
        for key, value in entries:
            if key is None:
                raise self._null_key()
            changes.append((self._key_bytes(key), self._encode(value)))
        self._inner.write(changes)

    def delete(self, key: K) -> ValueTimestampHeaders[V] | None:
        """Delete `key` and return what it had, None if nothing."""
        if key is None:
            raise self._null_key()
        key_bytes = self._key_bytes(key)
        stored = self._inner.get(key_bytes)
        self._inner.put(key_bytes, None)
        return None if stored is None else self._decode(stored)

    def range(self, start: K | None, end: K | None) -> Iterator[tuple[K, ValueTimestampHeaders[V]]]:
        """Yield entries from `start` to `end`, both inclusive, None = open, ascending, as the store is at the call."""
        return self._entries(self._scan(start, end, reverse=False))

    def reverse_range(self, start: K | None, end: K | None) -> Iterator[tuple[K, ValueTimestampHeaders[V]]]:
        """Yield entries from `end` down to `start`, both inclusive, None = open, as the store is at the call."""
        return self._entries(self._scan(start, end, reverse=True))

    def all(self) -> Iterator[tuple[K, ValueTimestampHeaders[V]]]:
        """Yield all entries, ascending, as the store is at the call."""
        return self.range(None, None)

    def reverse_all(self) -> Iterator[tuple[K, ValueTimestampHeaders[V]]]:
        """Yield all entries, descending, as the store is at the call."""
        return self.reverse_range(None, None)

    def prefix_scan(self, prefix: bytes) -> Iterator[tuple[K, ValueTimestampHeaders[V]]]:
        """Yield entries whose serialized key begins with `prefix`, ascending, as the store is at the call."""
        return self._entries(_while_prefix(self._inner.range(prefix, None), prefix))

    def approximate_num_entries(self) -> int:
        """Return about how many keys have a value."""
        return self._inner.approximate_num_entries()

    def _scan(self, start: K | None, end: K | None, *, reverse: bool) -> Iterator[Pair]:
        first = None if start is None else self._key_bytes(start)
        last = None if end is None else self._key_bytes(end)
        return self._inner.range(first, last, reverse=reverse)

    def _entries(self, pairs: Iterator[Pair]) -> Iterator[tuple[K, ValueTimestampHeaders[V]]]:
        key_object, decode = self._key_serde.deserialize, self._decode
        return ((key_object(key), decode(stored)) for key, stored in pairs)

    def _encode(self, value: ValueTimestampHeaders[V] | None) -> bytes | None:
        if value is None or value.value is None:
            return None
        return encode_value_timestamp_headers(
            self._value_bytes(value.value), value.timestamp_ms, value.headers.to_bytes()
        )

    def _decode(self, stored: bytes) -> ValueTimestampHeaders[V]:
        try:
            header_bytes, timestamp_ms, value = split_value_timestamp_headers(stored)
            return ValueTimestampHeaders(self._value_object(value), timestamp_ms, Headers.from_bytes(header_bytes))
        except (FormatError, DeserializationError) as cause:
            raise StoreError(
                self.name,
                f"a stored value can't be read by the {self._value_serde.name} serde ({cause}). Give the store the "
                "serde that it was written with",
            ) from cause

    def _null_key(self) -> TypeError:
        return TypeError(f"store {self.name!r}: a key must not be None")


def _while_prefix(pairs: Iterator[Pair], prefix: bytes) -> Iterator[Pair]:
    for pair in pairs:
        if not pair[0].startswith(prefix):
            return
        yield pair
