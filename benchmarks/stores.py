"""Every kind of store beside bare rocksdict with the same bytes, and what an upgrade in progress costs.

`python benchmarks/stores.py` (part of `make bench`). Stores stand on a RocksDB family, without layers; bare rocksdict
gets, puts and iterates over the very keys and values that the store wrote, in the same database. Both run in turn,
several rounds; the best round counts. Values of 100 bytes with 3 headers of about 20 bytes, 16-byte keys.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from statestore import AggregationWithHeaders, Headers, Serdes, Stores, ValueTimestampHeaders, Windowed
from statestore.bytestore.engines.rocksdb import RocksDBDatabase
from statestore.bytestore.kinds.segments import SEGMENT_ID_SIZE
from statestore.bytestore.kinds.store_spec import column_family
from statestore.bytestore.protocol import ByteStore
from statestore.bytestore.upgrades import open_store
from statestore.bytestore.write_sets.write_set import WriteSet
from statestore.format.records.header_bytes import parse_count
from statestore.format.values.store_format import StoreFormat
from statestore.recovery.commit.changelog import batch_changelog
from statestore.stores.builder import StoreBuilder
from turns import Clock, best, seconds

RESULTS = Path(__file__).parent / "results" / "stores.json"
ENTRIES = 50_000
ROUNDS = 5
DAY_MS = 86_400_000
WINDOW_MS = 60_000
BYTES = Serdes.bytes()
HEADERS = Headers([("trace-id", b"0123456789abcdef"), ("source", b"sensor-eu-west"), ("schema-id", b"schema-0042")])
HELD = ValueTimestampHeaders(b"v" * 100, 1_700_000_000_000, HEADERS)
AGGREGATION = AggregationWithHeaders(b"v" * 100, HEADERS)
KEYS = [b"%016d" % number for number in range(ENTRIES)]
SHUFFLED = random.Random(1).sample(range(ENTRIES), ENTRIES)
TARGETS = {
    "key-value, get+put : bare rocksdict": 2.5,
    "key-value, values : bare rocksdict": 2.0,
    "key-value, scan : bare rocksdict": 3.0,
    "put of a version : put of a key and value": 4.0,
    "in a batch, put of a newer version : put of a key and value": 4.0,
}


class Kind(NamedTuple):
    """A kind of store with how to use entry `number` of it."""

    builder: StoreBuilder[Any]
    put: Callable[[Any, int], object]
    get: Callable[[Any, int], object]
    scan: Callable[[Any], Iterable[Any]]
    fetch: Callable[[Any, int], Iterable[Any]] | None = None
    entries_of_key: int = 1
    values: Callable[[Any], Iterable[Any]] | None = None


def time_ms(number: int) -> int:
    """Return the time of entry `number`: a day of entries in 100 windows."""
    return number % 100 * WINDOW_MS


def kinds() -> dict[str, Kind]:
    """Return every kind of store, with headers."""
    return {
        "key-value": Kind(
            Stores.timestamped_key_value_store_with_headers_builder(
                Stores.persistent_timestamped_key_value_store_with_headers("s"), BYTES, BYTES
            ),
            lambda store, number: store.put(KEYS[number], HELD),
            lambda store, number: store.get(KEYS[number]),
            lambda store: store.all(),
            values=lambda store: store.range_values(None, None),
        ),
        "window": Kind(
            Stores.timestamped_window_store_with_headers_builder(
                Stores.persistent_timestamped_window_store_with_headers("s", DAY_MS, WINDOW_MS), BYTES, BYTES
            ),
            lambda store, number: store.put(KEYS[number // 100], HELD, time_ms(number)),
            lambda store, number: store.fetch(KEYS[number // 100], time_ms(number)),
            lambda store: store.all(),
            lambda store, number: store.fetch(KEYS[number // 100], 0, DAY_MS),
            100,
        ),
        "session": Kind(
            Stores.session_store_with_headers_builder(
                Stores.persistent_session_store_with_headers("s", DAY_MS), BYTES, BYTES
            ),
            lambda store, number: store.put(session(number), AGGREGATION),
            lambda store, number: store.fetch_session(*session(number)),
            lambda store: store.fetch(None, None),
            lambda store, number: store.find_sessions(KEYS[number // 100], 0, DAY_MS),
            100,
        ),
        "versioned": Kind(
            Stores.versioned_key_value_store_with_headers_builder(
                Stores.persistent_versioned_key_value_store_with_headers("s", DAY_MS), BYTES, BYTES
            ),
            lambda store, number: store.put(KEYS[number // 10], b"v" * 100, number % 10 * WINDOW_MS, HEADERS),
            lambda store, number: store.get(KEYS[number // 10]),
            lambda store: (version for key in KEYS[: ENTRIES // 10] for version in store.get(key, 0, DAY_MS)),
            lambda store, number: store.get(KEYS[number // 10], 0, DAY_MS),
            10,
        ),
    }


def session(number: int) -> Windowed:
    """Return the session of entry `number`."""
    return Windowed(KEYS[number // 100], time_ms(number), time_ms(number) + 1000)


def drain(entries: Iterable[Any]) -> int:
    """Return how many entries there are."""
    count = 0
    for _ in entries:
        count += 1
    return count


def bare_fetch(bare: Any, segments: list[bytes], key: bytes) -> int:
    """Return how many entries of `key` bare rocksdict finds in the segments."""
    count = 0
    for segment in segments:
        for found, _ in bare.items(from_key=segment + key):
            if not found.startswith(segment + key):
                break
            count += 1
    return count


@contextmanager
def kind_runs(
    home: Path, kind: Kind, clock: Clock = time.perf_counter
) -> Iterator[tuple[Any, dict[str, Callable[[], float]]]]:
    """Hand out a full store of the kind, and rounds of what it does and of bare rocksdict beside it.

    A call of a round returns microseconds an operation, or an entry of a scan.
    """
    database = RocksDBDatabase(str(home), [column_family(kind.builder.spec)])
    store = kind.builder.build(database.family(column_family(kind.builder.spec), "s"))
    for number in range(ENTRIES):
        kind.put(store, number)
    database.flush()
    bare = database._stores[column_family(kind.builder.spec)]._family  # what a user of rocksdict would hold
    pairs = list(bare.items())
    order = [pairs[number % len(pairs)] for number in SHUFFLED]
    write_options = database.write_options
    runs: dict[str, tuple[Callable[[], object], int]] = {
        "get": (lambda: [kind.get(store, number) for number in SHUFFLED], ENTRIES),
        "bare get": (lambda: [bare.get(key) for key, _ in order], ENTRIES),
        "put": (lambda: [kind.put(store, number) for number in SHUFFLED], ENTRIES),
        "bare put": (lambda: [bare.put(key, value, write_options) for key, value in order], ENTRIES),
        "scan": (lambda: drain(kind.scan(store)), drain(kind.scan(store))),
        "bare scan": (lambda: drain(bare.items()), len(pairs)),
    }
    if kind.fetch is not None:
        fetch, chosen = kind.fetch, SHUFFLED[:500]
        fetched = sum(drain(fetch(store, number)) for number in chosen)
        runs["fetch"] = (lambda: [drain(fetch(store, number)) for number in chosen], fetched)
        segments = sorted({key[:SEGMENT_ID_SIZE] for key, _ in pairs})
        keys = [KEYS[number // kind.entries_of_key] for number in chosen]
        runs["bare fetch"] = (lambda: [bare_fetch(bare, segments, key) for key in keys], fetched)
    if kind.values is not None:
        values = kind.values
        runs["values"] = (lambda: drain(values(store)), ENTRIES)

    def round_us(operation: str) -> float:
        if operation == "scan":
            database.flush()
            bare.compact_range(None, None)
        run, count = runs[operation]
        return seconds(run, clock) / count * 1e6

    yield store, {operation: partial(round_us, operation) for operation in runs}
    database.close()


def measure_kind(home: Path, kind: Kind) -> dict[str, float]:
    """Return microseconds an operation, or an entry of a scan, of the store and of bare rocksdict."""
    with kind_runs(home, kind) as (store, runs):
        least = best(runs, ROUNDS)
        before = parse_count()
        drain(kind.scan(store))
        least["header parses of a scan"] = parse_count() - before
    return least


@contextmanager
def batch_put_runs(home: Path, clock: Clock = time.perf_counter) -> Iterator[dict[str, Callable[[], float]]]:
    """Hand out rounds of puts in a shard's batch: over what is committed, with its changelog.

    A call of a round returns microseconds a put.
    """
    puts: dict[str, Callable[[Any, int], object]] = {
        "key-value": kinds()["key-value"].put,
        "versioned": lambda store, number: store.put(
            KEYS[SHUFFLED[number] // 10], b"v" * 100, DAY_MS // 2 + number, HEADERS
        ),
    }

    def round_us(builder: StoreBuilder[Any], committed: ByteStore, put: Callable[[Any, int], object]) -> float:
        batch = builder.build(WriteSet(committed), changelog=batch_changelog(builder.spec))
        return seconds(partial(put_all, batch, put), clock) / ENTRIES * 1e6

    with ExitStack() as databases:
        runs: dict[str, Callable[[], float]] = {}
        for name, put in puts.items():
            builder = kinds()[name].builder
            database = RocksDBDatabase(str(home / f"batch-{name}"), [column_family(builder.spec)])
            databases.callback(database.close)
            committed = database.family(column_family(builder.spec), "s")
            put_all(builder.build(committed), kinds()[name].put)
            database.flush()
            runs[name] = partial(round_us, builder, committed, put)
        yield runs


def put_all(store: Any, put: Callable[[Any, int], object]) -> None:
    """Put all entries."""
    for number in range(ENTRIES):
        put(store, number)


def measure_upgrade(home: Path) -> dict[str, float]:
    """Return microseconds an operation while an upgrade from timestamped values goes on, and when it is finished."""
    least: dict[str, float] = {}
    for number in range(ROUNDS):
        for name, found in upgrade_round(home / f"upgrade-{number}").items():
            least[name] = min(least.get(name, float("inf")), found)
    return least


def upgrade_round(home: Path) -> dict[str, float]:
    """Return the figures of one upgrade."""
    builder = kinds()["key-value"].builder
    spec = builder.spec
    older = column_family(spec, StoreFormat.TIMESTAMPED)
    database = RocksDBDatabase(str(home), [older, column_family(spec)])
    database.family(older).write((key, b"\0" * 8 + b"v" * 100) for key in KEYS)
    database.flush()
    store = builder.build(open_store(database, spec, partial(column_family, spec), "s"))
    keys = [KEYS[number] for number in SHUFFLED[: ENTRIES // 2]]

    def get_all() -> float:
        return seconds(lambda: [store.get(key) for key in keys]) / len(keys) * 1e6

    def put_all() -> float:
        return seconds(lambda: [store.put(key, HELD) for key in keys]) / len(keys) * 1e6

    figures = {
        "get, which moves the entry": get_all(),
        "get of a moved entry, upgrade going on": get_all(),
        "put, upgrade going on": put_all(),
        "finish_upgrade, an entry": seconds(store.finish_upgrade) / (ENTRIES - len(keys)) * 1e6,
        "get, upgrade finished": get_all(),
        "put, upgrade finished": put_all(),
    }
    if not store.upgrade_progress().is_finished:
        raise AssertionError("the upgrade is not finished")
    database.close()
    return figures


def main() -> int:
    """Measure, print, write the results file."""
    with tempfile.TemporaryDirectory(prefix="statestore-bench-") as directory:
        measured = {name: measure_kind(Path(directory) / name, kind) for name, kind in kinds().items()}
        with batch_put_runs(Path(directory)) as runs:
            batch = best(runs, ROUNDS)
        upgrade = measure_upgrade(Path(directory))
    print(f"== Stores with headers beside bare rocksdict, best of {ROUNDS} (us an operation; scans: an entry)")
    print(f"   {'':12}{'get':>16}{'put':>16}{'scan':>16}{'fetch':>16}   header parses of a scan")
    for name, least in measured.items():
        cells = [
            f"{least[o]:8.2f} /{least['bare ' + o]:5.2f} " if o in least else " " * 16
            for o in ("get", "put", "scan", "fetch")
        ]
        print(f"   {name:12}{''.join(cells)}   {least['header parses of a scan']:.0f}")
    found = measured["key-value"]
    found_ratios = (
        (found["get"] + found["put"]) / (found["bare get"] + found["bare put"]),
        found["values"] / found["bare scan"],
        found["scan"] / found["bare scan"],
        measured["versioned"]["put"] / found["put"],
        batch["versioned"] / batch["key-value"],
    )
    ratios = dict(zip(TARGETS, found_ratios, strict=True))
    print(
        f"   in a batch: put of a key and value {batch['key-value']:.2f}, of a newer version {batch['versioned']:.2f}"
    )
    for name, ratio in ratios.items():
        met = "met" if ratio <= TARGETS[name] else "NOT MET"
        print(f"   {name}   {ratio:.2f}   target at most {TARGETS[name]}: {met}")
    print("== Upgrade of timestamped values to values with headers (us)")
    for name, microseconds in upgrade.items():
        print(f"   {name:42}{microseconds:8.2f}")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(
        json.dumps({"stores_us": measured, "ratios": ratios, "batch_put_us": batch, "upgrade_us": upgrade}, indent=2)
        + "\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
