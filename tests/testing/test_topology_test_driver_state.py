"""State that a test driver finds: of another driver, of Kafka Streams, or in changelogs that it is given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from statestore import Headers, ValueTimestampHeaders
from statestore.bytestore.kinds.store_spec import FAMILIES
from statestore.errors import RecoveryError, StoreFormatError
from statestore.errors.harness import IncompleteChangelogError
from statestore.errors.state import LocalStateLockedError
from statestore.testing import TestRecord, TopologyTestDriver
from tests.support.driver_topologies import (
    BYTES,
    HEADERS,
    KINDS,
    NONE,
    RECORDS,
    UPGRADES,
    chain,
    changelog_of,
    expected,
    forward,
    held,
    input_of,
    look_up,
    output_of,
    storing,
    with_global_store,
)
from tests.support.golden.kafka_streams import dump_task_directory, load_fixture
from tests.support.golden.replay import builder_of, content_of

STEPS = [(older, newer) for older, newers in UPGRADES.items() for newer in newers]


def test_a_state_directory_is_gone_on_with_by_the_next_driver(tmp_path: Path) -> None:
    with TopologyTestDriver(storing("headers-window"), state_dir=tmp_path, initial_wall_clock_time_ms=5) as driver:
        input_of(driver).pipe_record_list(RECORDS)
        driver.advance_wall_clock_time(10)
        with pytest.raises(LocalStateLockedError):
            TopologyTestDriver(storing("headers-window"), state_dir=tmp_path)
    with TopologyTestDriver(storing("headers-window"), state_dir=tmp_path) as driver:
        store = driver.get_state_store("s")
        assert store is not None
        assert held(KINDS["headers-window"], store) == expected("headers-window")
        assert (driver.wall_clock_time_ms, driver.stream_time_ms, store.stream_time_ms) == (15, 40_000, 40_000)
        input_of(driver).pipe_input("d", "5", timestamp_ms=41_000)
        assert len(changelog_of(driver, "s")) == 1
        driver.restart()
        # It knows only its own part of the changelog.
        with pytest.raises(IncompleteChangelogError, match="it was on the disk before the driver was made"):
            driver.restart(restore_from="changelog")
        assert held(KINDS["headers-window"], driver.get_state_store("s")) == expected("headers-window")
        with pytest.raises(IncompleteChangelogError, match="it was on the disk before the driver was made"):
            driver.restart(storing("headers-window", in_memory=True))
        driver.restart(storing("headers-window"))
        assert held(KINDS["headers-window"], driver.get_state_store("s")) == expected("headers-window")
    with TopologyTestDriver(storing("headers-window"), state_dir=tmp_path, application_id="other") as driver:
        assert driver.stream_time_ms == -1
        assert held(KINDS["headers-window"], driver.get_state_store("s")) == [None] * 5


def test_an_old_state_directory_is_upgraded_when_it_is_opened(tmp_path: Path) -> None:
    with TopologyTestDriver(storing("ts-kv"), state_dir=tmp_path) as driver:
        input_of(driver).pipe_record_list(RECORDS)
    with TopologyTestDriver(storing("headers-kv"), state_dir=tmp_path) as driver:
        assert held(KINDS["headers-kv"], driver.get_state_store("s")) == expected("headers-kv")
        input_of(driver).pipe_input("a", "new", timestamp_ms=50_000, headers=HEADERS)
    with pytest.raises(StoreFormatError):
        TopologyTestDriver(storing("ts-kv"), state_dir=tmp_path)
    with TopologyTestDriver(storing("headers-kv"), state_dir=tmp_path) as driver:
        store = driver.get_timestamped_key_value_store_with_headers("s")
        assert store is not None
        assert store.get("a") == ValueTimestampHeaders("new", 50_000, HEADERS)


def test_progress_of_format_1_has_no_processor_metadata(tmp_path: Path) -> None:
    with TopologyTestDriver(chain(), state_dir=tmp_path) as driver:
        input_of(driver).pipe_input("v", timestamp_ms=7)
    progress = tmp_path / "test-application" / "statestore.driver.json"
    recorded = json.loads(progress.read_text())
    assert (recorded.pop("format"), recorded.pop("processor_metadata")) == (2, {})
    progress.write_text(json.dumps({"format": 1, **recorded}))
    with TopologyTestDriver(chain(), state_dir=tmp_path) as driver:
        assert driver.stream_time_ms == 7
    assert json.loads(progress.read_text()) == {"format": 2, **recorded, "processor_metadata": {}}


def test_progress_that_is_not_ours_is_not_gone_on_with(tmp_path: Path) -> None:
    with TopologyTestDriver(chain(), state_dir=tmp_path) as driver:
        input_of(driver).pipe_input("v", timestamp_ms=7)
    progress = tmp_path / "test-application" / "statestore.driver.json"
    with TopologyTestDriver(chain(), state_dir=tmp_path) as driver:
        assert driver.stream_time_ms == 7
    recorded = json.loads(progress.read_text())
    for damaged in (
        "{",
        json.dumps({"format": 2}),
        json.dumps({**recorded, "format": 3}),
        "[]",
        json.dumps({**recorded, "stores": 1}),
        json.dumps({**recorded, "processor_metadata": {"s": 2**63}}),
    ):
        progress.write_text(damaged)
        with pytest.raises(RecoveryError, match=r"statestore\.driver\.json: is not the progress of a test driver"):
            TopologyTestDriver(chain(), state_dir=tmp_path)


def bytes_records(name: str, *, headers: Headers | None = None) -> list[TestRecord[Any, Any]]:
    """Return the changelog that a store of a kind writes of the records."""
    with TopologyTestDriver(storing(name)) as driver:
        input_of(driver).pipe_record_list(RECORDS)
        topic = driver.create_output_topic("test-application-s-changelog", key_serde=BYTES, value_serde=BYTES)
        return topic.read_records_to_list()


@pytest.mark.parametrize("in_memory", [False, True], ids=["persistent", "in memory"])
@pytest.mark.parametrize("name", KINDS)
def test_a_store_is_restored_from_the_changelog_that_is_given(name: str, in_memory: bool) -> None:
    given = bytes_records(name)
    assert len(given) == 5
    with TopologyTestDriver(storing(name, in_memory=in_memory), changelogs={"s": given}) as driver:
        assert held(KINDS[name], driver.get_state_store("s")) == expected(name)
        # What was given is there already: it is none of this driver's output.
        assert driver.produced_topic_names() == set()
        input_of(driver).pipe_input("d", "5", timestamp_ms=41_000)
        assert len(changelog_of(driver, "s")) == 1
        driver.restart(restore_from="changelog")
        assert held(KINDS[name], driver.get_state_store("s")) == expected(name)


@pytest.mark.parametrize(("older", "newer"), STEPS, ids=lambda name: name)
def test_a_legacy_changelog_restores_a_store_with_headers(older: str, newer: str) -> None:
    with TopologyTestDriver(storing(newer), changelogs={"s": bytes_records(older)}) as driver:
        # As in Kafka, values that have no timestamp get that of their record.
        restored = held(KINDS[newer], driver.get_state_store("s"))
        without = [record for record in expected(newer)]
        if older in ("window", "ts-window", "session"):
            without[0] = KINDS[newer].held("1", 10_000, NONE)
        assert restored == without


def test_only_what_the_disk_lacks_of_a_changelog_is_restored(tmp_path: Path) -> None:
    with TopologyTestDriver(storing("headers-kv"), state_dir=tmp_path) as driver:
        input_of(driver).pipe_record_list(RECORDS)
    changelog = [*bytes_records("headers-kv"), TestRecord(b"e", b"more", 42_000, HEADERS)]
    # Were it restored from the beginning, this one would show.
    changelog[1] = TestRecord(b"b", b"other", 20_000)
    with TopologyTestDriver(storing("headers-kv"), state_dir=tmp_path, changelogs={"s": changelog}) as driver:
        store = driver.get_timestamped_key_value_store_with_headers("s")
        assert store is not None
        assert store.get("b") == ValueTimestampHeaders("2", 20_000, NONE)
        assert store.get("e") == ValueTimestampHeaders("more", 42_000, HEADERS)
        driver.restart(restore_from="changelog")
        assert driver.get_state_store("s").get("b") == ValueTimestampHeaders("other", 20_000, NONE)  # type: ignore[union-attr]
    with pytest.raises(IncompleteChangelogError, match="3 records were given, but the store on the disk holds 6"):
        TopologyTestDriver(storing("headers-kv"), state_dir=tmp_path, changelogs={"s": changelog[:3]})


def test_changelog_records_are_bytes() -> None:
    for record in (TestRecord("k", b"v", 1), TestRecord(None, b"v", 1), TestRecord(b"k", "v", 1)):
        with pytest.raises(TypeError, match="a changelog record has a key and a value"):
            TopologyTestDriver(storing("kv"), changelogs={"s": [record]})  # type: ignore[list-item]


GOLDEN = ["kv", "ts-kv", "headers-kv", "headers-kv-from-ts", "headers-window", "ts-window", "headers-session", "old-kv"]


@pytest.mark.parametrize("name", [*GOLDEN, "old-ts-window", "old-session", "window-dup"])
def test_a_directory_of_kafka_streams_is_gone_on_with(name: str, tmp_path: Path) -> None:
    golden = load_fixture(name)
    golden.unpack(tmp_path)
    topology = chain(forward, builder_of(golden.fixture["kind"]))
    application: str = golden.fixture["applicationId"]
    with TopologyTestDriver(topology, application_id=application, state_dir=tmp_path) as driver:
        assert content_of(driver.get_state_store("store"), golden) == golden.logical["entries"]


def test_what_the_driver_leaves_is_a_directory_of_kafka_streams(tmp_path: Path) -> None:
    with TopologyTestDriver(storing("headers-kv"), state_dir=tmp_path, application_id="orders") as driver:
        input_of(driver).pipe_record_list(RECORDS)
    (database,) = dump_task_directory(tmp_path / "orders" / "0_0")
    families = {family["name"]: dict(family["entries"]) for family in database["columnFamilies"]}
    assert database["path"] == "rocksdb/s"
    assert families[FAMILIES[driver_spec("headers-kv").kind][driver_spec("headers-kv").format]].keys() == {"61", "62"}
    # Closed cleanly, with all five changelog records in it.
    offsets = {bytes.fromhex(key): value for key, value in families["offsets"].items()}
    assert offsets[b"status"] == "0" * 16
    assert int(offsets[b"orders-s-changelog-0"], 16) == 4
    assert b"in".hex() in offsets[b"position"]


def driver_spec(name: str) -> Any:
    return KINDS[name].persistent("s").spec


def test_a_global_store_is_gone_on_with_but_its_topic_is_not_known_whole(tmp_path: Path) -> None:
    topology = with_global_store(look_up)
    with TopologyTestDriver(topology, state_dir=tmp_path) as driver:
        input_of(driver, "global").pipe_input("k", "v")
    with TopologyTestDriver(topology, state_dir=tmp_path) as driver:
        input_of(driver).pipe_input("k", "?")
        assert output_of(driver).read_value() == "v"
        assert (tmp_path / "test-application" / "global" / "rocksdb" / "g").is_dir()
        with pytest.raises(IncompleteChangelogError, match="store 'g'"):
            driver.restart(restore_from="changelog")
        input_of(driver, "global").pipe_input("k", "w")
        driver.restart()
        input_of(driver).pipe_input("k", "?")
        assert output_of(driver).read_value() == "w"


def test_a_store_without_logging_on_a_given_directory_is_lost_with_it(tmp_path: Path) -> None:
    topology = storing("kv", change=lambda builder: builder.with_logging_disabled())
    with TopologyTestDriver(topology, state_dir=tmp_path) as driver:
        input_of(driver).pipe_input("k", "v")
    with TopologyTestDriver(topology, state_dir=tmp_path) as driver:
        store = driver.get_key_value_store("s")
        assert store is not None
        assert store.get("k") == "v"
        driver.restart(restore_from="changelog")
        again = driver.get_key_value_store("s")
        assert again is not None
        assert list(again.all()) == []
