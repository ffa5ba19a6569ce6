"""A shard whose stores change between batches: newer formats, other engines, more stores. Nothing is lost or stale."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from statestore import Headers, Serdes, Stores, Topology, ValueAndTimestamp, ValueTimestampHeaders
from statestore.bytestore.engines.rocksdb import list_families
from statestore.processor.context import TaskRecordContext
from statestore.processor.task_stores import flush_stores, shard_stores
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.commit.pointer_fields import BatchEnd
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.shard_batch import ShardBatch, ShardedState
from tests.support.recovery import on_record

STRING = Serdes.string()
HEADERS = Headers([("h", b"1")])
KEYS = [f"{number:03}" for number in range(20)]

PLAIN = Stores.key_value_store_builder(Stores.persistent_key_value_store("totals"), STRING, STRING)
TIMED = Stores.timestamped_key_value_store_builder(
    Stores.persistent_timestamped_key_value_store("totals"), STRING, STRING
)
HEADED = Stores.timestamped_key_value_store_with_headers_builder(
    Stores.persistent_timestamped_key_value_store_with_headers("totals"), STRING, STRING
)
IN_MEMORY = Stores.timestamped_key_value_store_with_headers_builder(
    Stores.in_memory_key_value_store("totals"), STRING, STRING
)
PLAIN_VERSIONS = Stores.versioned_key_value_store_builder(
    Stores.persistent_versioned_key_value_store("versions", 1000, 10), STRING, STRING
)
HEADED_VERSIONS = Stores.versioned_key_value_store_with_headers_builder(
    Stores.persistent_versioned_key_value_store_with_headers("versions", 1000, 10), STRING, STRING
)
OLDER, NEWER = "totals:keyValueWithTimestamp", "totals:keyValueWithTimestampAndHeaders"


class Shard:
    """Shard 0 of a state with the stores of these builders."""

    def __init__(self, home: Path, *builders: Any) -> None:
        self.home = home
        self.topology = Topology()
        for builder in builders:
            self.topology.add_state_store(builder)
        location = DurableLocation(home / "state")
        specs = self.topology.store_specs()
        memory = self.topology.in_memory_stores()
        self.state = on_record(ShardedState("state", location, specs, LocalDirectory(home / "local"), memory))

    def batch(self, pointer: CommitPointer | None, use: Any) -> CommitPointer:
        """Run `use` on the stores and the batch, and return the pointer after it."""
        with self.state.open(pointer or self.state.pointer(0, None)) as batch:
            stores = shard_stores(self.topology, batch, TaskRecordContext())
            use(stores, batch)
            return batch.commit(BatchEnd(store_times_ms=flush_stores(stores))).pointer

    def totals(self, pointer: CommitPointer) -> dict[str, Any]:
        """Return what the store `totals` holds."""
        found: dict[str, Any] = {}
        self.batch(pointer, lambda stores, batch: found.update(stores["totals"].all()))
        return found

    @property
    def copy(self) -> Path:
        return self.home / "local" / "state" / "shard-0000" / "copy-0"


def fill(stores: dict[str, Any], batch: ShardBatch) -> None:
    stores["totals"].put_all((key, ValueAndTimestamp(key, 5)) for key in KEYS)


@pytest.fixture
def timed(tmp_path: Path) -> CommitPointer:
    """Make a state of timestamped values whose local copy is up to date."""
    shard = Shard(tmp_path, TIMED)
    pointer = shard.batch(None, fill)
    assert shard.totals(pointer) == {key: ValueAndTimestamp(key, 5) for key in KEYS}
    return pointer


EXPECTED = {key: ValueTimestampHeaders(key, 5, Headers()) for key in KEYS}


def test_a_copy_is_upgraded_as_it_is_touched_and_needs_no_delta_for_it(tmp_path: Path, timed: CommitPointer) -> None:
    shard = Shard(tmp_path, HEADED)
    deltas = tmp_path / "state" / "shards"
    deltas.rename(tmp_path / "elsewhere")
    assert shard.totals(timed) == EXPECTED
    assert {OLDER, NEWER} <= set(list_families(str(shard.copy))), "a scan moves nothing"

    def touch(stores: dict[str, Any], batch: ShardBatch) -> None:
        assert stores["totals"].get(KEYS[3]) == EXPECTED[KEYS[3]]
        assert stores["totals"].upgrade_progress().entries_moved == 1
        batch.finish_upgrades(0)

    assert shard.batch(timed, touch) == timed, "moving entries changes nothing that is committed"

    def finish(stores: dict[str, Any], batch: ShardBatch) -> None:
        assert not stores["totals"].upgrade_progress().is_finished
        batch.finish_upgrades(60_000)
        assert stores["totals"].upgrade_progress().is_finished

    shard.batch(timed, finish)
    assert OLDER not in list_families(str(shard.copy))
    assert shard.totals(timed) == EXPECTED
    (tmp_path / "elsewhere").rename(deltas)


def test_upgraded_in_place_and_restored_from_deltas_are_the_same(tmp_path: Path, timed: CommitPointer) -> None:
    shard = Shard(tmp_path, HEADED)

    def change(stores: dict[str, Any], batch: ShardBatch) -> None:
        stores["totals"].put(KEYS[0], ValueTimestampHeaders("new", 6, HEADERS))
        stores["totals"].put(KEYS[1], None)
        assert stores["totals"].get(KEYS[2]) == EXPECTED[KEYS[2]]

    changed = shard.batch(timed, change)
    wanted = {**EXPECTED, KEYS[0]: ValueTimestampHeaders("new", 6, HEADERS)}
    del wanted[KEYS[1]]
    assert shard.totals(changed) == wanted
    shutil.rmtree(tmp_path / "local")
    assert shard.totals(changed) == wanted
    assert shard.totals(timed) == EXPECTED, "the version before it"


KILLED = """
import os, signal, sys
from pathlib import Path
from statestore.recovery.commit.pointer import CommitPointer
from tests.recovery.test_changed_stores import HEADED, KEYS, Shard

