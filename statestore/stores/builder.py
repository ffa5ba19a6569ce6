"""Builders: what a user says of a store, and the one place that stacks its layers."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from statestore.bytestore.kinds.kind_layout import LAYOUTS
from statestore.bytestore.kinds.segments import NO_STREAM_TIME, Segments
from statestore.bytestore.kinds.store_spec import StoreSpec, expiry_spec
from statestore.bytestore.protocol import ByteStore, NoRecord, ProcessingContext, RecordContext
from statestore.format.serde import Serde, Serdes
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.stored_value import split_stored
from statestore.headers.expiry_header import EXPIRY_HEADER
from statestore.recovery.commit.changelog import Changelog
from statestore.recovery.making.placement import check_entry_keys
from statestore.stores.codec import StateSerdes, value_codec
from statestore.stores.entry_codec import EntryCodec
from statestore.stores.key_value import KeyValueStore
from statestore.stores.layers.expiring import ExpiringLayer, Expiry, OneTime, TimeToLive
from statestore.stores.layers.indexed import IndexedLayer
from statestore.stores.layers.layer import (
    DEFAULT_CACHE_MAX_BYTES,
    CachingLayer,
    ChangeLoggingLayer,
    RetainingLayer,
    WrittenFor,
)
from statestore.stores.metered import measure_operations
from statestore.stores.metrics import StoreMetrics
from statestore.stores.readable_store import SegmentedParts, StoreParts, StoreStack, VersionedParts
from statestore.stores.supplier import BytesStoreSupplier, Duration, KeyValueBytesStoreSupplier
from statestore.stores.typed_store import TypedStore

S = TypeVar("S", bound=TypedStore)

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoreBuilder(Generic[S]):
    """Describes a store, and builds it on the bytes that a driver provides.

    A builder is never changed: each `with_` method returns another one. Logging is on, caching and metrics are off,
    unless said otherwise: Kafka records the metrics of stores at level DEBUG only.
    """

    supplier: BytesStoreSupplier
    store_class: type[S]
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    logging_enabled: bool = True
    changelog_config: Mapping[str, str] = field(default_factory=dict)
    """What the changelog topic would be configured with; kept for drivers that have one."""
    caching_enabled: bool = False
    cache_max_bytes: int = DEFAULT_CACHE_MAX_BYTES
    metrics_enabled: bool = False
    time_to_live: TimeToLive | None = None
    """After what time, or by which header, entries expire; None means never."""
    indexed_headers: tuple[str, ...] = ()
    """The names of the headers by which entries are found through an index."""
    through_timestamped: bool = False
    """Whether plain values that are found may get headers at once."""

    @property
    def name(self) -> str:
        """The store's name."""
        return self.supplier.name

    @property
    def format(self) -> StoreFormat:
        """How values are laid out."""
        return self.store_class.value_format

    @property
    def persistent(self) -> bool:
        """Whether the store is kept in RocksDB; else it is in memory."""
        return self.supplier.persistent

    @property
    def spec(self) -> StoreSpec:
        """What is recorded of the store."""
        return replace(
            self.supplier.spec(self.format),
            indexed_headers=self.indexed_headers,
            through_timestamped=self.through_timestamped,
        )

    @property
    def expiry_store(self) -> StoreBuilder[KeyValueStore[bytes, bytes]] | None:
        """The builder of the store that says when entries expire; None if they don't. A topology adds it by itself."""
        if self.time_to_live is None:
            return None
        spec = expiry_spec(self.spec)
        supplier = KeyValueBytesStoreSupplier(spec.name, spec.format, self.persistent)
        choices = self.logging_enabled, self.changelog_config, self.caching_enabled, self.cache_max_bytes
        return StoreBuilder(supplier, KeyValueStore, Serdes.bytes(), Serdes.bytes(), *choices)

    def with_ttl(self, ttl: Duration, clock: str = "processing") -> StoreBuilder[S]:
        """Return a builder of a store whose entries are gone when `ttl` has passed since they were last put.

        `clock` is "processing", the wall clock, or "event", the shard's stream time. Entries that were there before the
        store had a time to live don't expire until they are put again. Raises ValueError unless this is a key-value
        store, and for illegal arguments; and for another clock than that of `with_expiry_header`.
        """
        return self._expiring(clock, ttl=ttl)

    def with_expiry_header(self, header: str = EXPIRY_HEADER, clock: str = "processing") -> StoreBuilder[S]:
        """Return a builder of a store whose entries are gone at the time that this header of theirs says.

        It is a header of the value where the store's format has headers, else of the record that is being processed at
        the put: see `statestore.headers.expiry_header`, also for what is malformed; such an entry lives on, and the
        log says so. With a time to live too, the earlier time counts. All else is as with `with_ttl`, what it raises as
        well.
        """
        return self._expiring(clock, header=header)

    def _expiring(self, clock: str, **given: Any) -> StoreBuilder[S]:
        """Return a builder whose store's entries expire as before, and as given."""
        if self.supplier.kind.is_segmented:
            raise ValueError(f"store {self.name!r}: a {self.supplier.kind.value} store has a retention, not a ttl")
        before = self.time_to_live
        known = {} if before is None else {"ttl": before.ttl_ms, "header": before.header}
        time_to_live = TimeToLive.of(**{"ttl": None, "header": None, **known, **given}, clock=clock)
        if before is not None and before.clock != clock and None not in (time_to_live.ttl_ms, time_to_live.header):
            raise ValueError(
                f"store {self.name!r}: its ttl and its expiry header must have the same clock, not "
                f"{before.clock!r} and {clock!r}: an entry expires at one time"
            )
        return replace(self, time_to_live=time_to_live)

    def with_header_index(self, *names: str) -> StoreBuilder[S]:
        """Return a builder of a store whose entries `by_header` finds by headers of these names, instead of any before.

        The index is kept with the local copy of a shard, never in deltas or changelogs: a put costs nothing more, to
        apply its delta does. An index that is new to a state is built beside the next batches. Raises
        ValueError for a store whose format has no headers, and for names that are missing, empty, double or no text.
        """
        if not self.format.has_headers:
            raise ValueError(
                f"store {self.name!r}: its format is {self.format.describe()}, without headers that could be indexed"
            )
        if not names:
            raise ValueError(f"store {self.name!r}: with_header_index needs the name of a header")
        for name in names:
            # Malformed names of headers are read with U+FFFD: several would become one.
            if not isinstance(name, str) or not name or re.search("[\ufffd\ud800-\udfff]", name):
                raise ValueError(f"store {self.name!r}: the name of an indexed header must be text, got {name!r}")
        if len(set(names)) < len(names):
            raise ValueError(f"store {self.name!r}: with_header_index got a name twice: {', '.join(names)}")
        return replace(self, indexed_headers=tuple(sorted(names)))

    def with_upgrade_through_timestamped(self) -> StoreBuilder[S]:
        """Return a builder of a store that takes over plain values at once, with no headers and the timestamp -1.

        Without it, a store of plain values is to be timestamped first, as KIP-1271 has it: to open it with headers
        raises StoreFormatError. What `upgrade-tools migrate --through-timestamped` does. Raises ValueError unless this
        is a builder of timestamps and headers.
        """
        if self.format is not StoreFormat.TIMESTAMPED_WITH_HEADERS:
            raise ValueError(
                f"store {self.name!r}: only a store of timestamps and headers is two steps away from plain values, not "
                f"one of format {self.format.describe()}"
            )
        return replace(self, through_timestamped=True)

    def with_caching_enabled(self, max_bytes: int = DEFAULT_CACHE_MAX_BYTES) -> StoreBuilder[S]:
        """Return a builder of a store that holds writes back until a flush, or until they exceed `max_bytes`.

        A store that retains duplicates is not cached: no write replaces another. Raises ValueError for a versioned
        store, as in Kafka: what a put returns depends on the versions before it.
        """
        if LAYOUTS[self.supplier.kind].keeps_versions:
            raise ValueError(f"store {self.name!r}: a versioned store can't be cached")
        if type(max_bytes) is not int or max_bytes < 0:
            raise ValueError(f"max_bytes must be a whole number, 0 or more, got {max_bytes!r}")
        if self.supplier.retain_duplicates:
            _LOG.warning("store %r retains duplicates: it is not cached", self.name)
            return self
        return replace(self, caching_enabled=True, cache_max_bytes=max_bytes)

    def with_caching_disabled(self) -> StoreBuilder[S]:
        """Return a builder of a store whose writes go on at once."""
        return replace(self, caching_enabled=False)

    def with_logging_enabled(self, config: Mapping[str, str] | None = None) -> StoreBuilder[S]:
        """Return a builder of a store with a changelog, configured with `config`.

        Raises TypeError unless all of it is text.
        """
        config = dict(config or {})
        for key, value in config.items():
            if not isinstance(key, str) or not isinstance(value, str):
                raise TypeError(f"config of the changelog of store {self.name!r} must be text, got {key!r}: {value!r}")
        return replace(self, logging_enabled=True, changelog_config=config)

    def with_logging_disabled(self) -> StoreBuilder[S]:
        """Return a builder of a store without a changelog: its content can't be restored."""
        return replace(self, logging_enabled=False, changelog_config={})

    def with_metrics_enabled(self) -> StoreBuilder[S]:
        """Return a builder of a store that measures its operations."""
        return replace(self, metrics_enabled=True)

    def with_metrics_disabled(self) -> StoreBuilder[S]:
        """Return a builder of a store that measures nothing."""
        return replace(self, metrics_enabled=False)

    def build(
        self,
        inner: ByteStore,
        *,
        changelog: Changelog | None = None,
        context: ProcessingContext | None = None,
        stream_time_ms: int = NO_STREAM_TIME,
        metrics: StoreMetrics | None = None,
        expiry: Expiry | None = None,
    ) -> S:
        """Return the store on `inner`, whose bytes are those of `spec`.

        `changelog` takes down the writes, if logging is enabled; `context` is the record that they are made for;
        `stream_time_ms` the store's stream time so far; `metrics` where operations are measured, if they are at all.
        Raises ValueError if the store has a time to live, and no `expiry`.
        """
        spec = self.spec
        record = context or NoRecord()
        written_for = WrittenFor(record)
        logged = changelog if self.logging_enabled else None
        serdes = StateSerdes(self.name, self.key_serde, self.value_serde)
        entries = EntryCodec(serdes, value_codec(self.format, serdes), record, written_for)
        # A cache writes later, and a key's serde may add headers. Without both, a write is for the current record.
        differs = self.caching_enabled or entries.keys_with_headers() is not None
        logged_for = written_for if differs else record
        segments = Segments(inner, *spec.retention, stream_time_ms) if spec.kind.is_segmented else None
        if segments is not None and LAYOUTS[spec.kind].keeps_versions:
            parts = VersionedParts(spec, entries, StoreStack(IndexedLayer.over(inner)), segments, logged, logged_for)
            built = self.store_class(parts)
        else:
            # Each layer is over the ones before it.
            top = inner
            retaining = cache = expiring = None
            if segments is not None:
                top = retaining = RetainingLayer(top, segments, counts_deletes=not spec.retain_duplicates)
            if logged is not None:
                top = ChangeLoggingLayer(top, spec, logged, logged_for)
            if self.caching_enabled:
                top = cache = CachingLayer(top, written_for, self.cache_max_bytes)
            if self.time_to_live is not None:
                if expiry is None:
                    raise ValueError(
                        f"store {self.name!r} has a time to live: it can't be built without its expiry store"
                    )
                top = expiring = ExpiringLayer(top, self.time_to_live, expiry, self._headers_of(record))
            stack = StoreStack(IndexedLayer.over(top), retaining, cache, expiring)
            built = self.store_class(
                StoreParts(spec, entries, stack) if segments is None else SegmentedParts(spec, entries, stack, segments)
            )
        return measure_operations(built, self.format, metrics or StoreMetrics()) if self.metrics_enabled else built

    def _headers_of(self, record: RecordContext) -> Callable[[bytes], bytes]:
        """Return a function for the headers that a stored value is put with: its own, or those of the record."""
        store_format = self.format
        if store_format.has_headers:
            return lambda stored: split_stored(store_format, stored).header_bytes or b""
        return lambda stored: record.header_bytes


def live_at(entries: ByteStore, times: ByteStore, time_ms: int) -> ByteStore:
    """Return a store's bytes, for reading, without what has expired at `time_ms` by the store of `times` beside it."""
    return live_by(entries, "processing", Expiry(times, OneTime(time_ms, time_ms)))


def live_by(entries: ByteStore, clock: str, expiry: Expiry) -> ByteStore:
    """Return a store's bytes, for reading, without what has expired at each read by a clock, as of `with_ttl`.

    Raises ValueError for an unknown clock.
    """
    return ExpiringLayer(entries, TimeToLive.of(None, clock), expiry)


@dataclass(frozen=True)
class PartStore:
    """A state store of an operator or of an interceptor."""

    builder: StoreBuilder[Any]
    entry_keys: str | None = None
    """How the library makes the store's keys, a word of `recovery.making.placement`: tools find the record's key by it.

    None: unknown, so rescaling needs `key_of`. Raises ValueError for a word that is not known.
    """

    def __post_init__(self) -> None:
        if self.entry_keys is not None:
            check_entry_keys(self.builder.name, self.entry_keys)
