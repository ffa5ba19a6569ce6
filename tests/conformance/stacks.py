"""What the conformance suites of the typed stores share: stores on every engine, under every stack of layers.

A case is one way to come by a store: its format, its engine, its layers, and what it finds where it is opened. A suite
is a contract that holds for all cases of its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from statestore import (
    AggregationWithHeaders,
    Headers,
    Serdes,
    StoreBuilder,
    Stores,
    TaskDirectory,
    ValueAndTimestamp,
    ValueTimestampHeaders,
    VersionedRecord,
    Windowed,
)
from statestore.bytestore.engines.memory import MemoryDatabase
from statestore.bytestore.engines.rocksdb import RocksDBDatabase
from statestore.bytestore.header_index import IndexedByteStore
from statestore.bytestore.kinds.segments import segment_of
from statestore.bytestore.kinds.store_spec import StoreSpec, column_family, older_formats
from statestore.bytestore.protocol import ByteStore
from statestore.bytestore.upgrades import open_store
from statestore.bytestore.write_sets.write_set import WriteSet
from statestore.format.values.store_format import StoreFormat
from statestore.processor.context import TaskRecordContext
from statestore.recovery.commit.changelog import ChangelogRecord, EveryWrite
from statestore.stores.layers.expiring import Expiry
from statestore.stores.metrics import StoreMetrics
from statestore.stores.supplier import BytesStoreSupplier

NAME: Final = "store"
INDEX: Final = "index"
RETENTION_MS: Final = 100
SEGMENT_MS: Final = 50
WINDOW_MS: Final = 10
TIMESTAMP_MS: Final = 5
HEADERS: Final = Headers([("trace", b"1"), ("trace", None)])
RECORD_HEADERS: Final = Headers([("of", b"the record")])

PLAIN = StoreFormat.PLAIN
TIMESTAMPED = StoreFormat.TIMESTAMPED
TIMESTAMPED_WITH_HEADERS = StoreFormat.TIMESTAMPED_WITH_HEADERS
WITH_HEADERS = StoreFormat.WITH_HEADERS

# In memory where there is one, since it is the fastest: what is written here is gone after each test.
SCRATCH: Final = "/dev/shm" if Path("/dev/shm").is_dir() else None

Entry = tuple[Any, ...]
Hold = Callable[..., Any]


@dataclass(frozen=True)
class Kind:
    """A kind of store: its factories, and how an entry is put."""

    builders: Mapping[StoreFormat, Callable[..., StoreBuilder[Any]]]
    persistent: Mapping[StoreFormat, Callable[[], BytesStoreSupplier]]
    in_memory: Callable[[], BytesStoreSupplier]
    factories: frozenset[Callable[..., Any]]
    """The factories of suppliers that `persistent` and `in_memory` call."""
    put: Callable[[Any, Hold, Entry], Any]
    cached: bool = True

    def builder(self, store_format: StoreFormat, *, persistent: bool = True) -> StoreBuilder[Any]:
        """Return the builder of a store in a format, with keys of bytes and values of integers."""
        supplier = self.persistent[store_format]() if persistent else self.in_memory()
        return self.builders[store_format](supplier, Serdes.bytes(), Serdes.int64())


def _kind(
    persistent: Mapping[StoreFormat, Callable[..., BytesStoreSupplier]],
    in_memory: Callable[..., BytesStoreSupplier],
    arguments: tuple[Any, ...],
    builders: Mapping[StoreFormat, Callable[..., StoreBuilder[Any]]],
    put: Callable[[Any, Hold, Entry], Any],
    *,
    cached: bool = True,
    **options: Any,
) -> Kind:
    return Kind(
        builders,
        {known: partial(supplier, NAME, *arguments, **options) for known, supplier in persistent.items()},
        partial(in_memory, NAME, *arguments, **options),
        frozenset({in_memory, *persistent.values()}),
        put,
        cached,
    )


KEY_VALUE: Final = _kind(
    {
        PLAIN: Stores.persistent_key_value_store,
        TIMESTAMPED: Stores.persistent_timestamped_key_value_store,
        TIMESTAMPED_WITH_HEADERS: Stores.persistent_timestamped_key_value_store_with_headers,
    },
    Stores.in_memory_key_value_store,
    (),
    {
        PLAIN: Stores.key_value_store_builder,
        TIMESTAMPED: Stores.timestamped_key_value_store_builder,
        TIMESTAMPED_WITH_HEADERS: Stores.timestamped_key_value_store_with_headers_builder,
    },
    lambda store, hold, entry: store.put(entry[0], hold(entry[1])),
)

_window = partial(
    _kind,
    {
        PLAIN: Stores.persistent_window_store,
        TIMESTAMPED: Stores.persistent_timestamped_window_store,
        TIMESTAMPED_WITH_HEADERS: Stores.persistent_timestamped_window_store_with_headers,
    },
    Stores.in_memory_window_store,
    (RETENTION_MS, WINDOW_MS),
    {
        PLAIN: Stores.window_store_builder,
        TIMESTAMPED: Stores.timestamped_window_store_builder,
        TIMESTAMPED_WITH_HEADERS: Stores.timestamped_window_store_with_headers_builder,
    },
    lambda store, hold, entry: store.put(entry[0], hold(entry[1]), entry[2]),
    segment_interval=SEGMENT_MS,
)
WINDOW: Final = _window()
WINDOW_WITH_DUPLICATES: Final = _window(retain_duplicates=True, cached=False)

SESSION: Final = _kind(
    {PLAIN: Stores.persistent_session_store, WITH_HEADERS: Stores.persistent_session_store_with_headers},
    Stores.in_memory_session_store,
    (RETENTION_MS, SEGMENT_MS),
    {PLAIN: Stores.session_store_builder, WITH_HEADERS: Stores.session_store_with_headers_builder},
    lambda store, hold, entry: store.put(Windowed(entry[0], entry[2], entry[3]), hold(entry[1])),
)


def _put_version(store: Any, hold: Hold, entry: Entry) -> int:
    # A version's value is no holder: its headers are an argument of their own.
    held = hold(0)
    headers = () if held == 0 else (held.headers,)
    return store.put(*entry, *headers)


VERSIONED: Final = _kind(
    {
        PLAIN: Stores.persistent_versioned_key_value_store,
        WITH_HEADERS: Stores.persistent_versioned_key_value_store_with_headers,
    },
    Stores.in_memory_versioned_key_value_store,
    (RETENTION_MS, SEGMENT_MS),
    {
        PLAIN: Stores.versioned_key_value_store_builder,
        WITH_HEADERS: Stores.versioned_key_value_store_with_headers_builder,
    },
    _put_version,
    cached=False,
)

KINDS: Final = (KEY_VALUE, WINDOW, WINDOW_WITH_DUPLICATES, SESSION, VERSIONED)

ENGINES: Final = ("rocksdb", "memory", "write set", "task directory")
LAYERS: Final[Mapping[str, Callable[[StoreBuilder[Any]], StoreBuilder[Any]]]] = {
    "bare": lambda builder: builder.with_logging_disabled(),
    "logged": lambda builder: builder.with_logging_enabled(),
    "cached": lambda builder: builder.with_caching_enabled(),
    "metered": lambda builder: builder.with_metrics_enabled(),
    # Of key-value stores only. Nothing expires while a test runs: all must be as without.
    "expiring": lambda builder: builder.with_ttl(1).with_expiry_header(),
    # The cache is so small that most writes of a test go on before the test flushes it.
    "all": lambda builder: builder.with_caching_enabled(max_bytes=64).with_metrics_enabled(),
}


@dataclass(frozen=True)
class Case:
    """One way to come by a store."""

    kind: Kind
    format: StoreFormat
    engine: str
    layers: str
    older: StoreFormat | None = None
    """The format of what the store finds when it is opened; None if it finds nothing."""
    half: bool = False
    """Whether only the first half of what a test asks for is found, and the rest is put into the store itself."""

    def __str__(self) -> str:
        found = "fresh" if self.older is None else f"{'half ' * self.half}from {self.older.describe()}"
        return f"{self.format.describe()}, {self.engine}, {self.layers}, {found}"

    @property
    def builder(self) -> StoreBuilder[Any]:
        """The builder of the store."""
        builder = LAYERS[self.layers](self.kind.builder(self.format, persistent=self.engine != "memory"))
        return builder.with_header_index("h") if self.engine == "write set" and self.has_headers else builder

    @property
    def is_logged(self) -> bool:
        """Whether there is a changelog."""
        return self.builder.logging_enabled

    @property
    def has_headers(self) -> bool:
        """Whether values have headers."""
        return self.format in (TIMESTAMPED_WITH_HEADERS, WITH_HEADERS)

    @property
    def has_timestamps(self) -> bool:
        """Whether values have timestamps."""
        return self.format in (TIMESTAMPED, TIMESTAMPED_WITH_HEADERS)


def cases(kind: Kind, wanted: Callable[[Case], bool] = lambda case: True) -> list[Case]:
    """Return the cases of a kind.

    Stores of the newest format that find nothing go through all engines with all layers. Those that find an older
    format go through all layers on RocksDB or a write set over it: the layers don't see what is below them, so Kafka
    Streams' task directories go without layers and with all of them. The other formats differ by their codec alone, and
    are tried without layers and with all of them.
    """
    newest = max(kind.builders)
    layers = [
        name
        for name in LAYERS
        if name != ("all" if not kind.cached else "metered")
        and (kind.cached or name != "cached")
        and (kind is KEY_VALUE or name != "expiring")
    ]
    ends = (layers[0], layers[-1])
    found: list[Case] = []
    for store_format, engine, layer in product(kind.builders, ENGINES, layers):
        upgraded = {
            "rocksdb": layer in ends,
            "write set": layer not in ends,
            "task directory": layer == ends[0],
            "memory": False,  # which finds nothing
        }
        if engine == "task directory" and layer not in ends:
            continue
        if store_format is newest or (engine, layer) in (("rocksdb", ends[0]), ("memory", ends[1])):
            found.append(Case(kind, store_format, engine, layer))
        if not upgraded[engine] or kind is WINDOW_WITH_DUPLICATES:
            continue  # Kafka's numbers of duplicates begin anew at every start
        for older in older_formats(kind.builder(store_format).spec.kind, store_format):
            if layer == ends[0] or (store_format is newest and older is PLAIN):
                found += [Case(kind, store_format, engine, layer, older, half) for half in (False, True)]
    return [case for case in found if wanted(case)]


class Stack:
    """A store as a case describes it, open for the length of a test."""

    def __init__(self, case: Case, home: str) -> None:
        self.case = case
        self.builder = case.builder
        self.spec: StoreSpec = self.builder.spec
        self.context = TaskRecordContext()
        self.context.timestamp_ms = 7
        self.context.headers = RECORD_HEADERS
        self.changelog = EveryWrite(self.spec)
        self.older_records: list[ChangelogRecord] = []
        """What was logged of what the store finds."""
        self.metrics = StoreMetrics()
        self.bytes: ByteStore
        """What the store is on."""
        self.committed: ByteStore
        """The bytes below a write set; else the same."""
        self.store: Any = None
        self._path = home + "/db"
        self._expiry = MemoryDatabase(["expiry"]).family("expiry")
        self._database: RocksDBDatabase | MemoryDatabase | TaskDirectory | None = None

    def open(self, *content: Entry) -> Any:
        """Return the store with `content`, written in order; what part of it was there before is the case's choice."""
        older = self.case.older
        found = self.found_of(content)
        stream_time_ms = -1 if older is None else self._written_before(older, content[:found])
        self.store = self._opened(stream_time_ms)
        for entry in content[found:]:
            self.put(*entry)
        return self.store

    def found_of(self, content: Sequence[Entry]) -> int:
        """Return how many entries of the content are there in the older format when the store is opened."""
        if self.case.older is None:
            return 0
        return (len(content) + 1) // 2 if self.case.half else len(content)

    def reopen(self) -> Any:
        """Return the store on what was left, as the next batch finds it."""
        stream_time_ms = self.store.stream_time_ms
        self.store.flush()
        if isinstance(self.bytes, WriteSet):
            self.bytes.apply_to(self.committed)
        if self._database is not None and not isinstance(self._database, MemoryDatabase):
            self._database.close()
            self._database = None
        self.store = self._opened(-1 if stream_time_ms is None else stream_time_ms)
        return self.store

    def put(self, *entry: Any) -> Any:
        """Put an entry into the store, as its kind does it."""
        return self.case.kind.put(self.store, self.hold, entry)

    def hold(self, value: int | None, timestamp_ms: int = TIMESTAMP_MS, headers: Headers = HEADERS) -> Any:
        """Return what a store of the case's format holds of a value."""
        return hold(self.case.format, value, timestamp_ms, headers)

    def records(self) -> list[ChangelogRecord]:
        """Return what the store has logged since it was opened for the first time."""
        self.store.flush()
        return self.changelog.records()

    def close(self) -> None:
        """Close the database."""
        if self._database is not None:
            self._database.close()

    def _written_before(self, older: StoreFormat, content: tuple[Entry, ...]) -> int:
        builder = self.case.kind.builder(older)
        database, inner = self._on_disk(builder.spec)
        changelog = EveryWrite(builder.spec)
        store = builder.build(inner, changelog=changelog, context=self.context)
        for entry in content:
            self.case.kind.put(store, partial(hold, older), entry)
        self.older_records = changelog.records()
        stream_time_ms = store.stream_time_ms
        database.close()
        return -1 if stream_time_ms is None else stream_time_ms

    def _opened(self, stream_time_ms: int) -> Any:
        if self.case.engine == "memory":
            if self._database is None:
                self._database = MemoryDatabase([NAME])
            self.committed = self.bytes = self._database.family(NAME)
        else:
            self._database, self.committed = self._on_disk(self.spec)
            if self.spec.indexed_headers:
                assert isinstance(self._database, RocksDBDatabase)
                entries, index = map(self._database.family, (column_family(self.spec), INDEX))
                self.committed = IndexedByteStore(self.spec, self.committed, entries, index)
            self.bytes = WriteSet(self.committed) if self.case.engine == "write set" else self.committed
        times = self.builder.expiry_store
        return self.builder.build(
            self.bytes,
            changelog=self.changelog,
            context=self.context,
            stream_time_ms=stream_time_ms,
            metrics=self.metrics,
            expiry=None if times is None else Expiry(times.build(self._expiry).stack.top, self.context),
        )

    def _on_disk(self, spec: StoreSpec) -> tuple[RocksDBDatabase | TaskDirectory, ByteStore]:
        if self.case.engine == "task directory":
            directory = TaskDirectory(self._path, "application")
            return directory, directory.open_store(replace(spec, through_timestamped=True))
        database = RocksDBDatabase(self._path, [column_family(spec), INDEX])
        return database, open_store(database, spec, partial(column_family, spec), NAME)


