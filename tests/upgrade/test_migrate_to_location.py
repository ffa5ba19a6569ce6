"""Applications, local copies and older locations become a state location that a query starts from."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statestore.bytestore.engines.rocksdb import RocksDBDatabase
from statestore.bytestore.kafka_streams.task_directory import TaskDirectory
from statestore.bytestore.kinds.segments import segment_prefix
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec, StoreType, column_family
from statestore.errors import TargetNotEmptyError
from statestore.errors.new_state import StateCheckError
from statestore.errors.state import DurableFileMissingError
from statestore.format.keys.partitioner import partition_column
from statestore.format.keys.window_key import encode_window_key
from statestore.format.values.store_format import StoreFormat
from statestore.recovery.local.marker import LocalMarker, write_marker
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.making.new_state import NewState
from statestore.recovery.making.state_filling import ShardFilling
from statestore.recovery.metadata.state_metadata import read_metadata
from tests.support.recovery.expired_versions import put_versions
from tests.support.recovery.rescaling import KEYS, States, every_kind
from tests.support.tools.migrations import entry_documents, tree
from upgrade_tools.cli.printing.entry_documents import Document
from upgrade_tools.errors import MigrationRefusedError, UnknownKindError, UnknownLayoutError
from upgrade_tools.migration.migrate import migrate
from upgrade_tools.migration.planning.request import MigrationRequest, TargetFormat, TargetLayout
from upgrade_tools.migration.report import MigrationReport
from upgrade_tools.states.detection import open_state
from upgrade_tools.states.state import State, StateOptions

PARTITIONS, INTERVAL_MS, WINDOW_MS = 3, 60_000, 10_000
TOTALS = StoreSpec("totals", StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED)
VISITS = StoreSpec("visits", StoreKind.WINDOW, StoreFormat.PLAIN, 2 * INTERVAL_MS, INTERVAL_MS, WINDOW_MS)
STAMP = bytes(7) + b"\5"
SAID = {
    None: StateOptions(),
    "visits": StateOptions(kind=StoreType.WINDOW, window_size_ms=WINDOW_MS, retention_ms=2 * INTERVAL_MS),
}


def make_application(home: Path, segments: int = 2) -> Path:
    """Write an application's directory whose keys stand where Kafka's partitioner puts them."""
    keys = [b"customer-%d" % number for number in range(40)]
    places = partition_column(pa.array(keys, pa.binary()), PARTITIONS).tolist()
    for partition in range(PARTITIONS):
        with TaskDirectory(home / f"1_{partition}", "shop", partition) as task:
            totals, visits = task.open_store(TOTALS), task.open_store(VISITS)
            for number, (key, place) in enumerate(zip(keys, places, strict=True)):
                if place == partition:
                    totals.put(key, STAMP + b"%d" % number)
                    segment_id = number % segments
                    visits.put(segment_prefix(segment_id) + encode_window_key(key, segment_id * INTERVAL_MS), b"visit")
            task.commit("totals", 7, {})
            task.commit("visits", 7, {})
    return home


@pytest.fixture
def application(tmp_path: Path) -> Path:
    return make_application(tmp_path / "shop")


def to_location(application: Path, target: Path, **more: Any) -> MigrationReport:
    asked: dict[str, Any] = {"to": TargetFormat.HEADERS, "through_timestamped": True, "store_options": SAID, **more}
    return migrate(MigrationRequest(str(application), str(target), layout=TargetLayout.LOCATION, **asked))


def entries(state: State, part: int, store: str) -> list[Document]:
    (spec,) = [spec for spec in state.specs() if spec.name == store]
    with state.open(part, [spec]) as stores:
        return sorted(entry_documents(stores[store]), key=str)


def test_each_task_becomes_the_shard_of_its_number(application: Path, tmp_path: Path) -> None:
    before = tree(application)
    report = to_location(application, tmp_path / "state")
    assert tree(application) == before
    state = open_state(str(tmp_path / "state"))
    metadata = read_metadata(DurableLocation(tmp_path / "state"))
    assert metadata is not None
    assert (metadata.shards, metadata.shard_by, metadata.topology) == (PARTITIONS, "key", ())
    assert metadata.state_id == report.state_id
    assert [spec.format for spec in metadata.stores] == [StoreFormat.TIMESTAMPED_WITH_HEADERS] * 2
    assert [spec.retention_ms for spec in metadata.stores] == [None, VISITS.retention_ms]
    source = open_state(str(application))
    for part in range(PARTITIONS):
        headed = [
            {**entry, "timestamp": entry["timestamp"], "headers": []} for entry in entries(source, part, "totals")
        ]
        assert entries(state, part, "totals") == headed
    assert sum(len(entries(state, part, "visits")) for part in range(PARTITIONS)) == 40
    assert {store.name: store.entries for store in report.stores} == {"totals": 40, "visits": 40}


def test_keys_that_stand_elsewhere_are_no_keys_of_records(application: Path, tmp_path: Path) -> None:
    shutil.move(application / "1_0", application / "1_x")
    shutil.move(application / "1_1", application / "1_0")
    shutil.move(application / "1_x", application / "1_1")
    target = tmp_path / "state"
    for dry_run in (True, False):
        with pytest.raises(MigrationRefusedError, match="--shard-by partition"):
            to_location(application, target, dry_run=dry_run)
    with pytest.raises(UnknownLayoutError):
        open_state(str(target))
    shutil.rmtree(target)
    to_location(application, target, shard_by="partition")
    metadata = read_metadata(DurableLocation(target))
    assert metadata is not None
    assert metadata.shard_by == "partition"


def test_partitions_that_lie_elsewhere_must_be_brought(application: Path, tmp_path: Path) -> None:
    shutil.rmtree(application / "1_1")
    with pytest.raises(MigrationRefusedError, match=r"bring the others, \[1\]"):
        to_location(application, tmp_path / "state")
    with pytest.raises(MigrationRefusedError, match=r"bring the others, \[1, 3\]"):
        to_location(application, tmp_path / "state", shards=4)
    with pytest.raises(MigrationRefusedError, match="give with --shards"):
        to_location(application, tmp_path / "state", shards=2)
    assert not (tmp_path / "state" / "statestore.json").exists()
    to_location(application, tmp_path / "state", missing_are_empty=True)
    state = open_state(str(tmp_path / "state"))
    assert [bool(entries(state, part, "totals")) for part in state.parts] == [True, False, True]


def test_what_has_expired_stays_behind(tmp_path: Path) -> None:
    """Kafka Streams may still have it on its disk; a store of ours that has seen the latest time has not."""
    application = make_application(tmp_path / "shop", segments=5)
    notes = ("16 entries had expired by the latest time in their store, and were left behind",)
    assert to_location(application, tmp_path / "state", dry_run=True).notes == notes
    assert to_location(application, tmp_path / "state").notes == notes
    state = open_state(str(tmp_path / "state"))
    starts = {entry["start"] for part in state.parts for entry in entries(state, part, "visits")}
    assert starts == {2 * INTERVAL_MS, 3 * INTERVAL_MS, 4 * INTERVAL_MS}


def interrupt_before_completion(
    monkeypatch: pytest.MonkeyPatch, application: Path, target: Path, **options: Any
) -> None:
    """Have a migration end like one that is killed when all of its shards are finished, and the state is not."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patches:
        patches.setattr(NewState, "complete", interrupted)
        with pytest.raises(KeyboardInterrupt):
            to_location(application, target, **options)


