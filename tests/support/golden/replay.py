"""Does with our stores what the golden fixtures say Kafka Streams did, and shows the outcome in the fixtures' terms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from statestore import Headers
from statestore.bytestore.engines.memory import MemoryDatabase
from statestore.bytestore.engines.rocksdb import RocksDBDatabase
from statestore.bytestore.kinds.segments import segment_prefix
from statestore.bytestore.kinds.store_spec import FAMILIES, StoreKind, StoreSpec, column_family
from statestore.bytestore.protocol import ByteStore, RecordContext
from statestore.bytestore.upgrades import open_store
from statestore.bytestore.write_sets.write_set import WriteSet
from statestore.format.keys.window_key import MAX_TIME_MS
from statestore.format.records.header_bytes import encode_headers
from statestore.format.serde import Serdes
from statestore.format.values.store_format import StoreFormat
from statestore.processor.context import TaskRecordContext
from statestore.recovery.commit.changelog import Changelog, ChangelogRecord, EveryWrite, batch_changelog
from statestore.stores.builder import StoreBuilder
from statestore.stores.holders import AggregationWithHeaders, ValueAndTimestamp, ValueTimestampHeaders, VersionedRecord
from statestore.stores.iterator import Windowed
from statestore.stores.stores import Stores
from statestore.stores.supplier import BytesStoreSupplier
from statestore.stores.versioned import ResultOrder
from tests.support.golden.kafka_streams import Fixture

STORE = "store"
RETENTION_MS, SEGMENT_MS, WINDOW_MS, HISTORY_MS = 120_000, 60_000, 10_000, 300_000

Families = dict[str, dict[bytes, bytes]]
"""The entries of a store by the name that Kafka Streams gives their column family; families without entries are out."""
Json = Any


def _window(create: Callable[..., BytesStoreSupplier], duplicates: bool = False) -> BytesStoreSupplier:
    return create(STORE, RETENTION_MS, WINDOW_MS, duplicates, SEGMENT_MS)


def _session(create: Callable[..., BytesStoreSupplier]) -> BytesStoreSupplier:
    return create(STORE, RETENTION_MS, SEGMENT_MS)


_PLAIN_WINDOW, _TIMED_WINDOW = Stores.persistent_window_store, Stores.persistent_timestamped_window_store
_WINDOW = Stores.persistent_timestamped_window_store_with_headers
_WINDOW_BUILDER = Stores.timestamped_window_store_with_headers_builder
_KINDS: dict[str, tuple[Callable[..., StoreBuilder[Any]], BytesStoreSupplier]] = {
    "kv": (Stores.key_value_store_builder, Stores.persistent_key_value_store(STORE)),
    "ts-kv": (
        Stores.timestamped_key_value_store_builder,
        Stores.persistent_timestamped_key_value_store(STORE),
    ),
    "headers-kv": (
        Stores.timestamped_key_value_store_with_headers_builder,
        Stores.persistent_timestamped_key_value_store_with_headers(STORE),
    ),
    "window": (Stores.window_store_builder, _window(_PLAIN_WINDOW)),
    "window-dup": (Stores.window_store_builder, _window(_PLAIN_WINDOW, duplicates=True)),
    "ts-window": (Stores.timestamped_window_store_builder, _window(_TIMED_WINDOW)),
    "headers-window": (_WINDOW_BUILDER, _window(_WINDOW)),
    "headers-window-dup": (_WINDOW_BUILDER, _window(_WINDOW, duplicates=True)),
    "session": (Stores.session_store_builder, _session(Stores.persistent_session_store)),
    "headers-session": (
        Stores.session_store_with_headers_builder,
        _session(Stores.persistent_session_store_with_headers),
    ),
    "versioned": (
        Stores.versioned_key_value_store_builder,
        Stores.persistent_versioned_key_value_store(STORE, HISTORY_MS, SEGMENT_MS),
    ),
    # No release of Kafka Streams has this one: `versioned` is restored as it.
    "headers-versioned": (
        Stores.versioned_key_value_store_with_headers_builder,
        Stores.persistent_versioned_key_value_store_with_headers(STORE, HISTORY_MS, SEGMENT_MS),
    ),
}


def builder_of(kind: str, *, caching: bool = False) -> StoreBuilder[Any]:
    """Return the builder of a store of raw bytes of one of the fixtures' kinds."""
    create, supplier = _KINDS[kind]
    builder = create(supplier, Serdes.bytes(), Serdes.bytes())
    if builder.format is StoreFormat.TIMESTAMPED_WITH_HEADERS:
        builder = builder.with_upgrade_through_timestamped()  # as Kafka Streams does, unasked
    return builder.with_caching_enabled() if caching else builder


