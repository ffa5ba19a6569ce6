"""State of one key: a value, a list or a map. Named as Spark's, and kept in key-value stores with headers.

Each entry has a timestamp and headers: those of the record that is being processed when it is written, unless others
are given. `get`, `values` and so on yield the values alone, `entry` and `entries` also timestamps and headers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from statestore.errors.run import StateHandleError
from statestore.format.keys.entry_key import (
    list_bounds,
    list_entry_key,
    list_index,
    map_bounds,
    map_entry_key,
    map_key_of,
)
from statestore.format.serde import Serde, Serdes
from statestore.headers.record_headers import Headers
from statestore.processor.context import ProcessorContext
from statestore.stores.builder import StoreBuilder
from statestore.stores.holders import ValueTimestampHeaders
from statestore.stores.key_value import TimestampedKeyValueStoreWithHeaders
from statestore.stores.stores import Stores
from statestore.stores.supplier import Duration

K = TypeVar("K")
V = TypeVar("V")

Store = TimestampedKeyValueStoreWithHeaders[bytes, Any]


def keyed_state_store(
    name: str,
    value_serde: Serde[V],
    *,
    ttl: Duration | None = None,
    ttl_clock: str = "processing",
    persistent: bool = True,
) -> StoreBuilder[TimestampedKeyValueStoreWithHeaders[bytes, V]]:
    """Return the builder of the store that a state is kept in; its keys are bytes that the state makes.

    Entries expire as `StoreBuilder.with_ttl` says: of a list or map each by itself.
    """
    supplier = (
        Stores.persistent_timestamped_key_value_store_with_headers(name)
        if persistent
        else Stores.in_memory_key_value_store(name)
    )
    builder = Stores.timestamped_key_value_store_with_headers_builder(supplier, Serdes.bytes(), value_serde)
    return builder if ttl is None else builder.with_ttl(ttl, ttl_clock)


class KeyScope(Generic[K]):
    """The key that is being processed, which all states of a processor share.

    def init(self, context):
        self.scope = KeyScope(Serdes.string(), context)
        self.seen = KeyedList(self.scope, context.state_store("seen"))

    def process(self, record):
        with self.scope.of(record.key):
            self.seen.append_value(record.value)
    """

    def __init__(self, key_serde: Serde[K], context: ProcessorContext | None = None) -> None:
        self.key_serde = key_serde
        self._context = context
        self._key: bytes | None = None

    def key_bytes(self, state: str) -> bytes:
        """Return the serialized key. Raises StateHandleError if none is being processed; `state` is who asks."""
        if self._key is None:
            raise StateHandleError(state, "no key is being processed: states can be used only while one is")
        return self._key

    @contextmanager
    def of(self, key: K) -> Iterator[None]:
        """Have all states be those of `key` inside of the `with`."""
        before, self._key = self._key, self.key_serde.serialize(key)
        try:
            yield
        finally:
            self._key = before

    def written(self, value: V, timestamp_ms: int | None, headers: Headers | None) -> ValueTimestampHeaders[V]:
        """Return a value with timestamp and headers; where they are None, those of the record being processed."""
        context = self._context
        assert context is not None  # there is a key
        return ValueTimestampHeaders(
            value,
            context.current_timestamp_ms if timestamp_ms is None else timestamp_ms,
            context.current_headers if headers is None else headers,
        )


class _KeyedState:
    def __init__(self, scope: KeyScope[Any], store: Store) -> None:
        self._scope = scope
        self._store = store

    @property
    def _key(self) -> bytes:
        return self._scope.key_bytes(type(self).__name__)

    def _written(self, value: Any, timestamp_ms: int | None, headers: Headers | None) -> ValueTimestampHeaders[Any]:
        if value is None:
            raise TypeError(f"{type(self).__name__} can't hold None: remove what it holds instead")
        return self._scope.written(value, timestamp_ms, headers)

    def _any_between(self, bounds: tuple[bytes, bytes | None]) -> bool:
        with self._store.range(*bounds) as entries:
            return next(entries, None) is not None

    def _clear_between(self, bounds: tuple[bytes, bytes | None]) -> None:
        self._store.put_all([(entry_key, None) for entry_key, _ in self._store.range(*bounds)])


class KeyedValue(_KeyedState, Generic[V]):
    """One value of the key."""

    def exists(self) -> bool:
        """Return whether there is a value."""
        return self._store.get(self._key) is not None

    def get(self) -> V | None:
        """Return the value, None if there is none."""
        entry = self.entry()
        return None if entry is None else entry.value

    def entry(self) -> ValueTimestampHeaders[V] | None:
        """Return the value with what it was written with, None if there is none."""
        return self._store.get(self._key)

    def update(self, value: V, *, timestamp_ms: int | None = None, headers: Headers | None = None) -> None:
        """Set the value. Raises TypeError for None."""
        self._store.put(self._key, self._written(value, timestamp_ms, headers))

    def clear(self) -> None:
        """Remove the value, if there is one."""
        self._store.put(self._key, None)


class KeyedList(_KeyedState, Generic[V]):
    """A list of values of the key. Iterators show it as it is at the call."""

    def exists(self) -> bool:
        """Return whether the list has an entry."""
        return self._any_between(list_bounds(self._key))

    def get(self) -> Iterator[V]:
        """Yield the values in order."""
        return iter(self._store.range_values(*list_bounds(self._key)))

    def entries(self) -> Iterator[ValueTimestampHeaders[V]]:
        """Yield the values in order, with what each was written with."""
        return (entry for _, entry in self._store.range(*list_bounds(self._key)))

    def put(self, values: Iterable[V], *, timestamp_ms: int | None = None, headers: Headers | None = None) -> None:
        """Make the list hold these values and no others. Raises TypeError for None."""
        changes = self._numbered(0, values, timestamp_ms, headers)
        replaced = {entry_key for entry_key, _ in changes}
        for entry_key, _ in self._store.range(*list_bounds(self._key)):
            if entry_key not in replaced:
                changes.append((entry_key, None))
        self._store.put_all(changes)

    def append_value(self, value: V, *, timestamp_ms: int | None = None, headers: Headers | None = None) -> None:
        """Add a value at the end. Raises TypeError for None."""
        self.append_list([value], timestamp_ms=timestamp_ms, headers=headers)

    def append_list(
        self, values: Iterable[V], *, timestamp_ms: int | None = None, headers: Headers | None = None
    ) -> None:
        """Add values at the end, in order: all, or none if one can't be serialized. Raises TypeError for None."""
        with self._store.reverse_range(*list_bounds(self._key)) as entries:
            last = next(entries, None)
        first = 0 if last is None else list_index(last[0]) + 1
        self._store.put_all(self._numbered(first, values, timestamp_ms, headers))

    def clear(self) -> None:
        """Remove all values."""
        self._clear_between(list_bounds(self._key))

    def _numbered(
        self, first: int, values: Iterable[V], timestamp_ms: int | None, headers: Headers | None
    ) -> list[tuple[bytes, ValueTimestampHeaders[V] | None]]:
        key = self._key
        return [
            (list_entry_key(key, index), self._written(value, timestamp_ms, headers))
            for index, value in enumerate(values, first)
        ]