shard = Shard(Path(sys.argv[1]), HEADED)

def move_and_die(stores, batch):
    assert all(stores["totals"].get(key) for key in KEYS)
    # By now the older family is dropped, on the disk, and the moved entries are in memory alone.
    os.kill(os.getpid(), signal.SIGKILL)

shard.batch(CommitPointer.from_json(sys.argv[2]), move_and_die)
"""


def test_a_kill_in_the_middle_of_an_upgrade_costs_a_rebuild_and_no_entry(tmp_path: Path, timed: CommitPointer) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run([sys.executable, "-c", KILLED, tmp_path, timed.to_json()], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    marker = (Shard(tmp_path, HEADED).copy / "statestore.marker").read_text()
    assert '"repeatable": false' in marker, "with other files than it names, nothing in the copy is certain"
    assert Shard(tmp_path, HEADED).totals(timed) == EXPECTED


def test_headers_can_be_given_before_the_upgrade_to_timestamps_is_through(tmp_path: Path) -> None:
    def fill_plain(stores: dict[str, Any], batch: ShardBatch) -> None:
        stores["totals"].put_all((key, key) for key in KEYS)

    plain = Shard(tmp_path, PLAIN).batch(None, fill_plain)
    Shard(tmp_path, PLAIN).batch(plain, lambda stores, batch: None)
    half = Shard(tmp_path, TIMED).batch(plain, lambda stores, batch: stores["totals"].get(KEYS[0]))
    found = Shard(tmp_path, HEADED).totals(half)
    assert found == {key: ValueTimestampHeaders(key, -1, Headers()) for key in KEYS}
    assert NEWER in list_families(str(Shard(tmp_path, HEADED).copy))


def test_versions_are_upgraded_with_their_rows(tmp_path: Path) -> None:
    def put(stores: dict[str, Any], batch: ShardBatch) -> None:
        for time_ms in (10, 25, 27, 40):
            stores["versions"].put("k", f"v{time_ms}", time_ms)
        stores["versions"].put("gone", "v", 30)
        stores["versions"].delete("gone", 35)

    first = Shard(tmp_path, PLAIN_VERSIONS).batch(None, put)
    Shard(tmp_path, PLAIN_VERSIONS).batch(first, lambda stores, batch: None)
    shard = Shard(tmp_path, HEADED_VERSIONS)
    seen: list[Any] = []

    def read(stores: dict[str, Any], batch: ShardBatch) -> None:
        seen.append([list(stores["versions"].get(key, 0, 100)) for key in ("k", "gone")])

    def change(stores: dict[str, Any], batch: ShardBatch) -> None:
        assert stores["versions"].put("k", "v26", 26, HEADERS) == 27
        read(stores, batch)

    shard.batch(first, read)
    changed = shard.batch(first, change)
    shutil.rmtree(tmp_path / "local")
    shard.batch(first, read)
    shard.batch(changed, read)
    assert seen[0] == seen[2]
    assert seen[1] == seen[3]
    assert [(record.value, record.valid_to_ms, len(record.headers)) for record in seen[3][0]] == [
        ("v40", None, 0),
        ("v27", 40, 0),
        ("v26", 27, 1),
        ("v25", 26, 0),
        ("v10", 25, 0),
    ]
    assert [(record.value, record.valid_to_ms) for record in seen[3][1]] == [("v", 35)]


def test_a_store_that_moves_between_engines_is_never_stale(tmp_path: Path) -> None:
    def put(value: str) -> Any:
        return lambda stores, batch: stores["totals"].put("k", ValueTimestampHeaders(value, 1, HEADERS))

    pointer = None
    for number, builder in enumerate((HEADED, IN_MEMORY, IN_MEMORY, HEADED, IN_MEMORY, HEADED)):
        shard = Shard(tmp_path, builder)
        if pointer is not None:
            assert shard.totals(pointer) == {"k": ValueTimestampHeaders(str(number - 1), 1, HEADERS)}
        pointer = shard.batch(pointer, put(str(number)))


def test_an_added_store_starts_empty_and_the_others_stay(tmp_path: Path, timed: CommitPointer) -> None:
    shard = Shard(tmp_path, TIMED, PLAIN_VERSIONS)
    assert shard.totals(timed) == {key: ValueAndTimestamp(key, 5) for key in KEYS}
    pointer = shard.batch(timed, lambda stores, batch: stores["versions"].put("k", "v", 7))
    assert pointer.store_times_ms == {"versions": 7}
    shutil.rmtree(tmp_path / "local")
    assert shard.totals(pointer) == {key: ValueAndTimestamp(key, 5) for key in KEYS}


def test_a_dropped_store_leaves_nothing_in_a_copy_however_it_is_restored(tmp_path: Path) -> None:
    def write(value: str) -> Any:
        def put(stores: dict[str, Any], batch: ShardBatch) -> None:
            stores["totals"].put("k", ValueAndTimestamp(value, 5))
            if "versions" in stores:
                stores["versions"].put("k", value, 7)

        return put

    first = Shard(tmp_path, TIMED, PLAIN_VERSIONS).batch(None, write("both"))
    Shard(tmp_path, TIMED, PLAIN_VERSIONS).totals(first)
    shard = Shard(tmp_path, TIMED)
    second = shard.batch(first, write("one"))
    for _ in range(2):
        assert shard.totals(second) == {"k": ValueAndTimestamp("one", 5)}
        assert not [family for family in list_families(str(shard.copy)) if family.startswith("versions:")]
        assert shard.totals(first) == {"k": ValueAndTimestamp("both", 5)}
        shutil.rmtree(tmp_path / "local")


def test_stream_time_goes_on_from_batch_to_batch(tmp_path: Path) -> None:
    builder = Stores.window_store_builder(Stores.persistent_window_store("w", 100, 10, False, 50), STRING, STRING)
    shard = Shard(tmp_path, builder)
    first = shard.batch(None, lambda stores, batch: stores["w"].put("k", "v", 1000))

    def come_too_late(stores: dict[str, Any], batch: ShardBatch) -> None:
        stores["w"].put("k", "late", 500)
        assert stores["w"].fetch("k", 500) is None
        assert stores["w"].fetch("k", 1000) == "v"

    second = shard.batch(first, come_too_late)
    assert second.version == 2, "what came too late is logged, as in Kafka"
    assert second.store_times_ms == {"w": 1000}
    for _ in range(2):
        shown: list[Any] = []
        shard.batch(second, lambda stores, batch: shown.extend(stores["w"].all()))  # noqa: B023
        assert [(key.start_ms, value) for key, value in shown] == [(1000, "v")]
        shutil.rmtree(tmp_path / "local")


def test_what_a_store_was_restored_from_is_in_its_metrics(tmp_path: Path) -> None:
    def metrics_of(pointer: CommitPointer) -> dict[str, float]:
        found: dict[str, float] = {}
        measured = Shard(tmp_path, TIMED.with_metrics_enabled())
        measured.batch(pointer, lambda stores, batch: found.update(stores["totals"].metrics.values()))
        return found

    pointer = Shard(tmp_path, TIMED).batch(None, fill)
    metrics_of(pointer)
    caught_up = metrics_of(pointer)
    assert caught_up["restore-total"] == caught_up["restore-latency-max"] == 0
    shutil.rmtree(tmp_path / "local")
    restored = metrics_of(pointer)
    assert restored["restore-total"] == len(KEYS)
    assert restored["restore-rate"] > 0
    assert restored["restore-latency-max"] > restored["restore-latency-avg"] > 0
