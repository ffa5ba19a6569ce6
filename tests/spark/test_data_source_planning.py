"""How a read of the data source is planned: its options, the driver that is asked, and what goes to executors."""

from __future__ import annotations

import json
import os
import pickle
import tempfile
from itertools import count
from pathlib import Path

import pytest
from pyspark.cloudpickle import cloudpickle
from pyspark.sql.datasource import EqualTo, Filter, In
from pyspark.sql.types import StructType

from statestore.bytestore.kinds.store_spec import StoreType
from statestore.errors import ChangesUnavailableError, DataSourceOptionError, RecoveryError, StateStoreError
from statestore.errors.new_state import DataFrameReusedError
from statestore.recovery.commit.pointer import CommitPointer, DurableFile, SnapshotRef
from statestore.recovery.location.durable_location import DurableLocation
from statestore.spark.datasource import planned_filters
from statestore.spark.datasource.change_feed import shard_changes
from statestore.spark.datasource.checkpoint_service import CheckpointService, DriverAddress
from statestore.spark.datasource.options import MAX_POINTERS_BYTES, ReadOptions, WriteOptions
from statestore.spark.datasource.planned_filters import check_filters
from statestore.spark.datasource.source import HeaderStateDataSource
from tests.support.spark.store_rows import options_of


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "'path'.*load"),
        ({"path": "x", "stores": "y"}, "'stores'.*is unknown"),
        ({"path": "x", "batchId": "-1", "checkpoint": "c"}, "'batchId'.*0 or more, got '-1'"),
        ({"path": "x", "batchId": "1"}, "'batchId'.*needs the option 'checkpoint'"),
        ({"path": "x", "pointers": "p", "checkpoint": "c"}, "'pointers'.*give one of them"),
        ({"path": "x", "includeHeaders": "maybe"}, "'includeHeaders'.*true or false"),
        ({"path": "x", "changeEndBatchId": "1"}, "'readChangeFeed'.*must be true"),
        ({"path": "x", "readChangeFeed": "true"}, "'changeStartBatchId'.*is missing"),
        ({"path": "x", "readChangeFeed": "TRUE", "changeStartBatchId": "1"}, "needs the option 'checkpoint'"),
        (
            {"path": "x", "readChangeFeed": "true", "changeStartBatchId": "2", "changeEndBatchId": "1"},
            "'changeEndBatchId'.*before 2",
        ),
        (
            {"path": "x", "readChangeFeed": "true", "changeStartBatchId": "2", "checkpoint": "c", "liveAtMs": "5"},
            "'liveAtMs'.*no meaning for a change feed",
        ),
        (
            {"path": "x", "readChangeFeed": "true", "changeStartBatchId": "2", "checkpoint": "c", "header": "h=x"},
            "'header'.*no meaning for a change feed",
        ),
        ({"path": "x", "readChangeFeed": "true", "changeStartBatchId": "1", "pointers": "p"}, "committed_options"),
        ({"path": "x", "pointers": "p", "pointersBefore": "p"}, "'pointersBefore'.*change feed"),
        ({"path": "x", "checkpoint": "c", "allPointers": "true"}, "'allPointers'.*needs the option 'pointers'"),
        ({"path": "x", "pointers": "{" * (MAX_POINTERS_BYTES + 1)}, "has 50,331,649 bytes.*write them to a file"),
        ({"path": "x", "liveAtMs": "now"}, "'liveAtMs'.*a whole number, 0 or more, got 'now'"),
    ],
)
def test_options_of_a_read_are_checked(options: dict[str, str], problem: str) -> None:
    with pytest.raises(DataSourceOptionError, match=problem):
        ReadOptions.of(options)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"shards": None}, "'shards'.*is missing"),
        ({"shards": "0"}, "'shards'.*1 or more"),
        ({"kind": "headers"}, "'kind'.*must be one of kv,"),
        ({"store": "no name"}, "illegal name"),
        ({"shardBy": "hash"}, "'shardBy'.*key or partition"),
        ({"windowSizeMs": None}, "'windowSizeMs'.*is missing"),
        ({"retentionMs": None, "segmentIntervalMs": None}, "'retentionMs'.*is missing"),
        ({"kind": "headers-kv"}, "'retentionMs'.*has no meaning"),
    ],
)
def test_options_of_a_write_are_checked(changed: dict[str, str | None], problem: str) -> None:
    options = {**options_of(StoreType.HEADERS_WINDOW, Path("x")), **changed}
    with pytest.raises(DataSourceOptionError, match=problem):
        WriteOptions.of({name: value for name, value in options.items() if value is not None})