def spec_of(kind: str) -> StoreSpec:
    """Return what is recorded of a store of one of the fixtures' kinds."""
    return builder_of(kind).spec


class Engine(Protocol):
    """Where a store's bytes are kept, from one opening to the next."""

    def open(self, spec: StoreSpec) -> ByteStore:
        """Return the bytes of the store, as an upgrade where they are in an older format."""
        ...

    def close(self) -> None:
        """Commit what was written, and close."""
        ...

    def families(self) -> Families:
        """Return what a closed engine holds."""
        ...


class OnRocksDB:
    """A shard's database, opened anew each time."""

    def __init__(self, home: Path) -> None:
        self._path = str(home / "db")
        self._database: RocksDBDatabase | None = None

    def open(self, spec: StoreSpec) -> ByteStore:
        """Return the bytes of the store, as an upgrade where they are in an older format."""
        self._database = RocksDBDatabase(self._path, [column_family(spec)])
        return open_store(self._database, spec, partial(column_family, spec), spec.name)

    def close(self) -> None:
        """Close the database."""
        assert self._database is not None
        self._database.close()

    def families(self) -> Families:
        """Return what the closed database holds."""
        return {name: entries for name, entries in self.all_families().items() if entries}

    def all_families(self) -> Families:
        """Return what the closed database holds, with the families of the store that are empty."""
        database = RocksDBDatabase(self._path, [])
        try:
            names = [name for name in database.families if name.startswith(f"{STORE}:")]
            return {name.partition(":")[2]: dict(database.family(name).range(None, None)) for name in names}
        finally:
            database.close()


class OnWriteSet:
    """A database under the write set of a batch, which is committed by `close`."""

    def __init__(self, database: Engine) -> None:
        self._database = database

    def open(self, spec: StoreSpec) -> ByteStore:
        """Return the write set over the bytes of the store."""
        self._committed = self._database.open(spec)
        self._pending = WriteSet(self._committed)
        return self._pending

    def close(self) -> None:
        """Commit what was written, and close the database."""
        self._pending.apply_to(self._committed)
        self._database.close()

    def families(self) -> Families:
        """Return what the database holds."""
        return self._database.families()


class InMemory:
    """A database in memory. It has one family, so there is nothing to upgrade."""

    def __init__(self, home: Path) -> None:
        self._database: MemoryDatabase | None = None
        self._family = ""

    def open(self, spec: StoreSpec) -> ByteStore:
        """Return the bytes of the store."""
        if self._database is None:
            self._family = column_family(spec)
            self._database = MemoryDatabase([self._family])
        return self._database.family(column_family(spec), spec.name)

    def close(self) -> None:
        """Do nothing: what is closed in memory is gone."""

    def families(self) -> Families:
        """Return what the database holds."""
        assert self._database is not None
        entries = dict(self._database.family(self._family).range(None, None))
        return {self._family.partition(":")[2]: entries} if entries else {}


ENGINES: dict[str, Callable[[Path], Engine]] = {
    "rocksdb": OnRocksDB,
    "write set": lambda home: OnWriteSet(OnRocksDB(home)),
    "memory": InMemory,
}