def test_a_location_that_another_migration_has_begun_is_not_taken(
    application: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "state"

    interrupt_before_completion(monkeypatch, application, target)
    with pytest.raises(TargetNotEmptyError, match="another command has begun"):
        to_location(application, target, timestamp_ms=9)
    other = make_application(tmp_path / "other")
    with pytest.raises(TargetNotEmptyError, match="another command has begun"):
        to_location(other, target)
    written = {path for path in target.rglob("*.arrow")}
    report = to_location(application, target)
    assert {path for path in target.rglob("*.arrow")} == written, "no shard is done again"
    assert "shards 0, 1, 2 were finished by an earlier run" in report.notes[0]
    with pytest.raises(TargetNotEmptyError, match="a state"):
        to_location(application, target)


def test_a_source_that_has_changed_is_not_gone_on_with(
    application: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(NewState, "complete", interrupted)
    with pytest.raises(KeyboardInterrupt):
        to_location(application, tmp_path / "state")
    monkeypatch.undo()
    with TaskDirectory(application / "1_0", "shop", 0) as task:
        task.open_store(TOTALS).put(b"customer-new", STAMP)
    with pytest.raises(TargetNotEmptyError, match="as it was then"):
        to_location(application, tmp_path / "state")


def test_a_shard_that_does_not_read_back_makes_no_state(
    application: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = ShardFilling.put

    def forgetful(self: Any, shard: int, store: str, writes: list[Any]) -> None:
        honest(self, shard, store, writes)
        self._hold(shard, store, [writes[0]._replace(key=b"stranger")], 0)

    monkeypatch.setattr(ShardFilling, "put", forgetful)
    with pytest.raises(StateCheckError):
        to_location(application, tmp_path / "state", stores=["totals"])
    assert not (tmp_path / "state" / "statestore.json").exists()


@pytest.fixture
def states(tmp_path: Path) -> States:
    made = States(tmp_path, every_kind(), 2)
    made.put_everywhere({key: 50 + number for number, key in enumerate(KEYS)})
    return made


def test_a_location_becomes_one_in_a_newer_format(states: States, tmp_path: Path) -> None:
    pointers = list(states.pointers.values())
    request = MigrationRequest(
        str(tmp_path / "old"),
        str(tmp_path / "new"),
        to=TargetFormat.HEADERS,
        through_timestamped=True,
        pointers=pointers,
        timestamp_ms=77,
    )
    report = migrate(request)
    old = open_state(str(tmp_path / "old"), StateOptions(pointers=pointers))
    new = open_state(str(tmp_path / "new"))
    metadata = read_metadata(DurableLocation(tmp_path / "new"))
    assert metadata is not None
    assert {store.migrated for store in report.stores} <= {
        StoreType.HEADERS_KV,
        StoreType.HEADERS_WINDOW_DUP,
        StoreType.HEADERS_SESSION,
        StoreType.HEADERS_VERSIONED,
    }
    assert metadata.routing == states.metadata.routing
    for store in report.stores:
        for part in old.parts:
            before, after = entries(old, part, store.name), entries(new, part, store.name)
            assert [without_additions(entry) for entry in after] == [without_additions(entry) for entry in before]
    assert any(store.kind is not store.migrated for store in report.stores)


def without_additions(entry: Document) -> Document:
    """An entry without what a newer format adds."""
    kept = {name: value for name, value in entry.items() if name not in ("headers", "timestamp")}
    if "versions" in kept:
        kept["versions"] = [{**version, "headers": None} for version in kept["versions"]]
        kept["latest"] = None if kept["latest"] is None else {**kept["latest"], "headers": None}
    return kept


def test_shards_that_were_proved_for_another_number_are_not_taken(
    application: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "state"

    interrupt_before_completion(monkeypatch, application, target, shard_by="partition")
    with pytest.raises(TargetNotEmptyError, match="another command has begun"):
        to_location(application, target, shard_by="partition", shards=PARTITIONS + 1, missing_are_empty=True)
    report = to_location(application, target, shard_by="partition", shards=PARTITIONS)
    assert "shards 0, 1, 2 were finished by an earlier run" in report.notes[0], "it is the same number, said or not"


def test_a_file_that_is_missing_for_a_while_costs_no_finished_task(states: States, tmp_path: Path) -> None:
    states.put_everywhere(dict.fromkeys(KEYS, 50))
    pointers = list(states.pointers.values())
    target = tmp_path / "shop"
    request = MigrationRequest(str(tmp_path / "old"), str(target), layout=TargetLayout.KAFKA_STREAMS, pointers=pointers)
    (known,) = [
        store.name
        for store in open_state(str(tmp_path / "old")).found_stores()
        if store.kinds == (StoreType.HEADERS_KV,)
    ]
    request = replace(request, stores=[known])
    last = tmp_path / "old" / pointers[-1].deltas[-1].name
    last.rename(tmp_path / "away")
    with pytest.raises(DurableFileMissingError):
        migrate(request)
    tables = {path: path.stat().st_ino for path in target.with_name("shop.migrating").rglob("*.sst")}
    assert tables
    (tmp_path / "away").rename(last)
    assert migrate(request).parts == (0, 1)
    made = {path.stat().st_ino for path in target.rglob("*.sst")}
    assert set(tables.values()) <= made


def test_a_location_keeps_its_number_of_shards(states: States, tmp_path: Path) -> None:
    request = MigrationRequest(
        str(tmp_path / "old"), str(tmp_path / "new"), shards=3, pointers=list(states.pointers.values())
    )
    with pytest.raises(MigrationRefusedError, match="the command rescale"):
        migrate(request)


def test_a_location_is_never_changed_in_place(states: States, tmp_path: Path) -> None:
    request = MigrationRequest(str(tmp_path / "old"), pointers=list(states.pointers.values()))
    with pytest.raises(MigrationRefusedError, match="name a TARGET"):
        migrate(replace(request, to=TargetFormat.HEADERS))


def test_a_local_copy_becomes_a_location_or_a_task(tmp_path: Path) -> None:
    states = States(tmp_path, every_kind(), 1)
    states.put_everywhere(dict.fromkeys(KEYS, 50))
    copy = tmp_path / "local" / "old" / "state-old" / "shard-0000" / "copy-0"
    before = tree(copy)
    migrate(MigrationRequest(str(copy), str(tmp_path / "new"), layout=TargetLayout.LOCATION))
    source, new = open_state(str(copy)), open_state(str(tmp_path / "new"))
    names = [store.name for store in source.found_stores()]
    for name in names:
        assert entries(new, 0, name) == entries(source, 0, name)
    unknown_to_kafka = [name for name in names if source_kind(source, name) is StoreType.HEADERS_VERSIONED]
    known = [name for name in names if name not in unknown_to_kafka]
    target = tmp_path / "shop"
    migrate(MigrationRequest(str(copy), str(target), layout=TargetLayout.KAFKA_STREAMS, stores=known))
    made = open_state(str(target))
    found = {store.name for store in made.found_stores()}
    for name in known:
        if name in found:
            assert entries(made, 0, name) == entries(source, 0, name)
        else:
            assert entries(source, 0, name) == [], "a store without a segment has no directory"
    assert found
    assert tree(copy) == before


def test_segments_whose_times_nobody_knows_get_no_directories(tmp_path: Path) -> None:
    """A local copy of an older release, which has not recorded what its stores are."""
    copy, target = tmp_path / "copy-0", tmp_path / "shop"
    copy.mkdir()
    key = encode_window_key(b"k", 3 * INTERVAL_MS)
    database = RocksDBDatabase(str(copy), [column_family(VISITS)])
    database.family(column_family(VISITS), "visits").put(segment_prefix(3) + key, b"visit")
    database.close()
    write_marker(copy, LocalMarker("state-old", 0, ""), durably=False)
    said = StateOptions(kind=StoreType.WINDOW, window_size_ms=WINDOW_MS)
    asked = MigrationRequest(str(copy), str(target), layout=TargetLayout.KAFKA_STREAMS, store_options={"visits": said})
    for dry_run in (True, False):
        with pytest.raises(UnknownKindError, match="--segment-interval-ms"):
            migrate(replace(asked, dry_run=dry_run))
    assert not target.with_name("shop.migrating").exists()
    for store in ("visits", None):
        of_one = {store: replace(said, segment_interval_ms=INTERVAL_MS)}
        migrate(replace(asked, target=str(tmp_path / f"said-of-{store}"), store_options=of_one))
        databases = tmp_path / f"said-of-{store}" / "0_0" / "visits"
        assert [path.name for path in databases.iterdir()] == [f"visits.{3 * INTERVAL_MS}"]


def source_kind(state: State, name: str) -> StoreType:
    (found,) = [found for found in state.found_stores() if found.name == name]
    return found.kinds[0]


def test_versions_that_ended_too_long_ago_stay_behind(tmp_path: Path) -> None:
    history = StoreSpec("prices", StoreKind.VERSIONED, StoreFormat.PLAIN, 10 * INTERVAL_MS, INTERVAL_MS)
    task_path = tmp_path / "shop" / "0_0"
    with TaskDirectory(task_path, "shop") as task:
        put_versions(task.open_store(history), history)
    said = {None: StateOptions(kind=StoreType.VERSIONED, retention_ms=2 * INTERVAL_MS)}
    report = to_location(task_path, tmp_path / "state", store_options=said)
    found = {
        bytes.fromhex(entry["key"]): [(version["timestamp"], version["validTo"]) for version in entry["versions"]]
        for entry in entries(open_state(str(tmp_path / "state")), 0, "prices")
    }
    assert found == {b"k": [(70_000, 400_000), (500_000, None)], b"j": [(10, None)]}
    assert "3 entries had expired" in report.notes[0]