def test_segments_are_those_of_kafka_if_nobody_says() -> None:
    options = {**options_of(StoreType.HEADERS_WINDOW, Path("x")), "retentionMs": "1000000"}
    del options["segmentIntervalMs"]
    assert WriteOptions.of(options).spec.segment_interval_ms == 500_000


def a_driver(pointers: list[str]) -> CheckpointService:
    def read_pointers(checkpoint: str, batch_id: int) -> list[str]:
        if batch_id == 9:
            raise RecoveryError(checkpoint, "batch 9 can't be read")
        if batch_id == 8:
            raise OSError("the disk is gone")
        return pointers

    batches = count(4)
    return CheckpointService(read_pointers, lambda checkpoint: next(batches))


def test_the_driver_answers_whoever_has_its_key(tmp_path: Path) -> None:
    service = a_driver(["a pointer"])
    address = service.address
    try:
        assert address.pointers("checkpoint", 3) == ["a pointer"]
        assert address.last_batch_id("checkpoint", "first") == 4
        assert address.last_batch_id("checkpoint", "second") == 5
        assert address.last_batch_id("checkpoint", "first") == 4, "however late it is asked again"
        with pytest.raises(RecoveryError, match="checkpoint: batch 9 can't be read"):
            address.pointers("checkpoint", 9)
        with pytest.raises(RecoveryError, match=r"can't be read .OSError: the disk is gone"):
            address.pointers("checkpoint", 8)
        fields = json.loads(Path(address.path).read_text())
        guessed = tmp_path / "guessed.json"
        guessed.write_text(json.dumps({**fields, "key": b"guessed".hex()}))
        with pytest.raises(RecoveryError, match="does not answer"):
            DriverAddress(str(guessed)).pointers("checkpoint", 3)
        assert address.pointers("checkpoint", 3) == ["a pointer"], "a stranger does not end the service"
    finally:
        service.close()
    with pytest.raises(RecoveryError, match=r"register_data_source\(spark\)"):
        address.pointers("checkpoint", 3)
    assert not Path(address.path).parent.exists()


def test_only_this_user_can_read_how_to_ask_the_driver() -> None:
    service = a_driver([])
    try:
        path = Path(service.address.path)
        assert (path.stat().st_mode & 0o077, path.parent.stat().st_mode & 0o077) == (0, 0)
        assert service.address.answers()
        path.unlink()
        assert not service.address.answers(), "as after a cleaner of temporary files"
    finally:
        service.close()


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The machine's temporary directory."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_dataframe_with_other_filters_than_before_is_refused(written_state: Path, temporary: Path) -> None:
    source = HeaderStateDataSource({"path": str(written_state), "pushFilters": "true"})
    made_once = pickle.dumps(source)

    def plan(*filters: Filter) -> None:
        # As Spark does it, in another process each time.
        reader = pickle.loads(made_once).reader(StructType())
        assert list(reader.pushFilters(list(filters))) == []

    many = [b"%08d" % number for number in range(100_000)]
    plan(In(("key",), tuple(many)))
    plan(In(("key",), tuple(reversed(many))))
    made_once = pickle.dumps(source)
    key, shard = EqualTo(("key",), b"a"), EqualTo(("shard",), 1)
    plan(key, shard)
    plan(shard, key)
    with pytest.raises(DataFrameReusedError, match="shard EqualTo 1"):
        plan(key)
    made_once = pickle.dumps(source)
    plan(key)
    (directory,) = temporary.glob("statestore-*/planned-filters")
    assert len(list(directory.iterdir())) == 3, "a file for each DataFrame, and nothing beside"
    assert directory.parent.stat().st_mode & 0o077 == 0, "filters may name customers"


def test_filters_of_so_many_dataframes_are_remembered(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planned_filters, "_FILTERS", ("planned-filters", 3))
    for number in range(5):
        check_filters(f"dataframe-{number}", "a filter")
        os.utime(next(temporary.glob(f"*/*/dataframe-{number}")), ns=(number, number))
    check_filters("dataframe-1", "another filter, of what is forgotten by now")
    with pytest.raises(DataFrameReusedError):
        check_filters("dataframe-4", "another filter")