class Lived(NamedTuple):
    """What came of a session: what the operations returned, and the changelog that the store wrote."""

    returned: list[Json]
    changelog: list[ChangelogRecord]
    """Every write in order, as Kafka Streams sends them to its changelog topic."""
    batch_changelog: list[ChangelogRecord]
    """The same as a batch keeps it: of most stores the last write of each key."""
    stream_time_ms: int
    """The store's stream time in the end; -1 if it keeps none."""


class Logs(Changelog):
    """Takes down the writes to a store twice: every one in order, and as a batch does."""

    def __init__(self, spec: StoreSpec) -> None:
        self.every = EveryWrite(spec)
        self.of_batch = batch_changelog(spec)

    def append(self, key: bytes, stored: bytes | None, context: RecordContext, timestamp_ms: int | None = None) -> None:
        """Note that `key` was set to `stored`, or deleted if that is None, for the record in `context`."""
        self.every.append(key, stored, context, timestamp_ms)
        self.of_batch.append(key, stored, context, timestamp_ms)


def live(
    engine: Engine, kind: str, operations: Iterable[Json], *, caching: bool = False, stream_time_ms: int = -1
) -> Lived:
    """Run the operations of one session on a store that is opened for it, as in Kafka with its stream time unknown."""
    builder = builder_of(kind, caching=caching)
    logs, context = Logs(builder.spec), TaskRecordContext()
    inner = engine.open(builder.spec)
    store = builder.build(inner, changelog=logs, context=context, stream_time_ms=stream_time_ms)
    returned = []
    try:
        # The driver of Kafka's fixtures committed, which flushes caches, after each record.
        for record, of_record in by_record(operations):
            context.timestamp_ms = record["timestamp"]
            context.headers = headers_of(record["headers"])
            returned += [as_json(perform(store, kind, operation)) for operation in of_record]
            # What is flushed was written for a record that is over.
            context.timestamp_ms, context.headers = -77, Headers([("over", None)])
            store.flush()
    finally:
        engine.close()
    time_ms = store.stream_time_ms
    return Lived(returned, logs.every.records(), logs.of_batch.records(), -1 if time_ms is None else time_ms)


def by_record(operations: Iterable[Json]) -> Iterator[tuple[Json, Iterator[Json]]]:
    """Yield each record with the operations that were done while it was processed."""
    return groupby(operations, key=lambda operation: operation["record"])


def perform(store: Any, kind: str, operation: Json) -> Any:
    """Do one operation of a fixture, and return what the store returned."""
    key = bytes.fromhex(operation["key"])
    time_ms = operation.get("timestamp", 0)
    start_ms, end_ms = operation.get("start", 0), operation.get("end", 0)
    held = held_value(kind, operation) if "value" in operation else None
    operations: dict[str, Callable[[], Any]] = {
        "get": lambda: store.get(key),
        "put": lambda: store.put(key, held),
        "putIfAbsent": lambda: store.put_if_absent(key, held),
        "delete": lambda: store.delete(key),
        "windowPut": lambda: store.put(key, held, start_ms),
        "windowFetch": lambda: store.fetch(key, start_ms),
        "sessionPut": lambda: store.put(Windowed(key, start_ms, end_ms), held),
        "sessionRemove": lambda: store.remove(Windowed(key, start_ms, end_ms)),
        "sessionFetch": lambda: store.fetch_session(key, start_ms, end_ms),
        "versionedPut": lambda: store.put(key, held, time_ms),
        "versionedDelete": lambda: store.delete(key, time_ms),
    }
    return operations[operation["op"]]()


def held_value(kind: str, operation: Json) -> Any:
    """Return what an operation puts into a store of this kind: a plain value or a holder, None for a null."""
    value = None if operation["value"] is None else bytes.fromhex(operation["value"])
    if kind == "headers-session":
        return AggregationWithHeaders.make(value, headers_of(operation["headers"]))
    if kind.startswith("headers-"):
        return ValueTimestampHeaders.make(value, operation["timestamp"], headers_of(operation["headers"]))
    return ValueAndTimestamp.make(value, operation["timestamp"]) if kind.startswith("ts-") else value


