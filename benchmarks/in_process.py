"""Without Spark: store calls beside bare rocksdict, the cost of a shard and batch, and where a record's time goes."""

from __future__ import annotations

import random
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import rocksdict

from on_record import on_record
from statestore import Headers, Processor, Topology, ValueTimestampHeaders
from statestore.interception.failures import FailureHandling
from statestore.processor.context import TaskRecordContext
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.shard_batch import ShardedState
from statestore.recovery.snapshots.options import RecoveryOptions
from statestore.spark.figures import ShardFigures
from statestore.spark.shards.pack import Pack, unpack
from statestore.spark.shards.shard_call import ShardCall
from statestore.stores.key_value import TimestampedKeyValueStoreWithHeaders
from statestore.stores.layers.layer import ChangeLoggingLayer
from turns import Clock, best
from workload import KEYS, STORE, VALUE_SIZE_BYTES, CountAndKeep, counting_topology, records

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


def bare_get_put_s(home: Path, clock: Clock = time.perf_counter) -> float:
    """Return seconds for OPERATIONS bare gets and puts of the stored bytes, write-ahead log off, over KEYS keys.

    The database is made in `home` before, and removed.
    """
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
    elapsed = get_put_s(store, keys, value, clock)
    store.close()
    shutil.rmtree(home)
    return elapsed


def get_put_s(store: Any, keys: Sequence[bytes], held: Any, clock: Clock) -> float:
    """Return seconds for a get and a put of `held` of each key."""
    get, put = store.get, store.put
    started = clock()
    for key in keys:
        get(key)
        put(key, held)
    return clock() - started


class Shard:
    """A state of one shard that holds KEYS keys, in a directory of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        topology = counting_topology()
        self.builder = topology.store_builders[STORE]
        location, local = DurableLocation(home / "state"), LocalDirectory(home / "local")
        self.state = on_record(ShardedState("benchmark", location, topology.store_specs(), local))
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


def store_get_put_s(shard: Shard, clock: Clock = time.perf_counter) -> tuple[float, float]:
    """Return seconds for OPERATIONS gets and puts through the store, and for them with commit and later application."""
    keys = [key_bytes(number) for number in random.Random(1).choices(range(KEYS), k=OPERATIONS)]
    kept = ValueTimestampHeaders.make(b"\0" * 8 + b"v" * VALUE_SIZE_BYTES, 1, HEADERS)
    with shard.store():
        pass  # what is committed is applied: the batch below starts level
    opened = clock()
    with shard.store() as store:
        elapsed = get_put_s(store, keys, kept, clock)
    with shard.store():
        pass
    return elapsed, clock() - opened


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


class ShardRounds:
    """Rounds of a topology: records packed, run through the shards of one state, and unpacked."""

    def __init__(
        self, home: Path, topology: Topology, shards: int = SHARDS, recovery: RecoveryOptions | None = None
    ) -> None:
        self.home = home
        self._routing = tuple(range(shards))
        location, local = DurableLocation(home / "state"), LocalDirectory(home / "local")
        recovery = recovery or RecoveryOptions()
        self._state = on_record(ShardedState("breakdown", location, topology.store_specs(), local, recovery=recovery))
        self._pack = Pack(shards, "key", self._routing)
        self._call = self._call_of(topology)
        self._pointers: list[str | None] = [None] * shards
        self.figures: list[ShardFigures] = []
        """Of each shard in the last round."""
        self.output_records = 0
        """How many came out in the last round."""

    @property
    def pointers(self) -> list[str | None]:
        """What is committed of each shard: the text that Spark's state would hold."""
        return list(self._pointers)

    def _call_of(self, topology: Topology) -> ShardCall:
        return ShardCall(topology, self._state, self._routing, FailureHandling(), 1 << 28)

    def us(self, rows: pa.RecordBatch, clock: Clock = time.perf_counter) -> dict[str, float]:
        """Return microseconds a record of each part, on one core."""
        chunks = [rows.slice(start, 10_000) for start in range(0, rows.num_rows, 10_000)]
        started = clock()
        packed = list(self._pack(iter(chunks)))
        done_pack = clock()
        outputs: list[bytes] = []
        self.figures.clear()
        for shard in range(len(self._pointers)):
            blobs = [row.column("blob")[0].as_py() for row in packed if row.column("route")[0].as_py() == shard]
            self._run(shard, blobs, outputs)
        done_call = clock()
        self.output_records = sum(
            batch.num_rows for batch in unpack(pa.record_batch([[blob]], ["blob"]) for blob in outputs)
        )
        done = clock()
        parts = {"pack": done_pack - started, "shard call": done_call - done_pack, "unpack": done - done_call}
        return {part: seconds / rows.num_rows * 1e6 for part, seconds in parts.items()}

    def _run(self, shard: int, blobs: Sequence[bytes], outputs: list[bytes]) -> None:
        run = self._call.run(shard, blobs, self._pointers[shard], "benchmark", 0, 0)
        while True:
            try:
                outputs.append(next(run))
            except StopIteration as end:
                self._pointers[shard] = str(end.value.pointer)
                self.figures.append(end.value.figures)
                return