def test_nothing_that_goes_to_executors_knows_the_driver(written_state: Path) -> None:
    service = a_driver([])
    try:

        class Registered(HeaderStateDataSource):
            driver = service.address

        source = Registered({"path": str(written_state), "pushFilters": "true"})
        planned = cloudpickle.loads(cloudpickle.dumps(source))
        assert planned.driver == service.address
        key = bytes.fromhex(json.loads(Path(service.address.path).read_text())["key"])
        everything = cloudpickle.dumps(source)
        reader = planned.reader(StructType())
        reader.pushFilters([EqualTo(("key",), b"a")])
        sent = cloudpickle.dumps((reader, planned, reader.partitions()))
    finally:
        service.close()
    assert service.address.path.encode() not in sent
    assert key not in sent
    assert service.address.path.encode() in everything
    assert key not in everything, "Spark sends the class itself to executors, too"
    assert key.hex().encode() not in everything


def test_options_are_known_in_any_case(tmp_path: Path) -> None:
    # Spark Connect hands them out in lower case.
    given = {"pushFilters": "true", "keyAs": "int64", "batchId": "3", "checkpoint": "c", "includeHeaders": "false"}
    asked = ReadOptions.of({"path": "x", **given})
    assert asked == ReadOptions.of({"PATH": "x", **{name.lower(): value for name, value in given.items()}})
    assert (asked.push_filters, asked.batch_id, asked.include_headers) == (True, 3, False)
    made = options_of(StoreType.HEADERS_WINDOW, tmp_path)
    assert WriteOptions.of({name.lower(): value for name, value in made.items()}) == WriteOptions.of(made)


def test_pointers_must_be_known(tmp_path: Path, written_state: Path) -> None:
    path = str(written_state)
    with pytest.raises(StateStoreError, match="register_data_source"):
        HeaderStateDataSource({"path": path, "checkpoint": "c"}).reader(StructType())
    with pytest.raises(DataSourceOptionError, match=r"'pointers'.*can't be read"):
        HeaderStateDataSource({"path": path, "pointers": str(tmp_path / "none")}).reader(StructType())
    with pytest.raises(DataSourceOptionError, match=r"'store'.*names 'other'.*'store'"):
        HeaderStateDataSource({"path": path, "store": "other"}).reader(StructType())
    with pytest.raises(RecoveryError, match="there is no state"):
        HeaderStateDataSource({"path": str(tmp_path)}).reader(StructType())


def delta(version: int) -> DurableFile:
    return DurableFile(f"shards/0000/deltas/{version}", 1, "digest")


def pointer(version: int, *, since: int = 0, deltas: str = "") -> CommitPointer:
    """Return a pointer whose deltas begin after `since`."""
    files = tuple(delta(number) for number in range(since + 1, version + 1))
    if deltas:
        files = tuple(file._replace(name=f"{file.name}{deltas}") for file in files)
    if not since:
        return CommitPointer("state", 0, version, files)
    manifest = DurableFile("manifest", 1, "digest")
    snapshots = (SnapshotRef(since, manifest, delta(since).name, since),)
    snapshots += (SnapshotRef(version, manifest, files[-1].name, version),)
    return CommitPointer("state", 0, version, files, snapshots=snapshots)


def test_changes_are_the_deltas_between_two_pointers_of_one_chain(tmp_path: Path) -> None:
    location = DurableLocation(tmp_path)
    changes = shard_changes(location, pointer(2), pointer(5), range(7, 10))
    assert (changes.first_version, changes.deltas) == (3, (delta(3), delta(4), delta(5)))
    assert changes.first_batch_id == 7, "three batches, three deltas"
    assert shard_changes(location, pointer(2), pointer(5), range(7, 12)).first_batch_id is None
    assert shard_changes(location, pointer(5), pointer(5), range(7, 8)).deltas == ()
    assert shard_changes(location, pointer(3), pointer(5, since=3), range(7, 9)).deltas == (delta(4), delta(5))


@pytest.mark.parametrize(
    ("older", "newer", "problem"),
    [
        (pointer(2), pointer(5, since=3), "snapshots have replaced the deltas up to version 3.*fewer batches"),
        (pointer(2), pointer(5, deltas="of another run"), "version 5 does not follow from version 2"),
        (pointer(5), pointer(2), "version 2 does not follow from version 5"),
    ],
)
def test_changes_that_are_not_all_there_are_refused(
    older: CommitPointer, newer: CommitPointer, problem: str, tmp_path: Path
) -> None:
    with pytest.raises(ChangesUnavailableError, match=problem) as raised:
        shard_changes(DurableLocation(tmp_path), older, newer, range(1, 4))
    assert raised.value.shard == 0
