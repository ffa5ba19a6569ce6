"""Materialized: where a table or the state of a join is kept. Source: Kafka Streams' Materialized."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from statestore.bytestore.kinds.store_spec import check_store_name
from statestore.errors import TopologyError
from statestore.format.serde import Serde
from statestore.stores.builder import StoreBuilder
from statestore.stores.stores import Stores
from statestore.stores.supplier import Duration, milliseconds


@dataclass(frozen=True)
class Materialized:
    """The name, serdes and store of a table. Each `with_` method returns another one.

    A store without a name gets a numbered one. Serdes of None are those of the stream or table above, where known.
    """

    name: str | None = None
    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None
    is_persistent: bool = True
    is_cached: bool = False
    retention_ms: int | None = None
    history_retention_ms: int | None = None
    indexed_headers: tuple[str, ...] = ()

    @classmethod
    def of(cls, given: Materialized | None) -> Materialized:
        """Return what is given, or for None an empty one. Raises TypeError for anything else, also for a mere name."""
        if given is not None and not isinstance(given, Materialized):
            raise TypeError(f"materialized must be a Materialized such as Materialized.as_(name), not {given!r}")
        return given or cls()

    @classmethod
    def as_(cls, name: str) -> Materialized:
        """Return one with a name, under which the store can be read. Raises ValueError for an illegal name."""
        check_store_name(name)
        return cls(name)

    @classmethod
    def with_(cls, key_serde: Serde[Any] | None, value_serde: Serde[Any] | None) -> Materialized:
        """Return one with serdes, whose store gets a numbered name."""
        return cls(key_serde=key_serde, value_serde=value_serde)

    @classmethod
    def as_versioned(cls, name: str, history_retention: Duration) -> Materialized:
        """Return one that keeps old versions for `history_retention`, each with its headers, for joins by time."""
        return replace(cls.as_(name), history_retention_ms=milliseconds("history_retention", history_retention))

    def with_key_serde(self, serde: Serde[Any]) -> Materialized:
        """Return one with a serde of keys."""
        return replace(self, key_serde=serde)

    def with_value_serde(self, serde: Serde[Any]) -> Materialized:
        """Return one with a serde of values."""
        return replace(self, value_serde=serde)

    def with_store_in_memory(self) -> Materialized:
        """Return one that is not kept in RocksDB."""
        return replace(self, is_persistent=False)

    def with_caching_enabled(self) -> Materialized:
        """Return one that sends on only the last change of each key in a micro-batch, at its end."""
        return replace(self, is_cached=True)

    def with_retention(self, retention: Duration) -> Materialized:
        """Return one that keeps windows or sessions for at least so long; the default is their size plus grace."""
        return replace(self, retention_ms=milliseconds("retention", retention))

    def with_header_index(self, *names: str) -> Materialized:
        """Return one whose store finds entries by headers of these names: see `StoreBuilder.with_header_index`."""
        return replace(self, indexed_headers=names)

    def or_name(self, make_up: Callable[[], str]) -> Materialized:
        """Return one with a name. `make_up`, which takes a number, is only called if it has none."""
        return self if self.name is not None else replace(self, name=make_up())

    def or_serdes(self, key_serde: Serde[Any] | None, value_serde: Serde[Any] | None) -> Materialized:
        """Return one with these serdes where it has none."""
        return replace(self, key_serde=self.key_serde or key_serde, value_serde=self.value_serde or value_serde)

    @property
    def is_versioned(self) -> bool:
        """Whether old versions are kept."""
        return self.history_retention_ms is not None

    @property
    def holds_back(self) -> bool:
        """Whether only the last change of a key in a micro-batch goes on. Of a versioned store, every version does."""
        return self.is_cached and not self.is_versioned

    def key_value_builder(self) -> StoreBuilder[Any]:
        """Return the builder of a store of one value a key. Raises TopologyError if a serde is missing."""
        name, key_serde, value_serde = self._required()
        if self.history_retention_ms is not None:
            make = (
                Stores.persistent_versioned_key_value_store_with_headers
                if self.is_persistent
                else Stores.in_memory_versioned_key_value_store
            )
            supplier = make(name, self.history_retention_ms)
            return self._indexed(
                Stores.versioned_key_value_store_with_headers_builder(supplier, key_serde, value_serde)
            )
        make_plain = (
            Stores.persistent_timestamped_key_value_store_with_headers
            if self.is_persistent
            else Stores.in_memory_key_value_store
        )
        return self._indexed(
            Stores.timestamped_key_value_store_with_headers_builder(make_plain(name), key_serde, value_serde)
        )

    def window_builder(self, size_ms: int, needed_ms: int, *, more_ms: int = 0) -> StoreBuilder[Any]:
        """Return the builder of a store of windows, which must be kept for `needed_ms`; `more_ms` is added to that.

        Raises TopologyError if a serde is missing, or if the retention is too short.
        """
        name, key_serde, value_serde = self._required()
        make = (
            Stores.persistent_timestamped_window_store_with_headers
            if self.is_persistent
            else Stores.in_memory_window_store
        )
        supplier = make(name, self._retention(needed_ms) + more_ms, size_ms)
        return self._indexed(Stores.timestamped_window_store_with_headers_builder(supplier, key_serde, value_serde))

    def session_builder(self, needed_ms: int, *, more_ms: int = 0) -> StoreBuilder[Any]:
        """Return the builder of a store of sessions likewise."""
        name, key_serde, value_serde = self._required()
        make = Stores.persistent_session_store_with_headers if self.is_persistent else Stores.in_memory_session_store
        supplier = make(name, self._retention(needed_ms) + more_ms)
        return self._indexed(Stores.session_store_with_headers_builder(supplier, key_serde, value_serde))

    def _indexed(self, builder: StoreBuilder[Any]) -> StoreBuilder[Any]:
        return builder.with_header_index(*self.indexed_headers) if self.indexed_headers else builder

    def _required(self) -> tuple[str, Serde[Any], Serde[Any]]:
        assert self.name is not None  # callers name it
        for what, serde in (("key", self.key_serde), ("value", self.value_serde)):
            if serde is None:
                raise TopologyError(
                    f"the serde of the {what}s of table {self.name!r} is unknown: give it "
                    f"Materialized.with_{what}_serde(...)"
                )
        assert self.key_serde is not None
        assert self.value_serde is not None
        return self.name, self.key_serde, self.value_serde

    def _retention(self, needed_ms: int) -> int:
        if self.is_versioned:
            raise TopologyError(
                f"table {self.name!r} has windowed keys and can't be versioned: give it Materialized.as_(...), and "
                "with_retention(...) to keep windows for longer"
            )
        if self.retention_ms is None:
            return needed_ms
        if self.retention_ms < needed_ms:
            raise TopologyError(
                f"table {self.name!r} has a retention of {self.retention_ms} ms, but its windows take records for "
                f"{needed_ms} ms, grace included: give it Materialized.with_retention({needed_ms}) or more"
            )
        return self.retention_ms