class RecordRounds(ShardRounds):
    """Rounds of the counting operator."""

    def __init__(
        self,
        home: Path,
        processor: type[Processor] = CountAndKeep,
        shards: int = SHARDS,
        recovery: RecoveryOptions | None = None,
    ) -> None:
        super().__init__(home, counting_topology(processor), shards, recovery)

    def by(self, processor: type[Processor]) -> RecordRounds:
        """Return rounds of another processor over the same state: both go on from where the other has left it."""
        others = copy(self)
        others._call = self._call_of(counting_topology(processor))
        return others

    def copied_to(self, home: Path) -> RecordRounds:
        """Return rounds that go on by themselves from where these are now, on a copy of all files."""
        shutil.copytree(self.home, home)
        others = copy(self)
        others.home = home
        local = LocalDirectory(home / "local")
        others._state = replace(self._state, location=DurableLocation(home / "state"), local=local)
        others._call = replace(self._call, state=others._state)
        others._pointers, others.figures = list(self._pointers), []
        return others

    def us(self, rows: pa.RecordBatch, clock: Clock = time.perf_counter) -> dict[str, float]:
        """Return microseconds a record of each part, on one core."""
        us = super().us(rows, clock)
        if self.output_records != rows.num_rows:
            raise AssertionError(f"{rows.num_rows} records went in, {self.output_records} came out")
        return us


def record_breakdown_us(home: Path) -> dict[str, float]:
    """Return microseconds a record of pack, shard call and unpack, one core each, best of several batches."""
    rounds, total = RecordRounds(home), SHARD_RECORDS * SHARDS
    measured = [rounds.us(records(number * total, total)) for number in range(ROUNDS + 1)]
    # The first round fills an empty store.
    return {part: min(found[part] for found in measured[1:]) for part in measured[0]}


def measure(home: Path) -> dict[str, float | dict[str, float]]:
    """Run everything here; return figures by name."""
    shard = Shard(home / "shard")
    with_commit_s = []

    def store_s() -> float:
        alone, with_commit = store_get_put_s(shard)
        with_commit_s.append(with_commit)
        return alone

    least_s = best({"bare": lambda: bare_get_put_s(home / "bare"), "store": store_s}, ROUNDS)
    return {
        "bare_rocksdict_get_put_per_s": OPERATIONS / least_s["bare"],
        "store_get_put_per_s": OPERATIONS / least_s["store"],
        "store_get_put_with_commit_per_s": OPERATIONS / min(with_commit_s),
        "fixed_ms": fixed_ms_per_shard_batch(shard),
        "breakdown_us": record_breakdown_us(home / "breakdown"),
    }