class KeyedMap(_KeyedState, Generic[K, V]):
    """A map of the key, in the order of the serialized map keys. Iterators show it as it is at the call.

    A map key of None raises TypeError.
    """

    def __init__(self, scope: KeyScope[Any], store: Store, map_key_serde: Serde[K]) -> None:
        super().__init__(scope, store)
        self._map_key_serde = map_key_serde

    def exists(self) -> bool:
        """Return whether the map has an entry."""
        return self._any_between(map_bounds(self._key))

    def get_value(self, map_key: K) -> V | None:
        """Return the value of `map_key`, None if it has none."""
        entry = self.entry(map_key)
        return None if entry is None else entry.value

    def entry(self, map_key: K) -> ValueTimestampHeaders[V] | None:
        """Return the value of `map_key` with what it was written with, None if it has none."""
        return self._store.get(self._entry_key(map_key))

    def contains_key(self, map_key: K) -> bool:
        """Return whether `map_key` has a value."""
        return self.entry(map_key) is not None

    def update_value(
        self, map_key: K, value: V, *, timestamp_ms: int | None = None, headers: Headers | None = None
    ) -> None:
        """Set the value of `map_key`. Raises TypeError for None."""
        self._store.put(self._entry_key(map_key), self._written(value, timestamp_ms, headers))

    def iterator(self) -> Iterator[tuple[K, V]]:
        """Yield map keys and values."""
        return ((map_key, entry.value) for map_key, entry in self.entries())

    def entries(self) -> Iterator[tuple[K, ValueTimestampHeaders[V]]]:
        """Yield map keys and values, with what each was written with."""
        key, map_key_of_bytes = self._key, self._map_key_serde.deserialize
        entries = self._store.range(*map_bounds(key))
        return ((map_key_of_bytes(map_key_of(key, entry_key)), entry) for entry_key, entry in entries)

    def keys(self) -> Iterator[K]:
        """Yield the map keys."""
        return (map_key for map_key, _ in self.entries())

    def values(self) -> Iterator[V]:
        """Yield the values, in the order of their map keys."""
        return iter(self._store.range_values(*map_bounds(self._key)))

    def remove_key(self, map_key: K) -> None:
        """Remove `map_key` and its value, if it has one."""
        self._store.put(self._entry_key(map_key), None)

    def clear(self) -> None:
        """Remove all map keys."""
        self._clear_between(map_bounds(self._key))

    def _entry_key(self, map_key: K) -> bytes:
        if map_key is None:
            raise TypeError("the key of an entry of a KeyedMap must not be None")
        return map_entry_key(self._key, self._map_key_serde.serialize(map_key))
