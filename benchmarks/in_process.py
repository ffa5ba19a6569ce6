"""Without Spark: store calls beside bare rocksdict, the cost of a shard and batch, and where a record's time goes."""

from __future__ import annotations

import random
import shutil
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import rocksdict

from statestore import Headers, ValueTimestampHeaders
from statestore.processor.context import TaskRecordContext
from statestore.processor.task import OnDeserializationError
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location import DurableLocation
from statestore.recovery.shard_batch import ShardedState
from statestore.spark.pack import Pack
from statestore.spark.shard_call import ShardCall
from statestore.spark.unpack import unpack
from statestore.stores.changelogging import ChangeLoggingLayer
from statestore.stores.key_value import TimestampedKeyValueStoreWithHeaders
from workload import KEYS, STORE, VALUE_SIZE_BYTES, counting_topology, records

ROUNDS = 3
OPERATIONS = 50_000
SHARD_RECORDS = 25_000
SHARDS = 4
HEADERS = Headers([("trace-id", b"0123456789abcdef"), ("source", b"sensor-eu-west"), ("schema-id", b"schema-0042")])


def key_bytes(number: int) -> bytes:
    """Return the key numbered `number`."""
    return b"%016d" % number


def stored_value() -> bytes:
    """Return a stored value as the operator writes it."""
    value = b"\0" * 8 + b"v" * VALUE_SIZE_BYTES
    header_bytes = HEADERS.to_bytes()
    return bytes([len(header_bytes) * 2 % 128 | 128, len(header_bytes) * 2 // 128]) + header_bytes + b"\0" * 8 + value


def bare_get_put_s(home: Path) -> float:
    """Return seconds for OPERATIONS bare gets and puts of the stored bytes, write-ahead log off, over KEYS keys."""
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_compression_type(rocksdict.DBCompressionType.none())
    options.set_allow_mmap_reads(True)
    table = rocksdict.BlockBasedOptions()
    table.set_bloom_filter(10, False)
    options.set_block_based_table_factory(table)
    write = rocksdict.WriteOptions()
    write.disable_wal = True
    value = stored_value()
    store = rocksdict.Rdict(str(home), options)
    store.set_write_options(write)
    for number in range(KEYS):
        store.put(key_bytes(number), value)
    store.close()
    store = rocksdict.Rdict(str(home), options)
    store.set_write_options(write)
    keys = [key_bytes(number) for number in random.Random(1).choices(range(KEYS), k=OPERATIONS)]
    get, put = store.get, store.put
    started = time.perf_counter()
    for key in keys:
        get(key)
        put(key, value)
    elapsed = time.perf_counter() - started
    store.close()
    return elapsed


class Shard:
    """A state of one shard that holds KEYS keys, in a directory of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        topology = counting_topology()
        self.builder = topology.store_builders[STORE]
        self.state = ShardedState(
            "benchmark", DurableLocation(home / "state"), topology.store_specs(), LocalDirectory(home / "local")
        )
        self.pointer = self.state.pointer(0, None)
        with self.store() as store:
            for number in range(KEYS):
                store.put(key_bytes(number), ValueTimestampHeaders.make(b"\0" * 8 + b"v" * 100, 1, HEADERS))

    @contextmanager
    def store(self) -> Iterator[TimestampedKeyValueStoreWithHeaders[bytes, bytes]]:
        """Hand out the store for a batch, and commit it."""
        with self.state.open(self.pointer) as batch:
            store = batch.stores[STORE]
            yield self.builder.build(store.bytes, changelog=store.changelog, context=TaskRecordContext())
            self.pointer = batch.commit().pointer


def store_get_put_s(shard: Shard) -> tuple[float, float]:
    """Return seconds for OPERATIONS gets and puts through the store, and for them with commit and later application."""
    keys = [key_bytes(number) for number in random.Random(1).choices(range(KEYS), k=OPERATIONS)]
    kept = ValueTimestampHeaders.make(b"\0" * 8 + b"v" * VALUE_SIZE_BYTES, 1, HEADERS)
    with shard.store():
        pass  # what is committed is applied: the batch below starts level
    opened = time.perf_counter()
    with shard.store() as store:
        get, put = store.get, store.put
        started = time.perf_counter()
        for key in keys:
            get(key)
            put(key, kept)
        elapsed = time.perf_counter() - started
    with shard.store():
        pass
    return elapsed, time.perf_counter() - opened


def fixed_ms_per_shard_batch(shard: Shard, cycles: int = 40) -> dict[str, float]:
    """Return median milliseconds of a batch of one record, by part, on a shard of KEYS keys."""
    parts: dict[str, list[float]] = {"open, marker, catch-up": [], "delta": [], "close": [], "total": []}
    for cycle in range(cycles):
        started = time.perf_counter()
        with shard.state.open(shard.pointer) as batch:
            opened = time.perf_counter()
            store = batch.stores[STORE]
            logged = ChangeLoggingLayer(store.bytes, store.spec, store.changelog, TaskRecordContext())
            logged.put(key_bytes(cycle), stored_value())
            shard.pointer = batch.commit().pointer
            committed = time.perf_counter()
        closed = time.perf_counter()
        for part, seconds in zip(
            parts, (opened - started, committed - opened, closed - committed, closed - started), strict=True
        ):
            parts[part].append(seconds * 1e3)
    return {part: statistics.median(times) for part, times in parts.items()}


def record_breakdown_us(home: Path) -> dict[str, float]:
    """Return microseconds a record of pack, shard call and unpack, one core each, best of several batches."""
    topology = counting_topology()
    routing = tuple(range(SHARDS))
    pack = Pack(SHARDS, "key", routing)
    call = ShardCall(
        topology,
        ShardedState(
            "breakdown", DurableLocation(home / "state"), topology.store_specs(), LocalDirectory(home / "local")
        ),
        routing,
        OnDeserializationError.FAIL,
        1 << 28,
    )
    pointers: list[str | None] = [None] * SHARDS
    total = SHARD_RECORDS * SHARDS
    times: dict[str, list[float]] = {"pack": [], "shard call": [], "unpack": []}
    for number in range(ROUNDS + 1):
        rows = records(number * total, total)
        chunks = [rows.slice(start, 10_000) for start in range(0, total, 10_000)]
        started = time.perf_counter()
        packed = list(pack(iter(chunks)))
        done_pack = time.perf_counter()
        outputs: list[bytes] = []
        for shard in range(SHARDS):
            blobs = [row.column("blob")[0].as_py() for row in packed if row.column("route")[0].as_py() == shard]
            pointers[shard] = _drain(call, shard, blobs, pointers[shard], outputs)
        done_call = time.perf_counter()
        unpacked = sum(batch.num_rows for batch in unpack(pa.record_batch([[blob]], ["blob"]) for blob in outputs))
        done = time.perf_counter()
        if unpacked != total:
            raise AssertionError(f"{total} records went in, {unpacked} came out")
        for part, seconds in zip(times, (done_pack - started, done_call - done_pack, done - done_call), strict=True):
            times[part].append(seconds / total * 1e6)
    # The first round fills an empty store.
    return {part: min(measured[1:]) for part, measured in times.items()}


def _drain(call: ShardCall, shard: int, blobs: list[bytes], pointer: str | None, outputs: list[bytes]) -> str:
    run = call.run(shard, blobs, pointer, "benchmark", 0)
    while True:
        try:
            outputs.append(next(run))
        except StopIteration as end:
            return str(end.value.pointer)


def measure(home: Path) -> dict[str, float | dict[str, float]]:
    """Run everything here; return figures by name."""
    bare_s = []
    store_s = []
    with_commit_s = []
    shard = Shard(home / "shard")
    for number in range(ROUNDS):
        # In turn, so that a slow minute of the machine strikes both.
        bare_s.append(bare_get_put_s(home / f"bare-{number}"))
        shutil.rmtree(home / f"bare-{number}")
        alone, with_commit = store_get_put_s(shard)
        store_s.append(alone)
        with_commit_s.append(with_commit)
    return {
        "bare_rocksdict_get_put_per_s": OPERATIONS / min(bare_s),
        "store_get_put_per_s": OPERATIONS / min(store_s),
        "store_get_put_with_commit_per_s": OPERATIONS / min(with_commit_s),
        "fixed_ms": fixed_ms_per_shard_batch(shard),
        "breakdown_us": record_breakdown_us(home / "breakdown"),
    }