def as_json(held: Any) -> Json:
    """Return what a store returned as the fixtures show it."""
    if isinstance(held, bytes):
        return held.hex()
    if isinstance(held, AggregationWithHeaders):
        return {"value": held.aggregation.hex(), "headers": headers_json(held.headers)}
    if isinstance(held, ValueTimestampHeaders):
        shown = {"value": held.value.hex(), "timestamp": held.timestamp_ms}
        return {**shown, "headers": headers_json(held.headers)}
    if isinstance(held, ValueAndTimestamp):
        return {"value": held.value.hex(), "timestamp": held.timestamp_ms}
    if isinstance(held, VersionedRecord):
        return {"value": held.value.hex(), "timestamp": held.timestamp_ms, "validTo": held.valid_to_ms}
    return held


def headers_of(pairs: Json) -> Headers:
    """Return the headers that a fixture shows."""
    return Headers((key, None if value is None else bytes.fromhex(value)) for key, value in pairs)


def headers_json(headers: Headers) -> Json:
    """Return headers as the fixtures show them."""
    return [[key, None if value is None else value.hex()] for key, value in headers]


def records_of(changelog: Json) -> list[ChangelogRecord]:
    """Return the changelog records that a fixture shows."""
    return [
        ChangelogRecord(
            bytes.fromhex(record["key"]),
            None if record["value"] is None else bytes.fromhex(record["value"]),
            record["timestamp"],
            encode_headers(headers_of(record["headers"])),
        )
        for record in changelog
    ]


def families_of(dump: Json) -> Families:
    """Return the entries of a dump of Kafka's databases, where they stand with us: behind their segment's id.

    The segments of a store are databases of their own in Kafka Streams, and those of a versioned store logical already.
    """
    families: Families = {}
    for database in dump:
        segment = database["path"].rpartition("/")[2].partition(".")[2]
        prefix = segment_prefix(int(segment) // SEGMENT_MS) if segment else b""
        for family in database["columnFamilies"]:
            if family["name"] != "offsets" and family["entries"]:
                entries = families.setdefault(family["name"], {})
                entries.update((prefix + bytes.fromhex(key), bytes.fromhex(value)) for key, value in family["entries"])
    return families


def family_of(spec: StoreSpec) -> str:
    """Return the name that Kafka Streams gives the column family of a store."""
    return FAMILIES[spec.kind][spec.format]


def content_of(store: Any, fixture: Fixture) -> list[Json]:
    """Return everything that a store shows, read by its scans, as logical.json shows it."""
    spec = spec_of(fixture.fixture["kind"])
    if spec.kind is StoreKind.VERSIONED:
        keys = [bytes.fromhex(entry["key"]) for entry in fixture.logical["entries"]]
        return [
            {"key": key.hex(), "latest": as_json(store.get(key)), "versions": versions_of(store, key)} for key in keys
        ]
    scan = store.find_sessions(0, MAX_TIME_MS) if spec.kind is StoreKind.SESSION else store.all()
    return [entry_json(key, held) for key, held in scan]


def versions_of(store: Any, key: bytes) -> list[Json]:
    """Return all versions of a key, the oldest first."""
    return [as_json(version) for version in store.get(key, 0, MAX_TIME_MS, ResultOrder.ASCENDING)]


def entry_json(key: Any, held: Any) -> Json:
    """Return an entry of a scan as logical.json shows it."""
    shown = as_json(held)
    value = shown if isinstance(shown, dict) else {"value": shown}
    if isinstance(key, Windowed):
        return {"key": key.key.hex(), "start": key.start_ms, "end": key.end_ms, **value}
    return {"key": key.hex(), **value}
