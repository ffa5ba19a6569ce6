"""Joined and StreamJoined: how joins keep what waits. Source: Kafka Streams' Joined and StreamJoined."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from statestore.bytestore.kinds.store_spec import check_store_name
from statestore.format.serde import Serde
from statestore.stores.supplier import Duration, milliseconds


@dataclass(frozen=True)
class Joined:
    """Options of the join of a stream with a table: the stream's serdes, and how long its records wait.

    Each `with_` method returns another one. Serdes are only needed with a grace; those of None are the stream's own.
    """

    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None
    grace_ms: int | None = None

    @classmethod
    def with_(cls, key_serde: Serde[Any] | None, value_serde: Serde[Any] | None) -> Joined:
        """Return one with the serdes of the stream."""
        return cls(key_serde, value_serde)

    def with_grace_period(self, grace: Duration) -> Joined:
        """Return one whose records wait for `grace` in event time, and are then joined in order of time.

        So the table's records of that time may come after them. The table must be versioned, with a history of at least
        `grace`. Raises ValueError for a negative grace. Source: KIP-923.
        """
        return replace(self, grace_ms=milliseconds("grace", grace))


@dataclass(frozen=True)
class StreamJoined:
    """Options of the join of two streams: serdes and stores. Each `with_` method returns another one.

    Serdes of None are those of the streams, where known.
    """

    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None
    other_value_serde: Serde[Any] | None = None
    store_name: str | None = None
    is_persistent: bool = True

    @classmethod
    def with_(
        cls, key_serde: Serde[Any] | None, value_serde: Serde[Any] | None, other_value_serde: Serde[Any] | None
    ) -> StreamJoined:
        """Return one with the serdes of the keys, of this stream's values, and of the other stream's values."""
        return cls(key_serde, value_serde, other_value_serde)

    def with_store_name(self, name: str) -> StreamJoined:
        """Return one whose stores' names begin with `name`. Raises ValueError for an illegal name."""
        check_store_name(name)
        return replace(self, store_name=name)

    def with_stores_in_memory(self) -> StreamJoined:
        """Return one whose stores are not kept in RocksDB."""
        return replace(self, is_persistent=False)