@contextmanager
def stack_of(case: Case) -> Iterator[Stack]:
    """Hand out the stack of a case, and close it."""
    with TemporaryDirectory(dir=SCRATCH) as home:
        stack = Stack(case, home)
        try:
            yield stack
        finally:
            stack.close()


def hold(
    store_format: StoreFormat, value: int | None, timestamp_ms: int = TIMESTAMP_MS, headers: Headers = HEADERS
) -> Any:
    """Return what a store of a format holds of a value."""
    if value is None or store_format is PLAIN:
        return value
    if store_format is TIMESTAMPED:
        return ValueAndTimestamp(value, timestamp_ms)
    if store_format is WITH_HEADERS:
        return AggregationWithHeaders(value, headers)
    return ValueTimestampHeaders(value, timestamp_ms, headers)


def value_of(held: Any) -> Any:
    """Return the value in what a store holds, or in a version."""
    if isinstance(held, AggregationWithHeaders):
        return held.aggregation
    return held.value if isinstance(held, ValueAndTimestamp | ValueTimestampHeaders | VersionedRecord) else held


def values_of(entries: Any) -> list[tuple[Any, Any]]:
    """Return the entries of an iterator with their values alone."""
    return [(key, value_of(held)) for key, held in entries]


def keys_of(entries: Any) -> list[Any]:
    """Return the keys of an iterator's entries."""
    return [key for key, _ in entries]


def segments_of(stack: Stack) -> set[int]:
    """Return the ids of the segments that have entries."""
    stack.store.flush()
    return {segment_of(key) for key, _ in stack.bytes.range(None, None)}
