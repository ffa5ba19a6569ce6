"""Each alert has a real cause here: a shard call, on a real state, whose disk, location, memory or records change."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest

from statestore import Processor, ProcessorContext, Record, Serdes, Stores, Topology, ValueAndTimestamp
from statestore import ValueTimestampHeaders as Stored
from statestore.bytestore.engines.rocksdb import RocksDBDatabase
from statestore.bytestore.write_sets.spilling import SpillSpace
from statestore.errors.state import LocationNotWritableError
from statestore.interception.failures import FailureHandling
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import Content, DurableLocation
from statestore.recovery.shard_batch import ShardedState
from statestore.recovery.snapshots.options import RecoveryOptions
from statestore.spark.figures import ShardFigures
from statestore.spark.shards.blobs import INPUT, encode_blob
from statestore.spark.shards.shard_call import ShardCall, ShardResult
from tests.support.recovery import on_record
from tests.support.recovery.shards import wait_for_uploads
from tests.support.recovery.spilling import small_space
from tests.support.spark.scraped import ALERTS, Driver, Scrapes, fired_at, with_prometheus

BYTES = Serdes.bytes()
DEFAULTS = RecoveryOptions()
MINUTES = 5
"""Between batches."""
BEGINS, ENDS = 5, 12
"""The batches that have the cause: for more than half an hour, the widest window."""
SLOW_BEGINS = ENDS - 2
"""The same of what is compared with before: in the last ten minutes."""
SLOW_S = 0.6
SPARKS_OWN_MS = 50
"""What Spark takes for a batch without any shard call."""


class Keeping(Processor):
    """Puts each record into its store; one whose value is `slow` takes long."""

    def init(self, context: ProcessorContext) -> None:
        self.kept = context.state_store("kept")

    def process(self, record: Record[bytes, bytes]) -> None:
        if record.value == b"slow":
            time.sleep(SLOW_S)
        self.kept.put(record.key, Stored.make(record.value, record.timestamp_ms, record.headers))


class KeepingWithoutHeaders(Keeping):
    def process(self, record: Record[bytes, bytes]) -> None:
        self.kept.put(record.key, ValueAndTimestamp.make(record.value, record.timestamp_ms))


OLDER = Stores.timestamped_key_value_store_builder(Stores.persistent_timestamped_key_value_store("kept"), BYTES, BYTES)
NEWER = Stores.timestamped_key_value_store_with_headers_builder(
    Stores.persistent_timestamped_key_value_store_with_headers("kept"), BYTES, BYTES
)


def keeping(*, headers: bool) -> Topology:
    topology = Topology()
    topology.add_source("in", key_serde=BYTES, value_serde=BYTES)
    topology.add_processor("keep", Keeping if headers else KeepingWithoutHeaders, ["in"])
    topology.add_state_store(NEWER if headers else OLDER, "keep")
    return topology


class SlowDisk(LocalDirectory):
    def open_database(self, path: Path, families: Sequence[str]) -> RocksDBDatabase:
        time.sleep(SLOW_S)
        return super().open_database(path, families)


class LittleMemory(LocalDirectory):
    def spill_space(self, path: Path) -> SpillSpace:
        return small_space(path, 10)


class SlowLocation(DurableLocation):
    def _write(self, name: str, content: Content) -> None:
        time.sleep(SLOW_S)
        super()._write(name, content)


class NoSnapshots(DurableLocation):
    def _write(self, name: str, content: Content) -> None:
        if "/snapshots/" in name:
            raise LocationNotWritableError(self.uri, cause="no room for snapshots")
        super()._write(name, content)


class HangingSnapshots(DurableLocation):
    goes_on = threading.Event()

    def _write(self, name: str, content: Content) -> None:
        if "/snapshots/" in name:
            self.goes_on.wait()
        super()._write(name, content)


@dataclass(frozen=True)
class Cause:
    """What changes for one shard."""

    disk: type[LocalDirectory] = LocalDirectory
    location: type[DurableLocation] = DurableLocation
    recovery: RecoveryOptions = DEFAULTS
    value: bytes = b"value"
    was_older: bool = False
    """Whether the state was begun without headers."""
    loses_disk: bool = False
    begins: int = BEGINS


HEALTHY = Cause()
CAUSES = {
    "StateStoreRestores": Cause(loses_disk=True),
    "StateStoreSlowDisk": Cause(disk=SlowDisk, begins=SLOW_BEGINS),
    "StateStoreSlowLocation": Cause(location=SlowLocation, begins=SLOW_BEGINS),
    "StateStoreSpills": Cause(disk=LittleMemory),
    "StateStoreSnapshotsFail": Cause(
        location=NoSnapshots, recovery=RecoveryOptions(snapshot_every_deltas=1, warn_after_deltas=0)
    ),
    "StateStoreSnapshotsOverdue": Cause(
        location=HangingSnapshots, recovery=RecoveryOptions(snapshot_every_deltas=2, warn_after_deltas=3)
    ),
    "StateStoreUpgradeStalls": Cause(recovery=RecoveryOptions(upgrade_budget_ms=0), was_older=True),
    "StateStoreHotShard": Cause(value=b"slow"),
}

TIMED = ("StateStoreSlowDisk", "StateStoreSlowLocation", "StateStoreHotShard")
"""Those of times, which a busy machine may fire by itself."""


def shard_call(home: Path, cause: Cause, *, is_there: bool) -> ShardCall:
    topology = keeping(headers=is_there or not cause.was_older)
    now = cause if is_there else HEALTHY
    location, local = now.location(home / "state"), now.disk(home / "local")
    state = on_record(ShardedState("state", location, topology.store_specs(), local, recovery=now.recovery))
    return ShardCall(topology, state, (17,), FailureHandling(), 1 << 20)


def one_record(number: int, value: bytes) -> bytes:
    columns = [["in"], [0], [number], [number], [b"key-%d" % number], [value], [b""]]
    arrays = [pa.array(each, kind.type) for each, kind in zip(columns, INPUT, strict=True)]
    return encode_blob([pa.record_batch(arrays, schema=INPUT)])


def run(call: ShardCall, recorded: str | None, number: int, value: bytes) -> ShardResult:
    running = call.run(17, [one_record(number, value)], recorded, "query", number, number)
    while True:
        try:
            next(running)
        except StopIteration as end:
            result: ShardResult = end.value
            return result


def figures_of(home: Path, cause: Cause) -> list[ShardFigures]:
    """Return what one shard tells of all batches."""
    pointer, told = None, []
    for number in range(ENDS + 1):
        is_there = number >= cause.begins
        if is_there and cause.loses_disk:
            shutil.rmtree(home / "local")
        value = cause.value if is_there else HEALTHY.value
        result = run(shard_call(home, cause, is_there=is_there), pointer, number, value)
        pointer = result.pointer
        told.append(result.figures)
        if is_there and cause.location is NoSnapshots:
            wait_for_uploads()
    return told


@pytest.fixture
def snapshots_go_on_in_the_end() -> Iterator[None]:
    yield
    HangingSnapshots.goes_on.set()
    wait_for_uploads()


@with_prometheus
@pytest.mark.usefixtures("snapshots_go_on_in_the_end")
def test_each_alert_is_fired_by_its_cause(tmp_path: Path) -> None:
    assert list(CAUSES) == ALERTS
    scrapes = Scrapes(MINUTES)
    healthy = figures_of(tmp_path / "healthy", HEALTHY)
    for alert, cause in CAUSES.items():
        driver = Driver(alert)
        for number, (told, other) in enumerate(zip(figures_of(tmp_path / alert, cause), healthy, strict=True)):
            others = [replace(other, shard=shard) for shard in range(1, 5)] if alert == "StateStoreHotShard" else []
            duration_ms = SPARKS_OWN_MS + round(max(told.elapsed_ms, other.elapsed_ms))
            driver.tell([told, *others], number, duration_ms=duration_ms)
            scrapes.take(driver, number)
    timed = [fired_at(ENDS * MINUTES, {alert: alert}, f'alertname="{alert}", query="{alert}"') for alert in TIMED]
    untimed = {alert: alert for alert in ALERTS if alert not in TIMED}
    scrapes.check(tmp_path, *timed, fired_at(ENDS * MINUTES, untimed, f'alertname!~"{"|".join(TIMED)}"'))
